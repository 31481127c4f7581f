"""Documents and streams with metadata: after a resume the rest is what it would have been.

`test_resume` and `test_topology` for the other kinds of data.
"""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from .kind_cases import KINDS, Samples
from .loader_cases import deal, expected_run, global_order, output_of, python

EPOCHS = 3
AHEAD = list(product((0, 1, 8), (0, 1, 3)))  # (prefetch, num_workers)
SEEDS = (None, 17)
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize("kind", ["documents", "longest", "spans"])
def test_more_than_a_thousand_resumes_each_give_the_rest_of_the_run(
    kind: str, tmp_path: Path
) -> None:
    """After every batch of three epochs, before the first and at both ends of each epoch.

    The state is rank 0's, through JSON, and every rank goes on from it.
    """
    resumes = 0
    for count in (1, 2, 5, 8, 11):
        samples = Samples.written(KINDS[kind], tmp_path / str(count), count)
        for batch, world_size, seed, drop_last in product(
            (1, 2, 3), (1, 2, 3), SEEDS, (False, True)
        ):
            if drop_last and count < batch * world_size:
                continue  # an epoch without a batch: test_kinds_coverage
            options: dict[str, Any] = {
                "local_batch_size": batch,
                "world_size": world_size,
                "seed": seed,
                "drop_last": drop_last,
            }
            saved: list[str] = []
            samples.deliver(samples.loader(rank=0, **options), until_epoch=EPOCHS, states=saved)
            for rank in range(world_size):
                run = expected_run(count, EPOCHS, rank=rank, **options)
                states: list[str] = []
                loader = samples.loader(rank=rank, **options)
                assert samples.deliver(loader, until_epoch=EPOCHS, states=states) == run
                assert states == saved, (count, rank, options)
                for k, state in enumerate(saved):
                    resumed = samples.loader(rank=rank, **options)
                    resumed.load_state_dict(json.loads(state))
                    found = samples.deliver(resumed, until_epoch=EPOCHS)
                    assert found == run[k:], (count, rank, options, k)
                    resumes += 1
    assert resumes > 1_000


@each_kind
def test_every_batch_with_every_prefetch_and_number_of_workers(kind: str, tmp_path: Path) -> None:
    """Each of the nine combinations saves after every batch; each of the nine goes on from it.

    They wait for threads most of the time, so the cases run side by side.
    """
    samples = Samples.written(KINDS[kind], tmp_path / "data", 7)
    pairs: set[tuple[int, int]] = set()

    def check(case: tuple[int, tuple[int | None, bool]]) -> int:
        saver, (seed, drop_last) = case
        options: dict[str, Any] = {"local_batch_size": 2, "seed": seed, "drop_last": drop_last}
        run = expected_run(7, EPOCHS, **options)
        states: list[str] = []
        prefetch, workers = AHEAD[saver]
        loader = samples.loader(prefetch=prefetch, num_workers=workers, **options)
        assert samples.deliver(loader, until_epoch=EPOCHS, states=states) == run, case
        for k, state in enumerate(states):
            goes_on = (saver + k + (4 if seed is None else 0)) % len(AHEAD)
            pairs.add((saver, goes_on))
            prefetch, workers = AHEAD[goes_on]
            resumed = samples.loader(prefetch=prefetch, num_workers=workers, **options)
            resumed.load_state_dict(json.loads(state))
            assert samples.deliver(resumed, until_epoch=EPOCHS) == run[k:], (case, goes_on, k)
        return len(states)

    cases = list(product(range(len(AHEAD)), product(SEEDS, (False, True))))
    with ThreadPoolExecutor(len(cases)) as pool:
        resumes = sum(pool.map(check, cases))
    assert len(pairs) == len(AHEAD) ** 2
    assert resumes == len(AHEAD) * 2 * (3 * 4 + 1 + 3 * 3 + 1)


@each_kind
def test_chains_of_three_resumes_with_fresh_objects(kind: str, tmp_path: Path) -> None:
    """All legs of zero to three batches; a state moves on after it was loaded."""
    samples = Samples.written(KINDS[kind], tmp_path / "data", 5)
    options: dict[str, Any] = {"local_batch_size": 2, "seed": 5, "drop_last": False}
    states: list[str] = []
    run = samples.deliver(samples.loader(**options), until_epoch=4, states=states)
    assert run == expected_run(5, 4, **options)
    for legs in product(range(4), repeat=3):
        at = 0
        for leg in legs:
            loader = samples.loader(**options)
            loader.load_state_dict(json.loads(states[at]))
            for _ in range(leg):
                assert samples.ids_of(next(iter(loader))) == run[at][1], legs
                at += 1
                assert json.dumps(loader.state_dict()) == states[at], legs
        loader = samples.loader(**options)
        loader.load_state_dict(json.loads(states[at]))
        assert samples.deliver(loader, until_epoch=4) == run[at:], legs


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("kind", ["documents", "longest", "spans"])
def test_any_world_and_batch_to_any_other_after_every_batch(
    kind: str, drop_last: bool, tmp_path: Path
) -> None:
    """Over all ranks: each sample of the epoch exactly once, in the global order."""
    count, worlds, batches = 13, (1, 2, 3, 8), (1, 3)
    samples = Samples.written(KINDS[kind], tmp_path / "data", count)
    order = global_order(count, 1, 7)
    changes = 0
    for world_size, batch in product(worlds, batches):
        saver = samples.loader(
            rank=0, world_size=world_size, local_batch_size=batch, seed=7, drop_last=drop_last
        )
        saver.set_epoch(1)
        states = [saver.state_dict()]
        if len(saver):
            states += [saver.state_dict() for _ in saver][:-1]  # the last one: the next epoch
        for (step, state), new_world, new_batch in product(enumerate(states), worlds, batches):
            delivered = world_size * batch * step
            assert (state["epoch"], state["position"]) == (1, delivered)
            expected = deal(
                order[delivered:],
                world_size=new_world,
                local_batch_size=new_batch,
                drop_last=drop_last,
            )
            if not expected and not delivered:
                continue  # an epoch without a batch: test_kinds_coverage
            where = (world_size, batch, delivered, new_world, new_batch)
            for rank in range(new_world):
                loader = samples.loader(
                    rank=rank,
                    world_size=new_world,
                    local_batch_size=new_batch,
                    seed=7,
                    drop_last=drop_last,
                )
                loader.load_state_dict(state)
                found = samples.deliver(loader, until_epoch=2)
                assert found == [(1, hands[rank]) for hands in expected], (where, rank)
            changes += 1
    assert changes > 150


def test_padding_is_no_part_of_the_state(tmp_path: Path) -> None:
    """Documents in a list, padded, or padded otherwise: the same samples go on."""
    written = Samples.written(KINDS["documents"], tmp_path / "data", 11)
    forms = [
        Samples(KINDS[kind], written.directory, 11, written.number)
        for kind in ("documents", "padded", "longest")
    ]
    options: dict[str, Any] = {"local_batch_size": 2, "seed": 5, "drop_last": False}
    run = expected_run(11, 2, **options)
    for saver in forms:
        states: list[str] = []
        assert saver.deliver(saver.loader(**options), until_epoch=2, states=states) == run
        for (k, state), form in product(enumerate(states), forms):
            resumed = form.loader(**options)
            resumed.load_state_dict(json.loads(state))
            assert form.deliver(resumed, until_epoch=2) == run[k:]


LEG = """
    import json, sys
    import guideloom

    options, *legs = map(json.loads, sys.argv[1:])
    found = []
    for directory, state, batches, of_kind in legs:
        loader = guideloom.StatefulDataLoader.from_storage(
            guideloom.open(directory), **options, **of_kind
        )
        if state is not None:
            loader.load_state_dict(state)
        delivered = []
        while len(delivered) < batches:
            for batch in loader:
                if hasattr(batch, "document_ids"):
                    delivered.append([batch.stream.tolist(), batch.document_ids().tolist()])
                else:
                    delivered.append([document.tolist() for document in batch])
                if len(delivered) == batches:
                    break
        found.append([delivered, loader.state_dict()])
    print(json.dumps(found))
"""


def test_two_processes_one_after_the_other(tmp_path: Path) -> None:
    """Each goes on where the last one stood, with other workers and prefetching.

    Formats come from the header.
    """
    kinds = {
        kind: Samples.written(KINDS[kind], tmp_path / kind, 11) for kind in ("documents", "spans")
    }
    options = {"local_batch_size": 2, "shuffle": True, "shuffle_seed": 3, "drop_last": False}
    states: list[Any] = [None, None]
    delivered: list[list[Any]] = [[], []]
    for batches, prefetch, workers in ((4, 8, 3), (7, 0, 0)):
        legs = [
            json.dumps([str(samples.directory), state, batches, dict(samples.kind.options)])
            for samples, state in zip(kinds.values(), states, strict=True)
        ]
        ahead = {"prefetch": prefetch, "num_workers": workers}
        with python(LEG, arguments=[json.dumps(options | ahead), *legs]) as process:
            for k, (found, state) in enumerate(json.loads(output_of(process))):
                delivered[k] += found
                states[k] = state
    run = [ids for _, ids in expected_run(11, 2, seed=3, local_batch_size=2, drop_last=False)]
    for samples, state, found in zip(kinds.values(), states, delivered, strict=True):
        table = samples.kind.table(11)
        assert len(found) == 11
        for batch, ids in zip(found, run, strict=False):
            rows: list[Any] = [table[i] for i in ids]
            if samples is kinds["documents"]:
                assert batch == [list(row) for row in rows]
            else:
                stream, documents = batch
                assert stream == [[row[0], row[0] + 1, row[0] + 2] for row in rows]
                for found_row, (_, *pieces) in zip(documents, rows, strict=True):
                    assert Counter(found_row) == {span: length for span, length, _ in pieces}
        resumed = samples.loader(local_batch_size=2, seed=3, drop_last=False)
        resumed.load_state_dict(state)
        assert [ids for _, ids in samples.deliver(resumed, until_epoch=2)] == run[11:]

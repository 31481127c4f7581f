"""After a resume the rest of the sequence is what it would have been without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from guideloom import EpochPlan

from .loader_cases import (
    WatchedIO,
    deliver,
    deliver_with_states,
    expected_run,
    ids_of,
    make_loader,
    output_of,
    python,
    write_stream,
)

EPOCHS = 3
AHEAD = list(product((0, 1, 8), (0, 1, 3)))  # (prefetch, num_workers)
SEEDS = (None, 17)


def test_ten_thousand_resumes_each_give_the_rest_of_the_run(tmp_path: Path) -> None:
    """After every batch of three epochs, before the first and at both ends of each epoch.

    The state is rank 0's, through JSON, and every rank goes on from it.
    """
    resumes = 0
    for samples in (2, 5, 8, 11, 16, 23, 30, 37):
        directory = write_stream(tmp_path / str(samples), samples)
        for batch, world_size, seed, drop_last in product(
            (1, 2, 3, 5), (1, 2, 3), SEEDS, (False, True)
        ):
            if drop_last and samples < batch * world_size:
                continue  # an epoch without a batch: test_coverage
            options: dict[str, Any] = {
                "local_batch_size": batch,
                "world_size": world_size,
                "seed": seed,
                "drop_last": drop_last,
            }
            saved: list[str] = []
            saver = make_loader(directory, rank=0, **options)
            deliver_with_states(saver, until_epoch=EPOCHS, states=saved)
            for rank in range(world_size):
                run = expected_run(samples, EPOCHS, rank=rank, **options)
                states: list[str] = []
                loader = make_loader(directory, rank=rank, **options)
                assert deliver_with_states(loader, until_epoch=EPOCHS, states=states) == run
                assert states == saved, (samples, rank, options)
                for k, state in enumerate(saved):
                    resumed = make_loader(directory, rank=rank, **options)
                    resumed.load_state_dict(json.loads(state))
                    found = deliver(resumed, until_epoch=EPOCHS)
                    assert found == run[k:], (samples, rank, options, k)
                    resumes += 1
    assert resumes >= 10_000


def test_every_batch_with_every_prefetch_and_number_of_workers(tmp_path: Path) -> None:
    """Each of the nine combinations saves after every batch; each of the nine goes on from it.

    They wait for threads most of the time, so the cases run side by side.
    """
    directory = write_stream(tmp_path / "stream", 7)
    pairs: set[tuple[int, int]] = set()

    def check(case: tuple[int, tuple[int | None, bool]]) -> int:
        saver, (seed, drop_last) = case
        options: dict[str, Any] = {"local_batch_size": 2, "seed": seed, "drop_last": drop_last}
        run = expected_run(7, EPOCHS, **options)
        states: list[str] = []
        prefetch, workers = AHEAD[saver]
        loader = make_loader(directory, prefetch=prefetch, num_workers=workers, **options)
        assert deliver_with_states(loader, until_epoch=EPOCHS, states=states) == run, case
        for k, state in enumerate(states):
            goes_on = (saver + k + (4 if seed is None else 0)) % len(AHEAD)
            pairs.add((saver, goes_on))
            prefetch, workers = AHEAD[goes_on]
            resumed = make_loader(directory, prefetch=prefetch, num_workers=workers, **options)
            resumed.load_state_dict(json.loads(state))
            assert deliver(resumed, until_epoch=EPOCHS) == run[k:], (case, goes_on, k)
        return len(states)

    cases = list(product(range(len(AHEAD)), product(SEEDS, (False, True))))
    with ThreadPoolExecutor(len(cases)) as pool:
        resumes = sum(pool.map(check, cases))
    assert len(pairs) == len(AHEAD) ** 2
    assert resumes == len(AHEAD) * 2 * (3 * 4 + 1 + 3 * 3 + 1)


def test_chains_of_three_resumes_with_fresh_objects(tmp_path: Path) -> None:
    """All legs of zero to five batches; a state moves on after it was loaded."""
    directory = write_stream(tmp_path / "stream", 7)
    options: dict[str, Any] = {"local_batch_size": 3, "seed": 5, "drop_last": False}
    states: list[str] = []
    run = deliver_with_states(make_loader(directory, **options), until_epoch=7, states=states)
    for legs in product(range(6), repeat=3):
        at = 0
        for leg in legs:
            loader = make_loader(directory, **options)
            loader.load_state_dict(json.loads(states[at]))
            assert json.dumps(loader.state_dict()) == states[at], legs
            left = leg
            while left:
                for batch in loader:
                    assert ids_of(batch) == run[at][1], legs
                    at += 1
                    left -= 1
                    assert json.dumps(loader.state_dict()) == states[at], legs
                    if not left:
                        break
        loader = make_loader(directory, **options)
        loader.load_state_dict(json.loads(states[at]))
        assert deliver(loader, until_epoch=7) == run[at:], legs


LEG = """
    import json, sys
    import numpy as np
    from guideloom import StatefulDataLoader, StreamNumpyFormat, StreamStorage

    directory, state, batches, options = sys.argv[1], *map(json.loads, sys.argv[2:])
    storage = StreamStorage(directory, StreamNumpyFormat(np.dtype([("tokens", "<u4")])))
    loader = StatefulDataLoader.from_storage(storage, sequence_length=3, **options)
    if state is not None:
        loader.load_state_dict(state)
    delivered = []
    while len(delivered) < batches:
        for batch in loader:
            delivered.append(batch["tokens"].tolist())
            if len(delivered) == batches:
                break
    print(json.dumps([delivered, loader.state_dict()]))
"""


def test_three_processes_one_after_the_other(tmp_path: Path) -> None:
    """Each goes on where the last one stood, with other workers and prefetching."""
    directory = write_stream(tmp_path / "stream", 11)
    options = {"local_batch_size": 2, "shuffle": True, "shuffle_seed": 3, "drop_last": False}
    run = expected_run(11, 3, seed=3, local_batch_size=2, drop_last=False)
    state: Any = None
    at = 0
    for batches, prefetch, workers in ((4, 8, 3), (5, 0, 0), (6, 1, 1)):
        ahead = {"prefetch": prefetch, "num_workers": workers}
        with python(
            LEG, arguments=[directory, json.dumps(state), batches, json.dumps(options | ahead)]
        ) as process:
            delivered, state = json.loads(output_of(process))
        expected = [
            [list(range(3 * i, 3 * i + 3)) for i in ids] for _, ids in run[at : at + batches]
        ]
        assert delivered == expected
        at += batches
    resumed = make_loader(directory, local_batch_size=2, seed=3, drop_last=False)
    resumed.load_state_dict(state)
    assert deliver(resumed, until_epoch=3) == run[at:]


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("prefetch", [1, 8])
def test_what_is_loaded_ahead_is_not_delivered(tmp_path: Path, prefetch: int, workers: int) -> None:
    """The state stands behind what was delivered while what comes next is being loaded already."""
    directory = write_stream(tmp_path / "stream", 20, shards=1)
    ahead = Event()

    def watch(rows: NDArray[np.int64]) -> None:
        if rows[0, 1] >= 2 * 4 * 3:  # the byte where sample 2 begins
            ahead.set()

    with make_loader(
        directory, backend=WatchedIO(watch), prefetch=prefetch, num_workers=workers
    ) as loader:
        assert ids_of(next(iter(loader))) == [0]
        iterator = iter(loader)
        assert ids_of(next(iterator)) == [1]
        assert ahead.wait(20)
        assert (loader.epoch, loader.position) == (0, 2)
        assert loader.state_dict()["position"] == 2
        assert ids_of(next(iterator)) == [2]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("epoch", [0, 1, 1000])
def test_loading_costs_the_same_at_any_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int | None, epoch: int
) -> None:
    """The first batch after a load takes one plan, one step of it, and one read."""
    samples = 400
    directory = write_stream(tmp_path / "stream", samples, shards=1)
    calls = dict.fromkeys(("plans", "steps", "reads", "ranges"), 0)

    def read(rows: NDArray[np.int64]) -> None:
        calls["reads"] += 1
        calls["ranges"] += len(rows)

    monkeypatch.setattr(EpochPlan, "sample_ids", _counted(EpochPlan.sample_ids, calls, "steps"))
    monkeypatch.setattr(
        EpochPlan, "__post_init__", _counted(EpochPlan.__post_init__, calls, "plans")
    )
    for position in (0, 4, 200, 396):
        loader = make_loader(directory, backend=WatchedIO(read), local_batch_size=4, seed=seed)
        state = loader.state_dict() | {"epoch": epoch, "position": position}
        calls.update(dict.fromkeys(calls, 0))
        loader.load_state_dict(state)
        next(iter(loader))
        assert calls == {"plans": 1, "steps": 1, "reads": 1, "ranges": calls["ranges"]}, position
        assert calls["ranges"] <= 4


def _counted(function: Callable[..., Any], calls: dict[str, int], name: str) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        calls[name] += 1
        return function(*arguments)

    return counted

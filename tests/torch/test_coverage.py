"""Each sample once, as many steps on every rank, for every small size; tiny and empty datasets."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from guideloom import StreamNumpyFormat, StreamStorage

from .loader_cases import (
    LENGTH,
    TOKENS,
    deal,
    deliver,
    global_order,
    ids_of,
    make_loader,
    output_of,
    python,
    within,
    write_stream,
)

SIZES = [*range(1, 13), 16, 17, 24, 31, 32, 33, 63, 64]
AHEAD = [(0, 0), (4, 0), (0, 1), (4, 3)]  # (prefetch, num_workers)


@pytest.mark.parametrize("drop_last", [False, True])
def test_every_small_size_on_every_number_of_ranks(tmp_path: Path, drop_last: bool) -> None:
    """Up to 64 samples, 9 ranks, batches of 8; with and without shuffling in turn."""
    for samples in SIZES:
        directory = write_stream(tmp_path / str(samples), samples)
        orders = {seed: global_order(samples, 0, seed) for seed in (None, samples)}
        for world_size, batch in product(range(1, 10), range(1, 9)):
            if drop_last and samples < world_size * batch:
                continue  # an epoch without a batch: below
            seed = samples if (world_size + batch) % 2 else None
            expected = deal(
                orders[seed], world_size=world_size, local_batch_size=batch, drop_last=drop_last
            )
            where = (samples, world_size, batch)
            seen: list[int] = []
            for rank in range(world_size):
                loader = make_loader(
                    directory,
                    seed=seed,
                    rank=rank,
                    world_size=world_size,
                    local_batch_size=batch,
                    drop_last=drop_last,
                )
                assert loader.global_batch_size == world_size * batch
                found = [ids_of(rows) for rows in loader]
                assert len(loader) == len(found) == len(expected), (where, rank)
                assert found == [hands[rank] for hands in expected], (where, rank)
                assert (loader.epoch, loader.position) == (1, 0), (where, rank)
                seen += [sample for rows in found for sample in rows]
            kept = samples - samples % (world_size * batch) if drop_last else samples
            assert sorted(seen) == sorted(orders[seed][:kept]), where


def test_one_shard_gives_all_of_64_ranks_work(tmp_path: Path) -> None:
    directory = write_stream(tmp_path / "stream", 64, shards=1)
    found = [
        [ids_of(rows) for rows in make_loader(directory, seed=0, rank=rank, world_size=64)]
        for rank in range(64)
    ]
    assert all(len(batches) == len(batches[0]) == 1 for batches in found)
    assert sorted(batches[0][0] for batches in found) == list(range(64))


def test_more_workers_than_batches_and_batches_larger_than_all(tmp_path: Path) -> None:
    """The remainder is decided for all ranks together, never per worker."""
    directory = write_stream(tmp_path / "stream", 10)
    loader = make_loader(directory, num_workers=9, local_batch_size=128, drop_last=False)
    assert [ids_of(rows) for rows in loader] == [list(range(10))]
    loader = make_loader(directory, num_workers=9, local_batch_size=5)
    assert [ids_of(rows) for rows in loader] == [list(range(5)), list(range(5, 10))]


def _header_only(directory: Path) -> None:
    with StreamStorage(directory, StreamNumpyFormat(TOKENS)).sync_writer():
        pass


def _an_empty_shard(directory: Path) -> None:
    with StreamStorage(directory, StreamNumpyFormat(TOKENS)).sync_writer() as writer:
        writer.append(3, {"tokens": np.array([], dtype="<u4")})


def _less_than_a_sample(directory: Path) -> None:
    write_stream(directory, 0)


def _less_than_a_batch(directory: Path) -> None:
    write_stream(directory, 5)


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize(
    "make, samples, drop_last",
    [
        (_header_only, 0, True),
        (_header_only, 0, False),
        (_an_empty_shard, 0, False),
        (_less_than_a_sample, 0, True),
        (_less_than_a_batch, 5, True),
    ],
)
def test_an_epoch_without_a_batch_warns_and_ends(
    tmp_path: Path,
    make: Callable[[Path], None],
    samples: int,
    drop_last: bool,
    prefetch: int,
    workers: int,
) -> None:
    """The next epoch comes; nothing hangs, whoever loads."""
    make(tmp_path / "stream")
    loader = make_loader(
        tmp_path / "stream",
        local_batch_size=2,
        world_size=3,
        rank=1,
        drop_last=drop_last,
        prefetch=prefetch,
        num_workers=workers,
    )
    text = (
        f"^the epoch has no batch: {samples} samples, global batch size 6, drop_last={drop_last}$"
    )
    assert len(loader) == 0
    for epoch in range(3):
        assert (loader.epoch, loader.position) == (epoch, 0)
        with pytest.warns(UserWarning, match=text) as caught:
            found = within(10, lambda: list(loader))
        assert found == []
        assert [Path(one.filename).name for one in caught] == [Path(__file__).name]
    assert loader.epoch == 3


def test_just_enough_samples_for_a_batch_do_not_warn(tmp_path: Path) -> None:
    directory = write_stream(tmp_path / "stream", 6)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(list(make_loader(directory, local_batch_size=2, rank=0, world_size=3))) == 1
        short = write_stream(tmp_path / "short", 1)
        assert len(list(make_loader(short, local_batch_size=9, drop_last=False))) == 1
    assert caught == []


@pytest.mark.parametrize("prefetch, workers", AHEAD)
def test_a_rank_with_nothing_left_gets_an_empty_batch(
    tmp_path: Path, prefetch: int, workers: int
) -> None:
    """So that it takes part in the step; dtype and all other dimensions are as always."""
    directory = write_stream(tmp_path / "stream", 9)
    shapes = []
    for rank in range(4):
        loader = make_loader(
            directory,
            rank=rank,
            world_size=4,
            local_batch_size=2,
            drop_last=False,
            prefetch=prefetch,
            num_workers=workers,
        )
        first, last = loader
        assert first["tokens"].dtype == last["tokens"].dtype == torch.uint32
        shapes.append((tuple(first["tokens"].shape), tuple(last["tokens"].shape)))
        assert loader.epoch == 1
    assert shapes == [((2, LENGTH), (rows, LENGTH)) for rows in (1, 0, 0, 0)]


def test_epochs_differ_and_are_the_same_for_ever(tmp_path: Path) -> None:
    """The rows of the table in the format's specification, through the loader."""
    directory = write_stream(tmp_path / "ten", 10)
    epochs = [ids for _, ids in deliver(make_loader(directory, seed=0), until_epoch=2)]
    assert [sample for ids in epochs for sample in ids] == [
        *(0, 9, 4, 5, 8, 6, 7, 1, 3, 2),
        *(7, 0, 2, 5, 4, 8, 1, 9, 6, 3),
    ]
    directory = write_stream(tmp_path / "thousand", 1000)
    loader = make_loader(directory, seed=42, local_batch_size=10)
    assert ids_of(next(iter(loader))) == [778, 436, 730, 20, 556, 381, 921, 132, 959, 602]


def test_every_epoch_and_every_seed_has_its_own_order(tmp_path: Path) -> None:
    directory = write_stream(tmp_path / "stream", 64)
    orders = {
        tuple(ids)
        for seed in range(20)
        for _, ids in deliver(
            make_loader(directory, seed=seed, local_batch_size=64), until_epoch=20
        )
    }
    assert len(orders) == 400
    assert all(sorted(order) == list(range(64)) for order in orders)
    plain = deliver(make_loader(directory, local_batch_size=64), until_epoch=3)
    assert [ids for _, ids in plain] == [list(range(64))] * 3


def test_a_seed_left_out_is_0(tmp_path: Path) -> None:
    directory = write_stream(tmp_path / "stream", 20)
    loader = make_loader(directory, seed=0)
    storage = StreamStorage(directory, StreamNumpyFormat(TOKENS))
    left_out = type(loader).from_storage(storage, sequence_length=LENGTH, shuffle=True)
    assert left_out.state_dict() == loader.state_dict()
    assert [ids_of(rows) for rows in left_out] == [ids_of(rows) for rows in loader]


RANKS = """
    import json, sys
    import numpy as np
    import torch.distributed as dist
    from guideloom import StatefulDataLoader, StreamNumpyFormat, StreamStorage

    directory, meeting, rank, world_size = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    storage = StreamStorage(directory, StreamNumpyFormat(np.dtype([("tokens", "<u4")])))

    def run(**options):
        loader = StatefulDataLoader.from_storage(
            storage, sequence_length=3, local_batch_size=2, shuffle=True, drop_last=False, **options
        )
        found = [[row[0] // 3 for row in batch["tokens"].tolist()] for batch in loader]
        return loader.global_batch_size, found

    found = [run()]
    def refuse(*arguments, **options):
        raise AssertionError("a collective call")
    for name in ("barrier", "broadcast", "broadcast_object_list", "all_gather",
                 "all_gather_object", "all_reduce", "gather", "scatter", "reduce"):
        setattr(dist, name, refuse)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size)
    found += [run(), run(rank=0, world_size=3)]
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"{meeting}-{rank}", rank=0, world_size=1)
    found += [run()]
    dist.destroy_process_group()
    print(json.dumps(found))
"""


def test_rank_and_world_size_come_from_torch_distributed(tmp_path: Path) -> None:
    """Where they are left out and it is initialized. No collective call is made."""
    directory = write_stream(tmp_path / "stream", 13)
    order = global_order(13, 0, 0)

    def dealt(rank: int, world_size: int) -> list[Any]:
        steps = deal(order, world_size=world_size, local_batch_size=2, drop_last=False)
        return [2 * world_size, [hands[rank] for hands in steps]]

    with ExitStack() as stack:
        meeting = f"file://{tmp_path}/meeting"
        ranks = [
            stack.enter_context(python(RANKS, arguments=[directory, meeting, rank, 2]))
            for rank in range(2)
        ]
        for rank, process in enumerate(ranks):
            found = json.loads(output_of(process))
            assert found == [dealt(0, 1), dealt(rank, 2), dealt(0, 3), dealt(0, 1)], rank

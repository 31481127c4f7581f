"""Each sample once, for any number of samples, shards, ranks, rows and workers, however it ends."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guideloom import EpochPlan
from guideloom.shuffle import FeistelShuffler
from guideloom_torch import MaskedBatch

from .loader_cases import ids_of, make_loader, sample_id, within, write_stream
from .process_cases import by_processes, pid_and_first, workers_of
from .process_cases import load as load_kind
from .process_cases import write as write_kind

ENDS: dict[str, dict[str, Any]] = {
    "dropped": {"drop_last": True},
    "kept": {"drop_last": False},
    "masked": {"drop_last": False, "pad": "mask"},
}
SIZES = st.integers(0, 2000) | st.sampled_from([0, 1, 2, 1999, 2000])


def order_of(samples: int, seed: int | None, epoch: int) -> list[int]:
    if seed is None:
        return list(range(samples))
    shuffler = FeistelShuffler.from_seed(samples, seed, epoch=epoch)
    return [int(k) for k in shuffler.shuffle(np.arange(samples))]


def whole_steps(samples: int, size: int, end: str) -> int:
    return samples // size if end == "dropped" else -(-samples // size)


@settings(max_examples=400, deadline=None)
@given(
    samples=SIZES,
    world_size=st.integers(1, 17),
    batch=st.integers(1, 70),
    end=st.sampled_from(list(ENDS)),
    seed=st.none() | st.integers(0, 2**70),
    epoch=st.integers(0, 2**40),
)
def test_plans_part_the_samples_of_an_epoch(
    samples: int, world_size: int, batch: int, end: str, seed: int | None, epoch: int
) -> None:
    """No loss, no duplicate but for the declared pad; the next epoch has another order."""
    order = order_of(samples, seed, epoch)
    assert sorted(order) == list(range(samples))
    plans = [
        EpochPlan(
            samples, seed=seed or 0, epoch=epoch, shuffle=seed is not None, rank=rank,
            world_size=world_size, local_batch_size=batch, drop_last=end == "dropped",
        )
        for rank in range(world_size)
    ]  # fmt: skip
    steps = whole_steps(samples, world_size * batch, end)
    assert {len(plan) for plan in plans} == {steps}
    dealt: list[int] = []
    pad = 0
    for step in range(steps):
        table = np.full((batch, world_size), -1)
        for rank, plan in enumerate(plans):
            if end == "masked":
                ids, valid = plan.padded(step)
                assert ids.size == batch
                pad += int((~valid).sum())
                ids = ids[valid]
            else:
                ids = plan.sample_ids(step)
            table[: ids.size, rank] = ids
        row = table.reshape(-1)
        assert (np.diff((row >= 0).astype(int)) <= 0).all()
        dealt += [int(k) for k in row[row >= 0]]
    kept = steps * world_size * batch if end == "dropped" else samples
    assert dealt == order[:kept]
    assert samples - kept < world_size * batch
    assert pad == (steps * world_size * batch - samples if end == "masked" else 0)
    if samples > 12 and seed is not None:
        assert order != order_of(samples, seed, epoch + 1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("partition")


def stream_of(place: Path, samples: int, shards: int) -> Path:
    directory = place / f"{samples}-{shards}"
    return directory if directory.exists() else write_stream(directory, samples, shards=shards)


def rows_of(batch: Any) -> list[int]:
    """The samples of a batch that count."""
    if not isinstance(batch, MaskedBatch):
        return ids_of(batch)
    ids = ids_of(batch.batch)
    valid = batch.valid.tolist()
    assert len(ids) == len(valid)
    assert valid == sorted(valid, reverse=True)
    return ids[: sum(valid)]


def check_job(
    directory: Path, samples: int, options: dict[str, Any], end: str, ahead: list[dict[str, Any]]
) -> None:
    """All ranks: as many steps as `len` says; dealt in turn, together the order of the epoch."""
    world_size, batch = options["world_size"], options["local_batch_size"]
    hands: list[list[list[int]]] = []
    for rank in range(world_size):
        loading = ahead[rank % len(ahead)]
        with make_loader(directory, rank=rank, **options, **ENDS[end], **loading) as loader:
            steps = len(loader)
            hands.append([rows_of(rows) for rows in loader] if steps else [])
            assert len(hands[-1]) == steps == whole_steps(samples, world_size * batch, end)
            assert len(loader) == steps
            if steps:
                assert (loader.epoch, loader.position) == (1, 0)
    dealt = [
        hand[row]
        for step in zip(*hands, strict=True)
        for row in range(len(step[0]))
        for hand in step
        if row < len(hand)
    ]
    kept = len(hands[0]) * world_size * batch if end == "dropped" else samples
    assert dealt == order_of(samples, options["seed"], 0)[:kept]


@settings(max_examples=60, deadline=None)
@given(
    samples=SIZES,
    shards=st.integers(1, 50),
    world_size=st.integers(1, 17),
    batch=st.integers(1, 70),
    end=st.sampled_from(list(ENDS)),
    seed=st.none() | st.integers(0, 2**70),
    workers=st.integers(0, 9),
    prefetch=st.integers(0, 4),
)
def test_loaders_part_the_samples_of_an_epoch(
    place: Path, samples: int, shards: int, world_size: int, batch: int, end: str,
    seed: int | None, workers: int, prefetch: int,
) -> None:  # fmt: skip
    """Every second rank has workers: their number is nothing that the order depends on."""
    batch = max(batch, -(-samples // (world_size * 40)))  # at most 40 steps
    options = {"world_size": world_size, "local_batch_size": batch, "seed": seed}
    ahead = [{}, {"num_workers": workers, "prefetch": prefetch}]
    check_job(stream_of(place, samples, shards), samples, options, end, ahead)


def test_every_size_to_64_with_every_end(place: Path) -> None:
    """Every number of ranks to 9 and batch to 8 meets about every eighth size."""
    jobs = list(product(range(1, 10), range(1, 9)))
    for samples in range(65):
        directory = stream_of(place, samples, 3)
        for k, end in enumerate(ENDS):
            for world_size, batch in jobs[(7 * samples + 5 * k) % 24 :: 24]:
                options = {"world_size": world_size, "local_batch_size": batch, "seed": samples}
                check_job(directory, samples, options, end, [{}])


@pytest.mark.parametrize("end", ENDS)
def test_the_remainder_is_never_one_of_each_worker(place: Path, end: str) -> None:
    """100 samples and 10 workers with batches of 128, and all around it."""
    for samples, workers in product((0, 1, 9, 10, 11, 99, 100, 127, 128, 129, 256), range(11)):
        for batch in (1, 10, 11, 128) if workers in (0, 3, 10) else (128,):
            options = {"world_size": 1, "local_batch_size": batch, "seed": 5}
            ahead = {"num_workers": workers, "prefetch": workers % 2}
            check_job(stream_of(place, samples, 1), samples, options, end, [ahead])


@pytest.mark.parametrize("end", ENDS)
def test_nor_one_of_each_process(place: Path, end: str) -> None:
    for samples, workers in ((0, 2), (1, 3), (9, 4), (10, 3), (11, 2), (100, 10)):
        options = {"world_size": 1, "local_batch_size": 10, "seed": 5}
        ahead = by_processes("fork", workers)
        check_job(stream_of(place, samples, 1), samples, options, end, [ahead])


# One file, many readers


def test_one_shard_gives_work_to_any_number_of_ranks_at_once(place: Path) -> None:
    """1 to 64 of them; the last ones in threads that read at the same time."""
    directory = stream_of(place, 64, 1)
    for world_size in range(1, 65):
        options = {"world_size": world_size, "local_batch_size": 1, "seed": world_size}
        check_job(directory, 64, options, "kept", [{}])
    together = threading.Barrier(64)

    def read(rank: int) -> list[int]:
        with make_loader(directory, rank=rank, world_size=64, seed=1) as loader:
            together.wait(60)
            return [k for batch in loader for k in ids_of(batch)]

    with ThreadPoolExecutor(64) as pool:
        found = within(60, lambda: list(pool.map(read, range(64))))
    assert all(len(ids) == 1 for ids in found)
    assert [ids[0] for ids in found] == order_of(64, 1, 0)


@pytest.mark.parametrize("workers", [2, 16, 64])
def test_one_shard_gives_work_to_all_threads_of_a_loader(place: Path, workers: int) -> None:
    """They meet: none gets on before all have a batch in work."""
    together = threading.Barrier(workers)

    def collate(samples: list[Any]) -> list[int]:
        together.wait(60)
        return [sample_id(sample) for sample in samples]

    directory = stream_of(place, 64, 1)
    loader = make_loader(directory, collate, num_workers=workers, seed=3)
    found = within(120, lambda: [k for ids in loader for k in ids])
    assert found == order_of(64, 3, 0)


def test_one_shard_gives_work_to_all_processes_of_a_loader(tmp_path: Path) -> None:
    directory = write_kind("stream", tmp_path / "stream", 48)
    options = by_processes("fork", 16, local_batch_size=1)
    with load_kind("stream", directory, pid_and_first, **options) as loader:
        made_by = [pid for pid, _ in loader]
        assert set(made_by) == set(workers_of(loader))
        assert len(set(made_by)) == 16

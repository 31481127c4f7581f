"""What a loader says that loading has cost, against what was simulated."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from guideloom_torch._pipeline import Room
from guideloom_torch._reads import NO_READS
from guideloom_torch._stats import Meter, nbytes_of

from .loader_cases import wait_until
from .process_cases import Slow, by_processes, load, write

MODES: dict[str, dict[str, Any]] = {
    "in the loop": {},
    "one thread": {"prefetch": 2},
    "threads": {"num_workers": 2, "prefetch": 1},
    "processes": by_processes("fork", 2, prefetch=1),
}
AHEAD = {"in the loop": 0, "one thread": 2, "threads": 3, "processes": 3}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("stream", tmp_path_factory.mktemp("stats") / "stream")


def test_before_the_first_batch(directory: Path) -> None:
    stats = load("stream", directory).stats()
    assert (stats.batches, stats.nbytes, stats.seconds, stats.waited) == (0, 0, 0, 0)
    assert (stats.ready, stats.in_work, stats.longest_wait) == (0, 0, 0)
    assert (stats.reads.reads, stats.slowest_read) == (0, None)
    assert (stats.batches_per_second, stats.bytes_per_second, stats.waiting) == (0, 0, 0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 10**6)), min_size=1
    )
)
def test_sums_over_simulated_waits(waits: list[tuple[int, int, int]]) -> None:
    """Each wait (training, then waiting, in ms; bytes of the batch) with a clock of our own."""
    with pytest.MonkeyPatch.context() as patch:
        clock = [5.0]
        patch.setattr(time, "perf_counter", lambda: clock[0])
        meter = Meter()
        begin = None
        for training, waiting, nbytes in waits:
            clock[0] += training / 1000
            begin = clock[0] if begin is None else begin
            asked = meter.asked()
            clock[0] += waiting / 1000
            meter.delivered(asked, nbytes)
        stats = meter.shown(2, 3, NO_READS)
        assert begin is not None
        assert stats.batches == len(waits)
        assert stats.nbytes == sum(nbytes for _, _, nbytes in waits)
        assert stats.waited == pytest.approx(sum(waiting for _, waiting, _ in waits) / 1000)
        assert stats.longest_wait == pytest.approx(max(wait for _, wait, _ in waits) / 1000)
        assert stats.seconds == pytest.approx(clock[0] - begin)
        assert (stats.ready, stats.in_work) == (2, 3)
        if stats.seconds:
            assert stats.batches_per_second == pytest.approx(len(waits) / stats.seconds)
            assert stats.bytes_per_second == pytest.approx(stats.nbytes / stats.seconds)
            assert 0 <= stats.waiting <= 1 + 1e-9


@pytest.mark.parametrize("mode", MODES)
def test_waits_of_a_loop(directory: Path, mode: str) -> None:
    """Batches that take 30 ms, and a loop that does nothing: it waits nearly all the time."""
    collate = Slow(0.03, 1000)
    with load("stream", directory, collate, **MODES[mode]) as loader:
        begin = time.perf_counter()
        list(loader)
        seconds = time.perf_counter() - begin
        stats = loader.stats()
        assert stats.batches == 8
        assert stats.nbytes >= 8 * 1000
        assert stats.waited <= stats.seconds
        assert 8 * 0.03 / 2.1 <= stats.waited <= seconds
        assert stats.longest_wait >= 0.03 * (mode == "in the loop")
        assert stats.longest_wait <= stats.waited
        assert stats.waiting > 0.5
        assert (stats.ready, stats.in_work) == (0, 0)
        list(loader)
        assert loader.stats().batches == 16  # since it was made, over epochs


@pytest.mark.parametrize("mode", MODES)
def test_ready_and_in_work_are_bounded(directory: Path, mode: str) -> None:
    """Never more than prefetch and workers together; all of them ready if the loop is slow."""
    with load("stream", directory, Slow(0.002), **MODES[mode]) as loader:
        for step, _ in enumerate(loader):
            stats = loader.stats()
            assert stats.ready + stats.in_work == min(AHEAD[mode], 7 - step)
            if step == 2:
                assert wait_until(5, lambda: loader.stats().ready == AHEAD[mode])
                assert loader.stats().in_work == 0
        iterator = iter(loader)
        next(iterator)
        loader.close()
        assert (loader.stats().ready, loader.stats().in_work) == (0, 0)


@pytest.mark.parametrize("mode", ["one thread", "threads", "processes"])
@pytest.mark.parametrize("limit", [1, 99_999, 250_000, 10**9])
def test_prefetched_bytes_are_bounded(directory: Path, mode: str, limit: int) -> None:
    """What is ready or in work never holds more bytes than allowed, but for a single batch.

    From the very first batch on, when no size is known yet, and with a loop that takes its time.
    """
    nbytes = 100_000
    options = {**MODES[mode], "prefetch": 16, "prefetch_bytes": limit, "local_batch_size": 1}
    most = max(1, limit // nbytes)
    with load("stream", directory, Slow(0.0, nbytes), **options) as loader:
        iterator = iter(loader)
        for step in range(24):
            next(iterator)
            stats = loader.stats()
            assert stats.ready + stats.in_work <= most, step
            if step < 3:
                time.sleep(0.05)
                assert loader.stats().ready <= most, step
        assert next(iterator, None) is None


@given(st.integers(1, 20), st.integers(1, 10**6), st.lists(st.integers(0, 10**6), max_size=20))
def test_room_in_plain_words(steps: int, limit: int, sizes: list[int]) -> None:
    room = Room(steps, limit)
    for k, size in enumerate(sizes):
        room.loaded(np.empty(size, np.uint8))
        largest = max(sizes[: k + 1])
        for pending in range(steps + 2):
            allowed = pending < steps and (not pending or (pending + 1) * largest <= limit)
            assert room.allows(pending) == allowed


def test_bytes_of_nested_batches() -> None:
    batch = {
        "tensor": torch.zeros(3, dtype=torch.int64),
        "list": [np.zeros(5, "<u2"), (b"four", "text", bytearray(2))],
        "other": object(),
        "view": memoryview(bytes(7)),
    }
    assert nbytes_of(batch) == 24 + 10 + 4 + 4 + 2 + 7


@pytest.mark.parametrize("mode", MODES)
def test_reads_are_counted(directory: Path, mode: str) -> None:
    """Once each, with their bytes and the slowest; 2 bytes an element, 4 elements a sample.

    Whoever reads: also over epochs, and after the processes have ended and others begun.
    """
    with load("stream", directory, **MODES[mode]) as loader:
        for epoch in range(1, 4):
            list(loader)
            stats = loader.stats()
            reads, nbytes = 8 * epoch, 8 * 3 * 8 * epoch
            assert (stats.reads.reads, stats.reads.nbytes, stats.reads.failed) == (reads, nbytes, 0)
            assert stats.slowest_read is not None
            assert str(directory) in stats.slowest_read.file
            assert ("guideloom-loader-" in stats.slowest_read.thread) == (mode != "in the loop")
            assert ("(pid " in stats.slowest_read.thread) == (mode == "processes")
            if epoch == 2:
                loader.close()
                assert loader.stats().reads == stats.reads

"""Opening, closing, leaving: no thread stays, nothing hangs, memory stays flat."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from guideloom import StatefulDataLoader

from .loader_cases import (
    WatchedIO,
    ids_of,
    make_loader,
    sample_id,
    wait_until,
    within,
    write_stream,
)

AHEAD = list(product((0, 4), (0, 1, 3)))  # (prefetch, num_workers)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stream(tmp_path_factory.mktemp("lifecycle") / "stream", 24)


def _drop_the_iterator(loader: StatefulDataLoader) -> None:
    next(iter(loader))


def _break(loader: StatefulDataLoader) -> None:
    for batch in loader:
        del batch
        break


def _close_with_an_iterator(loader: StatefulDataLoader) -> None:
    iterator = iter(loader)
    next(iterator)
    loader.close()
    assert iterator is not None


def _leave_the_with_block(loader: StatefulDataLoader) -> None:
    with loader:
        iterator = iter(loader)
        next(iterator)
    assert iterator is not None


def _raise_in_the_loop(loader: StatefulDataLoader) -> None:
    with suppress(ZeroDivisionError):
        for batch in loader:
            del batch
            raise ZeroDivisionError


def _end_of_the_epoch(loader: StatefulDataLoader) -> None:
    for batch in loader:
        del batch


def _load(loader: StatefulDataLoader) -> None:
    iterator = iter(loader)
    next(iterator)
    loader.load_state_dict(loader.state_dict())
    assert iterator is not None


def _a_cycle(loader: StatefulDataLoader) -> None:
    """The iterator dies within a garbage collection, here in the thread that iterates."""
    with _no_garbage_collection():
        cycle: list[Any] = [iter(loader)]
        cycle.append(cycle)
        next(cycle[0])
        del cycle
        gc.collect()


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize(
    "leave",
    [
        _drop_the_iterator,
        _break,
        _close_with_an_iterator,
        _leave_the_with_block,
        _raise_in_the_loop,
        _end_of_the_epoch,
        _load,
        _a_cycle,
    ],
)
def test_the_threads_are_gone_within_two_seconds(
    directory: Path, leave: Callable[[StatefulDataLoader], None], prefetch: int, workers: int
) -> None:
    next(iter(make_loader(directory)))  # the watchdog's thread stays
    before = set(threading.enumerate())
    loader = make_loader(directory, prefetch=prefetch, num_workers=workers)
    leave(loader)
    assert wait_until(2, lambda: set(threading.enumerate()) <= before), threading.enumerate()
    assert loader.position in (0, 1)


def test_threads_come_with_the_first_batch_and_not_before(directory: Path) -> None:
    """The counterpart of the test above: there is something to be gone."""
    before = set(threading.enumerate())
    loader = make_loader(directory, prefetch=4, num_workers=3)
    assert len(loader) == 24
    assert set(threading.enumerate()) <= before
    iterator = iter(loader)
    next(iterator)
    came = {thread.name for thread in set(threading.enumerate()) - before}
    assert came - {"guideloom-loader-watchdog"} == {f"guideloom-loader-{k}" for k in range(3)}


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize("leave", [_break, _end_of_the_epoch, _close_with_an_iterator])
def test_nothing_is_left_for_the_garbage_collector(
    directory: Path, leave: Callable[[StatefulDataLoader], None], prefetch: int, workers: int
) -> None:
    """The end of a loader frees all it had, at once, and not in any thread at any time."""
    backend = WatchedIO(lambda _: None)
    alive = weakref.ref(backend)
    loader = make_loader(directory, backend=backend, prefetch=prefetch, num_workers=workers)
    with _no_garbage_collection():
        leave(loader)
        del loader, backend
        assert wait_until(2, lambda: alive() is None)


def test_nothing_is_left_for_the_garbage_collector_after_an_error(directory: Path) -> None:
    """Of a loader without threads; the frames of a thread refer to each other."""

    def fail(rows: NDArray[np.int64]) -> None:
        raise ZeroDivisionError(rows.shape)

    backend = WatchedIO(fail)
    alive = weakref.ref(backend)
    loader = make_loader(directory, backend=backend)
    with _no_garbage_collection():
        with suppress(ZeroDivisionError):
            next(iter(loader))
            pytest.fail("no error came")
        del loader, backend
        assert alive() is None


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_an_iterator_that_is_collected_within_a_worker(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A garbage collection comes in whatever thread allocates: its threads end, without a word."""
    before = set(threading.enumerate())
    dropped, collected = threading.Event(), threading.Event()
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: unraisable.append(found.exc_value))

    def collate(samples: list[Any]) -> list[Any]:
        if sample_id(samples[0]) == 1 and dropped.wait(10):
            gc.collect()
            collected.set()
        return samples

    loader = make_loader(directory, collate, num_workers=1)
    with _no_garbage_collection():
        cycle: list[Any] = [iter(loader)]
        cycle.append(cycle)
        next(cycle[0])
        del cycle
        dropped.set()
        assert collected.wait(10)
    assert wait_until(2, lambda: set(threading.enumerate()) <= before)
    assert unraisable == []


@pytest.mark.parametrize("prefetch, workers", AHEAD)
def test_closing_twice_and_going_on(directory: Path, prefetch: int, workers: int) -> None:
    """Position stays; the loader opens again when it is used again."""
    loader = make_loader(directory, prefetch=prefetch, num_workers=workers)
    loader.close()
    iterator = iter(loader)
    kept = [next(iterator), next(iterator)]
    loader.close()
    loader.close()
    assert (loader.epoch, loader.position) == (0, 2)
    assert [ids_of(batch) for batch in kept] == [[0], [1]]
    with loader as entered:
        assert entered is loader
        assert [ids_of(batch) for batch in loader] == [[i] for i in range(2, 24)]
    assert (loader.epoch, loader.position) == (1, 0)


def test_the_with_block_opens_and_lets_errors_through(tmp_path: Path, directory: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"), make_loader(tmp_path / "nowhere"):
        pytest.fail("an absent dataset was opened")
    with pytest.raises(KeyError, match="mine"), make_loader(directory):
        raise KeyError("mine")


@pytest.mark.parametrize("prefetch, workers", [(0, 2), (3, 0), (3, 2)])
def test_a_hundred_tiny_epochs(directory: Path, prefetch: int, workers: int) -> None:
    """Ten loaders side by side; each epoch is whole."""

    def run(seed: int) -> int:
        loader = make_loader(
            directory, local_batch_size=12, seed=seed, prefetch=prefetch, num_workers=workers
        )
        for epoch in range(10):
            assert loader.epoch == epoch
            assert sorted(i for batch in loader for i in ids_of(batch)) == list(range(24))
        return loader.epoch

    with ThreadPoolExecutor(10) as pool:
        assert sum(within(60, lambda: list(pool.map(run, range(10))))) == 100


@pytest.mark.slow
def test_a_thousand_tiny_epochs_with_random_delays(directory: Path) -> None:
    random = np.random.default_rng(0)
    delays = random.uniform(0, 0.003, 4096).tolist()

    def run(seed: int) -> None:
        loader = make_loader(
            directory, local_batch_size=6, seed=seed, prefetch=seed % 3, num_workers=seed % 4
        )
        for epoch in range(50):
            found: list[int] = []
            for batch in loader:
                time.sleep(delays[(seed * 211 + epoch * 7 + len(found)) % 4096])
                found += ids_of(batch)
            assert sorted(found) == list(range(24)), (seed, epoch)

    with ThreadPoolExecutor(20) as pool:
        within(300, lambda: list(pool.map(run, range(20))))


def test_a_thousand_iterators_made_and_dropped(directory: Path) -> None:
    before = set(threading.enumerate())
    loader = make_loader(directory, prefetch=2)
    next(iter(loader))
    gc.collect()
    blocks = _allocated_blocks()
    for _ in range(1000):
        loader.set_epoch(loader.epoch + 1)
        assert len(ids_of(next(iter(loader)))) == 1
    assert _allocated_blocks() - blocks < 500
    assert wait_until(2, lambda: set(threading.enumerate()) <= before)


def _allocated_blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()

"""Odd batches, odd calls of next(), interrupts: no batch is lost, given twice or counted wrong."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from guideloom import StatefulDataLoader
from guideloom_torch._stats import nbytes_of
from guideloom_torch._threads import new_thread, start_thread

from .loader_cases import wait_until, within
from .odd_batches import ODD
from .process_cases import by_processes, load, write

MODES: dict[str, dict[str, Any]] = {
    "in the loop": {},
    "one thread": {"prefetch": 3},
    "threads": {"num_workers": 2, "prefetch": 2, "prefetch_bytes": 1000},
    "processes": by_processes("fork", 2, prefetch=2),
}
STEP = 3  # samples of a step, see `load`


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("stream", tmp_path_factory.mktemp("misuse") / "stream", 48)


def ids(samples: list[Any]) -> list[int]:
    return [int(sample["tokens"][0]) for sample in samples]


@pytest.fixture(scope="module")
def epoch(directory: Path) -> list[list[int]]:
    return list(load("stream", directory, ids))


@pytest.fixture(scope="module")
def epochs(directory: Path) -> list[list[list[int]]]:
    loader = load("stream", directory, ids)
    return [list(loader) for _ in range(200)]


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "processes"])
@pytest.mark.parametrize("odd", ODD)
def test_every_object_is_a_batch(directory: Path, odd: str, mode: str) -> None:
    """It is delivered, as it is, and counted at once."""
    made: list[Any] = []

    def collate(_: list[Any]) -> Any:
        made.append(ODD[odd]())
        return made[-1]

    with load("stream", directory, collate, **MODES[mode]) as loader:
        for k, batch in enumerate(loader, 1):
            assert any(batch is one for one in made)
            assert loader.position in (STEP * k, 0)
        assert (k, loader.epoch, loader.stats().batches) == (len(loader), 1, k)


@pytest.mark.parametrize("odd", ["sparse", "half", "numbers", "none", "tensor", "cycle"])
def test_odd_objects_come_from_processes(directory: Path, odd: str) -> None:
    with load("stream", directory, lambda _: ODD[odd](), **MODES["processes"]) as loader:
        assert len(list(loader)) == len(loader)


def test_bytes_of_odd_batches() -> None:
    assert {name: nbytes_of(make()) for name, make in ODD.items()} == {
        name: 8 if name in ("half", "cycle", "deep", "shared") else 0 for name in ODD
    }


class Stops:
    """An object that raises StopIteration when it is moved, or pickled, or unpickled."""

    def __init__(self, where: str) -> None:
        self.where = where

    def to(self, *_: Any, **__: Any) -> Any:
        if self.where == "moved":
            raise StopIteration
        return self

    def pin_memory(self) -> Any:
        return self

    def __reduce__(self) -> Any:
        if self.where == "pickled":
            raise StopIteration
        return (_stop if self.where == "unpickled" else Stops, (self.where,))


def _stop(_: str) -> Any:
    raise StopIteration


@pytest.mark.parametrize(
    "mode, where",
    [
        *((mode, where) for mode in MODES for where in ("loaded", "moved")),
        ("processes", "pickled"),
        ("processes", "unpickled"),
    ],
)
def test_a_stop_iteration_of_the_user_ends_no_epoch(
    directory: Path, epoch: list[list[int]], mode: str, where: str
) -> None:
    """It is an error, and the position stays."""

    def collate(samples: list[Any]) -> Any:
        if ids(samples) != epoch[5]:
            return ids(samples)
        if where == "loaded":
            raise StopIteration
        return Stops(where)

    with load("stream", directory, collate, device="cpu", **MODES[mode]) as loader:
        delivered: list[Any] = []
        with pytest.raises(RuntimeError, match="StopIteration"):
            delivered.extend(loader)
        assert delivered == epoch[:5]
        assert (loader.epoch, loader.position) == (0, STEP * 5)


class InterruptError(Exception):
    """What a signal handler raises."""


@contextmanager
def interrupting() -> Iterator[Callable[[float], object]]:
    """A function that has an InterruptError raised once, in so many seconds, or not if it is none.

    A signal that another thread has got may come to the handler late, and is then none.

    Python prints what is raised in a callback of a weak reference, and goes on; not here.
    """
    printed = sys.unraisablehook

    armed = [False]

    def interrupt(*_: Any) -> None:
        if armed[0]:
            armed[0] = False
            raise InterruptError

    def interrupt_in(seconds: float) -> None:
        armed[0] = seconds > 0
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def unraisable(what: Any) -> None:
        if not isinstance(what.exc_value, InterruptError):
            printed(what)

    before, sys.unraisablehook = signal.signal(signal.SIGALRM, interrupt), unraisable
    try:
        yield interrupt_in
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = printed


@pytest.mark.parametrize("mode", MODES)
def test_interrupts_at_any_moment(
    directory: Path, epochs: list[list[list[int]]], mode: str
) -> None:
    """Whatever is called afterwards, no batch is lost and none is counted that was not given."""
    source = random.Random(7)
    objects = [object() for _ in range(2000)]  # takes a moment to be counted
    interrupted = 0

    def collate(samples: list[Any]) -> Any:
        return ids(samples), objects if mode != "processes" else None

    mask, deadline = blocked(), time.monotonic() + 4
    with (
        interrupting() as interrupt_in,
        load("stream", directory, collate, **MODES[mode]) as loader,
    ):
        iterator = iter(loader)
        while time.monotonic() < deadline and interrupted < 400:
            at = (loader.epoch, loader.position // STEP)
            try:
                interrupt_in(source.uniform(1e-5, 1e-3))
                batch, _ = next(iterator, (None, None))
                interrupt_in(0)
            except (InterruptError, RuntimeError):  # locks of Python make one of the other
                interrupt_in(0)
                interrupted += 1
                if (loader.epoch, loader.position // STEP) != at:
                    continue  # between the batch and this loop, which forgets it
                try:
                    batch, _ = next(iterator, (None, None))
                except RuntimeError:
                    iterator = iter(loader)
                    continue
            if batch is None:
                iterator = iter(loader)
            else:
                assert batch == epochs[at[0]][at[1]]
    assert interrupted > 10
    assert blocked() == mask


def blocked() -> set[int]:
    """The signals that this thread does not get."""
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def test_interrupts_leave_signals_and_threads_as_they_were() -> None:
    """A handler that raises, at any moment of the start of a thread: it lives, or is not there.

    Also where another thread gets the signal; the handler runs in this one.
    """
    source = random.Random(7)
    mask, raised = blocked(), 0
    with interrupting() as interrupt_in:
        for _ in range(2000):
            with suppress(InterruptError):
                try:
                    interrupt_in(source.uniform(1e-6, 2e-4))
                    start_thread(new_thread(lambda: None, "short"))
                    interrupt_in(0)
                except InterruptError:
                    raised += 1
                    raise
            assert blocked() == mask
    assert raised > 100
    assert wait_until(10, lambda: all(thread.is_alive() for thread in threading.enumerate()))


@pytest.mark.parametrize("mode", MODES)
def test_threads_that_share_an_iterator(directory: Path, epoch: list[list[int]], mode: str) -> None:
    """Each batch is given once, in order of the calls; calls at the same time are refused."""
    refused: list[str] = []
    given: list[list[int]] = []

    def take(iterator: Any) -> None:
        while True:
            try:
                given.append(next(iterator))
            except StopIteration:
                return
            except RuntimeError as error:
                refused.append(str(error))
                time.sleep(0.001)

    for _ in range(5):
        given.clear()
        with load("stream", directory, ids, **MODES[mode]) as loader:
            iterator = iter(loader)
            threads = [threading.Thread(target=take, args=(iterator,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert sorted(given) == sorted(epoch)
            assert (loader.epoch, loader.position) == (1, 0)
    assert all("another call of next() of this iterator is running" in text for text in refused)


def test_a_load_that_asks_for_the_next_batch(directory: Path) -> None:
    iterators: list[Any] = []

    def collate(_: list[Any]) -> Any:
        return next(iterators[0])

    loader = load("stream", directory, collate)
    iterators.append(iter(loader))
    with pytest.raises(RuntimeError, match="is running, in another thread or in the one that"):
        next(iterators[0])
    assert loader.position == 0


@pytest.mark.parametrize("do", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda do: do.__name__)
def test_an_iterator_is_not_copied(directory: Path, do: Callable[[Any], Any]) -> None:
    iterator = iter(load("stream", directory))
    with pytest.raises(TypeError, match=r"save loader.state_dict\(\)"):
        do(iterator)
    next(iterator)


def test_a_thread_that_cannot_be_started(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Loading goes on without its watchdog, which is said once in an epoch."""
    from guideloom_torch import _watchdog

    def start(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_watchdog, "_the_watch", [])
    monkeypatch.setattr(threading.Thread, "start", start)
    loader: StatefulDataLoader = load("stream", directory)
    assert len(list(loader)) == len(loader)
    assert [record.getMessage() for record in caplog.records] == [
        "stalls of the loader will not be noticed: can't start new thread"
    ]


def test_a_handler_that_raises_does_not_end_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next stall is said as well."""
    from guideloom_torch import _watchdog

    said: list[str] = []

    def warn(*_: Any) -> None:
        said.append("")
        raise OSError("no space left")

    monkeypatch.setattr(_watchdog._logger, "warning", warn)
    dogs = [_watchdog.Watchdog(0.05, _watchdog.stall_warning(str, "rank 0")) for _ in range(3)]
    for number, dog in enumerate(dogs, 1):
        dog.begin()
        within(20, partial(_until, partial(_has, said, number)))
        dog.end()


def _has(said: list[str], number: int) -> bool:
    return len(said) == number


def _until(holds: Callable[[], bool]) -> None:
    for _ in itertools.count():
        if holds():
            return
        time.sleep(0.01)


def test_a_sum_stays_the_same(directory: Path) -> None:
    """Bytes are those of the tensors, whatever the way of loading."""
    sums = set()
    for options in MODES.values():
        with load("stream", directory, **options) as loader:
            list(loader)
            sums.add(loader.stats().nbytes)
    assert sums == {48 * 4 * torch.uint16.itemsize}

"""`ReadLog`: what is being read now, what was read in all, and the slowest read."""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from typing import Any, NamedTuple

import numpy as np

from guideloom_read._gather import count_read
from guideloom_read.io._observed import ObservedRead


class Reading(NamedTuple):
    """A bulk read as it was when somebody looked.

    Attributes:
        thread: name of the thread that reads.
        file: path of the file that it is at; of a read that has ended, the one that took longest,
            as far as a clock that ticks every few milliseconds can tell.
        start: first byte of the range in it.
        stop: last byte + 1.
        ranges: byte ranges of the bulk read in all.
        seconds: since it began; or how long it took.
    """

    thread: str
    file: str
    start: int
    stop: int
    ranges: int
    seconds: float

    def __str__(self) -> str:
        among = f" (one of {self.ranges} ranges)" if self.ranges > 1 else ""
        return f"{self.file}, bytes {self.start} to {self.stop}{among}, {self.seconds:.3g} s"


class ReadTotals(NamedTuple):
    """All bulk reads that have ended.

    Attributes:
        reads: how many.
        ranges: byte ranges that they read.
        nbytes: bytes that they read, without those that failed.
        seconds: how long they took, added up over threads.
        failed: how many ended with an error.
    """

    reads: int
    ranges: int
    nbytes: int
    seconds: float
    failed: int


class ReadLog:
    """An observer for `ObservedIO` that keeps count. Cheap, and safe for threads.

    A pickled or copied log, and that of a forked process, begins empty.
    """

    def __init__(self) -> None:
        self._begin()
        _empty_after_fork()
        _logs.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ReadLog, ())

    def _begin(self) -> None:
        self._running: set[ObservedRead] = set()
        self._totals = np.zeros(5, dtype=np.int64)
        self._slowest: tuple[float, ObservedRead | None, str] = (-1.0, None, "")
        self._slower = threading.Lock()  # to change the slowest

    def began(self, read: ObservedRead) -> None:
        """See `ReadObserver`."""
        self._running.add(read)

    def ended(self, read: ObservedRead) -> None:
        """See `ReadObserver`."""
        self._running.discard(read)
        seconds = read.seconds or 0.0
        count_read(self._totals, read.rows, seconds, read.failed)
        if seconds > self._slowest[0]:
            with self._slower:
                if seconds > self._slowest[0]:
                    self._slowest = (seconds, read, threading.current_thread().name)

    def now(self) -> list[Reading]:
        """What is being read, the read that runs longest first."""
        reads = sorted(self._running.copy(), key=lambda read: read.began)
        if not reads:
            return []
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        at = time.perf_counter()
        return [
            _reading(read, names.get(read.thread, f"thread {read.thread}"), at - read.began)
            for read in reads
        ]

    def totals(self) -> ReadTotals:
        """All reads that have ended."""
        reads, ranges, nbytes, nanoseconds, failed = self._totals.tolist()
        return ReadTotals(reads, ranges, nbytes, nanoseconds / 1e9, failed)

    def slowest(self) -> Reading | None:
        """The read that took longest, of those that have ended; None if none has."""
        seconds, read, thread = self._slowest
        return None if read is None else _reading(read, thread, seconds)


def _reading(read: ObservedRead, thread: str, seconds: float) -> Reading:
    file, start, stop = read.place()
    return Reading(thread, file, start, stop, read.ranges, seconds)


_logs: weakref.WeakSet[ReadLog] = weakref.WeakSet()


@functools.cache
def _empty_after_fork() -> None:
    os.register_at_fork(after_in_child=_begin_all)


def _begin_all() -> None:
    """The threads that read, and who may hold a lock, are not in a forked process."""
    for log in _logs:
        log._begin()

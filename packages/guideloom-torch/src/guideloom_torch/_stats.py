"""What loading costs the training loop, counted as it goes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from guideloom_read.io import Reading, ReadTotals
from guideloom_torch._reads import Reads

_ARRAYS = (torch.Tensor, np.ndarray, memoryview)
_NUMBERS = (int, float, bool, complex, type(None))
_MOST_LOOKED_AT = 1_000_000


@dataclass(frozen=True)
class LoaderStats:
    """Figures of a loader since it was made.

    Attributes:
        batches: that were delivered.
        nbytes: of arrays and tensors in them.
        seconds: since the first one was asked for.
        waited: seconds that the training loop waited for batches, all together.
        longest_wait: the longest of these waits, in seconds.
        ready: batches that are loaded and not delivered, now.
        in_work: steps that workers were given and have not loaded, now.
        reads: totals of what was read of the dataset, by this process and its worker processes;
            of these, what they read for the batches that they have sent.
        slowest_read: the slowest of these reads, with its file and byte range; None before one.
    """

    batches: int
    nbytes: int
    seconds: float
    waited: float
    longest_wait: float
    ready: int
    in_work: int
    reads: ReadTotals
    slowest_read: Reading | None

    @property
    def batches_per_second(self) -> float:
        """Delivered per second; 0 before the first."""
        return self.batches / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Delivered per second; 0 before the first."""
        return self.nbytes / self.seconds if self.seconds else 0.0

    @property
    def waiting(self) -> float:
        """The share of the time that the training loop waited, 0 to 1."""
        return self.waited / self.seconds if self.seconds else 0.0


class Meter:
    """Counts what `LoaderStats` shows. The training loop writes; any thread reads."""

    def __init__(self) -> None:
        self._began = 0.0
        self._batches = 0
        self._nbytes = 0
        self._waited = 0.0
        self._longest_wait = 0.0

    def asked(self) -> float:
        """The loop asks for a batch; when."""
        now = time.perf_counter()
        if not self._began:
            self._began = now
        return now

    def delivered(self, asked: float, nbytes: int) -> None:
        """The loop gets the batch that it asked for at that time."""
        waited = time.perf_counter() - asked
        self._batches += 1
        self._nbytes += nbytes
        self._waited += waited
        if waited > self._longest_wait:
            self._longest_wait = waited

    def shown(self, ready: int, in_work: int, reads: Reads) -> LoaderStats:
        """The figures now."""
        return LoaderStats(
            batches=self._batches,
            nbytes=self._nbytes,
            seconds=time.perf_counter() - self._began if self._began else 0.0,
            waited=self._waited,
            longest_wait=self._longest_wait,
            ready=ready,
            in_work=in_work,
            reads=reads.totals,
            slowest_read=reads.slowest,
        )


def nbytes_of(batch: Any) -> int:
    """Bytes of the arrays, tensors and buffers inside mappings, lists, tuples and dataclasses.

    Each is counted once. What does not say counts nothing, and a list that begins with a number is
    taken for one of numbers.
    """
    if isinstance(batch, _ARRAYS):
        return _nbytes(batch)
    found = 0
    seen: dict[int, Any] = {}  # keeps them: the number of one that is gone may be another's
    waiting = [batch]
    while waiting and len(seen) < _MOST_LOOKED_AT:
        one = waiting.pop()
        if type(one) in _NUMBERS or id(one) in seen:
            continue
        seen[id(one)] = one
        if isinstance(one, _ARRAYS):
            found += _nbytes(one)
        elif isinstance(one, bytes | bytearray | str):
            found += len(one)
        else:
            waiting += _members(one)
    return found


def _nbytes(array: Any) -> int:
    try:
        return int(array.nbytes)
    except Exception:  # noqa: BLE001  # a sparse tensor, or a view that was released
        return 0


def _members(one: Any) -> Iterable[Any]:
    """What is inside of it; whatever the user's classes do, it raises nothing."""
    try:
        if isinstance(one, list | tuple):
            return () if one and type(one[0]) in _NUMBERS else list(one)
        if isinstance(one, Mapping):
            return list(one.values())
        if dataclasses.is_dataclass(one) and not isinstance(one, type):
            names = [field.name for field in dataclasses.fields(one)]
            return [getattr(one, name) for name in names if hasattr(one, name)]
    except Exception:  # noqa: BLE001  # it is theirs
        return ()
    return ()

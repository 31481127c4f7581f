"""A backend that waits where it is told to."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom.io import RangeFiles
from guideloom.types import IOFiles, IOSession
from read.stream_cases import MemoryIO

SECONDS = 30


class Gate:
    """Where a backend waits, and what comes then."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self.error: BaseException | None = None
        self.place = ("", 0, 0)


@dataclass(frozen=True)
class GatedIO:
    """A user's backend that waits at the range of this number; counted over the whole session."""

    inner: MemoryIO
    gate: Gate
    at: int

    def open(self, directory: str) -> IOSession:
        session: Any = self.inner.open(directory)
        count = iter(range(10**9))

        def read_range(name: str, offset: int, nbytes: int) -> bytes:
            if next(count) == self.at:
                self.gate.place = (name, offset, offset + nbytes)
                self.gate.reached.set()
                assert self.gate.open.wait(SECONDS)
                if self.gate.error is not None:
                    raise self.gate.error
            return self.inner.files[name][offset : offset + nbytes]

        def open_files(names: Sequence[str], sizes: NDArray[np.int64]) -> IOFiles:
            return RangeFiles(read_range, names, sizes)

        session.open_files = open_files
        return session  # type: ignore[no-any-return]

"""`MmapIO`: files are mapped, byte ranges are copied from the maps."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from guideloom_format import IOFiles, IOSession
from guideloom_format._integers import as_index
from guideloom_read._gather import fill_from_memory
from guideloom_read.io._local import LocalSession, open_regular
from guideloom_read.io._open_files import OpenFiles, default_limit


class _Map:
    """A read-only map of a whole file; unmapped when the object is gone."""

    def __init__(self, path: str, size: int) -> None:
        descriptor = open_regular(path, size)
        try:
            self._map = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        self._bytes = np.frombuffer(self._map, dtype=np.uint8)
        self.value = int(self._bytes.ctypes.data)


@dataclass(frozen=True)
class MmapIO:
    """Reads from memory maps: no system call per range once the pages are there.

    The fastest choice for data that stays in the page cache. What readers return is copied from
    the maps, so it stays valid whatever becomes of the reader. A file that is truncated while it
    is mapped ends the process with SIGBUS, which is what the operating system does; where files
    may change under the reader, use `PosixPreadIO`.

    Args:
        max_open_files: most maps held at once; a quarter of the descriptors that the process may
            open, at most 1,024, when left out.
    """

    max_open_files: int | None = None

    def __post_init__(self) -> None:
        if self.max_open_files is not None:
            as_index("max_open_files", self.max_open_files, 1, None)

    def open(self, directory: str) -> IOSession:
        """Begin to read the dataset in `directory`."""
        return LocalSession(directory, self._open_files)

    def _open_files(
        self, directory: str, names: Sequence[str], sizes: NDArray[np.int64]
    ) -> IOFiles:
        return OpenFiles(
            directory,
            names,
            sizes,
            _Map,
            fill_from_memory,
            closed=0,
            dtype=np.int64,
            limit=self.max_open_files or default_limit(),
        )

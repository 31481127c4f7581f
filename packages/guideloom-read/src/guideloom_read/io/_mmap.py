"""`MmapIO`: files are mapped, byte ranges are copied from the maps."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

import numpy as np

from guideloom_read._gather import announce_to_memory, fill_from_memory
from guideloom_read.io._handle_io import HandleIO, HandleKind
from guideloom_read.io._local import open_regular


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
class MmapIO(HandleIO):
    """Reads from memory maps: no system call per range once the pages are there.

    The fastest choice for data that stays in the page cache. What readers return is copied from
    the maps, so it stays valid whatever becomes of the reader. A file that is truncated while it
    is mapped ends the process with SIGBUS, which is what the operating system does; where files
    may change under the reader, use `PosixPreadIO`.

    Ranges that are announced are given to `madvise`: a page that is not in memory is read alone,
    and not with the megabytes around it that the kernel reads when a map is touched.

    Args:
        max_open_files: most maps held at once (each keeps a descriptor); a quarter of the
            descriptors that the process may have, at most 1,024, when left out.
    """

    _kind = HandleKind(_Map, fill_from_memory, announce_to_memory, closed=0, dtype=np.int64)

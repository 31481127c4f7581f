"""`PosixPreadIO`, the default backend: one `pread` per byte range, straight into the batch."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from guideloom_read._gather import announce_to_descriptors, fill_from_descriptors
from guideloom_read.io._handle_io import HandleIO, HandleKind
from guideloom_read.io._local import open_regular


class _Descriptor:
    """An open file descriptor; closed when the object is gone."""

    def __init__(self, path: str, size: int) -> None:
        self.value = -1
        self.value = open_regular(path, size)

    def __del__(self) -> None:
        if self.value >= 0:
            os.close(self.value)


@dataclass(frozen=True)
class PosixPreadIO(HandleIO):
    """Reads with `pread`: safe for threads, no shared file position, nothing mapped.

    The right choice for local disks and parallel file systems. A file that is truncated while it
    is open gives an error and never a signal.

    Ranges that are announced are given to `posix_fadvise`: the kernel reads them side by side while
    the process does something else.

    Args:
        max_open_files: most descriptors held at once; a quarter of the process's limit, at most
            1,024, when left out.
    """

    _kind = HandleKind(
        _Descriptor, fill_from_descriptors, announce_to_descriptors, closed=-1, dtype=np.int32
    )

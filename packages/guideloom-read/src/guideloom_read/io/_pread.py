"""`PosixPreadIO`, the default backend: one `pread` per byte range, straight into the batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from guideloom_format import IOFiles, IOSession
from guideloom_format._integers import as_index
from guideloom_read._gather import fill_from_descriptors
from guideloom_read.io._local import LocalSession, open_regular
from guideloom_read.io._open_files import OpenFiles, default_limit


class _Descriptor:
    """An open file descriptor; closed when the object is gone."""

    def __init__(self, path: str, size: int) -> None:
        self.value = -1
        self.value = open_regular(path, size)

    def __del__(self) -> None:
        if self.value >= 0:
            os.close(self.value)


@dataclass(frozen=True)
class PosixPreadIO:
    """Reads with `pread`: safe for threads, no shared file position, nothing mapped.

    The right choice for local disks and parallel file systems. A file that is truncated while it
    is open gives an error and never a signal.

    Args:
        max_open_files: most descriptors held at once; a quarter of the process's limit, at most
            1,024, when left out.
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
            _Descriptor,
            fill_from_descriptors,
            closed=-1,
            dtype=np.int32,
            limit=self.max_open_files or default_limit(),
        )

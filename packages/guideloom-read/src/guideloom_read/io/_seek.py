"""`SeekIO`: ordinary seek and read, for file systems that do no better."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_format import IOSession, MissingFileError, ReadError
from guideloom_read.io._announce import announce_closed
from guideloom_read.io._local import LocalSession, open_regular
from guideloom_read.io._progress import at_row
from guideloom_read.io._ranges import RangeFiles


@dataclass(frozen=True)
class SeekIO:
    """Opens a file, seeks, reads and closes it, for every range.

    Slow and simple: nothing stays open or mapped between two reads. It works where neither `pread`
    nor maps do, and is a yardstick for the other backends.
    """

    def open(self, directory: str) -> IOSession:
        """Begin to read the dataset in `directory`."""
        return LocalSession(directory, _SeekFiles)


class _SeekFiles(RangeFiles):
    """Files of which none stays open."""

    def __init__(self, directory: str, names: Sequence[str], sizes: NDArray[np.int64]) -> None:
        super().__init__(self._read_range, names, sizes)
        self._directory = directory

    def announce(self, rows: NDArray[np.int64]) -> None:
        """See `guideloom.types.IOFiles`."""
        announce_closed(self._directory, self._names, self._sizes, rows)

    def _read_all(
        self, rows: NDArray[np.int64], out: NDArray[Any], progress: NDArray[np.int64] | None = None
    ) -> None:
        files, first = np.unique(rows[:, 0], return_index=True)
        for file, row in zip(files.tolist(), first.tolist(), strict=True):
            with at_row(progress, row):
                self._check(self._names[file], int(self._sizes[file]))
        super()._read_all(rows, out, progress)

    def _check(self, name: str, size: int) -> None:
        """Whether the file is there with its size."""
        os.close(self._open(name, size))

    def _read_range(self, name: str, offset: int, nbytes: int) -> bytes:
        with open(self._open(name, None), "rb") as file:
            try:
                file.seek(offset)
                return file.read(nbytes)
            except OSError as error:
                raise ReadError(
                    f"{os.path.join(self._directory, name)}, bytes {offset} to {offset + nbytes}: "
                    f"{error.strerror} (errno {error.errno})"
                ) from error

    def _open(self, name: str, size: int | None) -> int:
        path = os.path.join(self._directory, name)
        try:
            return open_regular(path, size)
        except FileNotFoundError as error:
            raise MissingFileError(
                f"{path} was committed and is not there. Restore it from a copy"
            ) from error
        except OSError as error:
            raise ReadError(
                f"{path} cannot be opened: {error.strerror} (errno {error.errno})"
            ) from error

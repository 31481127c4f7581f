"""`SeekIO`: ordinary seek and read, for file systems that do no better."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from guideloom_format import IOFiles, IOSession, MissingFileError, ReadError
from guideloom_read.io._local import LocalSession, open_regular
from guideloom_read.io._ranges import RangeFiles


@dataclass(frozen=True)
class SeekIO:
    """Opens a file, seeks, reads and closes it, for every range.

    Slow and simple: nothing stays open or mapped between two reads. It works where neither `pread`
    nor maps do, and is a yardstick for the other backends.
    """

    def open(self, directory: str) -> IOSession:
        """Begin to read the dataset in `directory`."""
        return LocalSession(directory, _open_files)


def _open_files(directory: str, names: Sequence[str], sizes: NDArray[np.int64]) -> IOFiles:
    def read_range(name: str, offset: int, nbytes: int) -> bytes:
        path = os.path.join(directory, name)
        try:
            with open(open_regular(path), "rb") as file:
                file.seek(offset)
                return file.read(nbytes)
        except FileNotFoundError as error:
            raise MissingFileError(
                f"{path} was committed and is not there. Restore it from a copy"
            ) from error
        except OSError as error:
            raise ReadError(
                f"{path}, bytes {offset} to {offset + nbytes}: {error.strerror} "
                f"(errno {error.errno})"
            ) from error

    return RangeFiles(read_range, names, sizes)

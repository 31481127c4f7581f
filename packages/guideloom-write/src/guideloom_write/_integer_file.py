"""A data file of 64-bit integers, given one at a time or many."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from guideloom_format import FileFacts, FileIdentity
from guideloom_write._checked_file import CheckedFile
from guideloom_write._files import PosixFiles

_MOST_PENDING = 8192


class IntegerFile:
    """A checked file of unsigned 64-bit integers, little-endian; few are held before a write."""

    def __init__(self, files: PosixFiles, path: str, identity: FileIdentity) -> None:
        self._file = CheckedFile(files, path, identity)
        self._pending = array("Q")
        self.append = self._pending.append

    @property
    def nbytes(self) -> int:
        """Bytes appended so far."""
        return self._file.nbytes + self._pending.itemsize * len(self._pending)

    def settle(self) -> None:
        """To be called now and then after `append`: keeps what is held bounded."""
        if len(self._pending) >= _MOST_PENDING:
            self._flush()

    def extend(self, values: NDArray[np.int64]) -> None:
        """Append many at once."""
        self._flush()
        self._file.write(values.astype("<u8").reshape(-1).view(np.uint8).data)

    def finish(self) -> dict[str, FileFacts]:
        """See `CheckedFile.finish`."""
        self._flush()
        return self._file.finish()

    def release(self) -> None:
        """Give back the descriptors for a while."""
        self._file.release()

    def abandon(self) -> None:
        """Close and remove the files."""
        self._file.abandon()

    def _flush(self) -> None:
        if self._pending:
            values = np.array(self._pending, dtype="<u8")
            del self._pending[:]
            self._file.write(values.view(np.uint8).data)

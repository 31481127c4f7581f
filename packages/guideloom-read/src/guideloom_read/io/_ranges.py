"""`RangeFiles`: a backend's bulk read made from a function that reads one range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_format import DamagedFileError
from guideloom_read.io._progress import at_row


class RangeFiles:
    """Fills many byte ranges one after the other; for backends that have one range at a time.

    Args:
        read_range: called with name, offset and number of bytes; returns those bytes. Must be safe
            to call from several threads.
        names: of the files.
        sizes: their sizes, int64.
    """

    def __init__(
        self,
        read_range: Callable[[str, int, int], bytes | bytearray | memoryview],
        names: Sequence[str],
        sizes: NDArray[np.int64],
    ) -> None:
        self._read_range = read_range
        self._names = names
        self._sizes = sizes

    def fill(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """See `guideloom.types.IOFiles.fill`."""
        self._read_all(rows, out)

    def fill_watched(
        self, rows: NDArray[np.int64], out: NDArray[Any], progress: NDArray[np.int64]
    ) -> None:
        """See `guideloom.types.IOFiles`."""
        if type(self).fill is RangeFiles.fill:
            self._read_all(rows, out, progress)
        else:  # a subclass reads in its own way
            self.fill(rows, out)

    def _read_all(
        self, rows: NDArray[np.int64], out: NDArray[Any], progress: NDArray[np.int64] | None = None
    ) -> None:
        target = out.reshape(-1).view(np.uint8)
        for number, (file, offset, nbytes, at) in enumerate(rows.tolist()):
            name = self._names[file]
            with at_row(progress, number):
                data = self._read_range(name, offset, nbytes)
            if len(data) != nbytes:
                raise DamagedFileError(
                    f"{name}, bytes {offset} to {offset + nbytes}: {len(data)} bytes came back; "
                    f"{int(self._sizes[file])} bytes were committed. The file is truncated or "
                    "damaged: restore it from a copy"
                )
            target[at : at + nbytes] = np.frombuffer(data, dtype=np.uint8)
        if progress is not None:
            progress[0] = len(rows)

    def close(self) -> None:
        """Nothing is held."""

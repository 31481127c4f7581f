from typing import Any

import numpy as np
from numpy.typing import NDArray

class RangeReadError(Exception):
    """A row that could not be filled.

    Attributes:
        row: its number.
        error_number: the errno of the read, or 0 where the file ended before the range did.
    """

    row: int
    error_number: int

    def __init__(self, row: int, error_number: int) -> None: ...

def fill_from_descriptors(
    descriptors: NDArray[np.int32],
    sizes: NDArray[np.int64],
    rows: NDArray[np.int64],
    begin: int,
    out: NDArray[Any],
    watch: NDArray[np.int64] | None = None,
) -> int:
    """Read byte ranges with `pread`, without the GIL, whole and in order.

    Args:
        descriptors: an open file descriptor per file, or -1.
        sizes: bytes per file.
        rows: shape (ranges, 4), C-contiguous: file, offset, bytes, offset in `out`.
        begin: the row to begin with.
        out: writable and C-contiguous, of any dtype: its bytes are filled.
        watch: four integers, zeros at the first row, for others to look at meanwhile: rows filled,
            and the row that took longest, by a clock that ticks every few milliseconds. The other
            two are for the next call.

    Returns:
        the number of rows filled, counted from row 0; less than ``len(rows)`` if the next row's
        file is not open.

    Raises:
        IndexError: a row outside its file or outside `out`; nothing was read for it.
        RangeReadError: a read failed, or a file is shorter than stated.
    """

def fill_from_memory(
    addresses: NDArray[np.int64],
    sizes: NDArray[np.int64],
    rows: NDArray[np.int64],
    begin: int,
    out: NDArray[Any],
    watch: NDArray[np.int64] | None = None,
) -> int:
    """Copy byte ranges of mapped files, without the GIL. Arguments and errors as above.

    Args:
        addresses: where each file is mapped, or 0. The caller keeps the maps alive.
        sizes: bytes per map.
        rows: shape (ranges, 4), C-contiguous.
        begin: the row to begin with.
        out: writable and C-contiguous, of any dtype: its bytes are filled.
        watch: as above.
    """

def announce_to_descriptors(
    descriptors: NDArray[np.int32], sizes: NDArray[np.int64], rows: NDArray[np.int64]
) -> int:
    """Tell the kernel that byte ranges will be read soon, without the GIL; nothing is read here.

    Rows that touch the row before them are one range. What the kernel answers does not matter.

    Args:
        descriptors: an open file descriptor per file, or -1.
        sizes: bytes per file.
        rows: shape (ranges, 4), C-contiguous, as above; the last column is not looked at.

    Returns:
        the number of rows whose file is not open: nothing was said of those.

    Raises:
        IndexError: a row outside its file; nothing was said of it and of those behind it.
    """

def announce_to_memory(
    addresses: NDArray[np.int64], sizes: NDArray[np.int64], rows: NDArray[np.int64]
) -> int:
    """The same for mapped files.

    Args:
        addresses: where each file is mapped, or 0. The caller keeps the maps alive.
        sizes: bytes per map.
        rows: shape (ranges, 4), C-contiguous.
    """

def count_read(
    totals: NDArray[np.int64], rows: NDArray[np.int64], seconds: float, failed: bool
) -> None:
    """Add a bulk read to totals, in one step for all threads: nobody else runs meanwhile.

    Args:
        totals: five sums: reads, their rows, the bytes of those that did not fail, nanoseconds,
            and reads that failed.
        rows: what was read: shape (ranges, 4), C-contiguous.
        seconds: how long it took.
        failed: whether it did.
    """

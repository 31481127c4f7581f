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
) -> int:
    """Read byte ranges with `pread`, without the GIL, whole and in order.

    Args:
        descriptors: an open file descriptor per file, or -1.
        sizes: bytes per file.
        rows: shape (ranges, 4), C-contiguous: file, offset, bytes, offset in `out`.
        begin: the row to begin with.
        out: writable and C-contiguous, of any dtype: its bytes are filled.

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
) -> int:
    """Copy byte ranges of mapped files, without the GIL. Arguments and errors as above.

    Args:
        addresses: where each file is mapped, or 0. The caller keeps the maps alive.
        sizes: bytes per map.
        rows: shape (ranges, 4), C-contiguous.
        begin: the row to begin with.
        out: writable and C-contiguous, of any dtype: its bytes are filled.
    """

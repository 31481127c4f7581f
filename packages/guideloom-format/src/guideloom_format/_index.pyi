from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

MAX_ELEMENTS: Final[int]

class StreamIndex:
    """Where the elements of a stream lie: prefix sums over its parts, in order of shard and part.

    ::

        lengths      [  5, 0,  3 ]
        ends         [  5, 5,  8 ]        element 5 is the first of part 2
        window 3..7  part 0, elements 3 4 | part 2, elements 0 1

    Args:
        lengths: elements in each part, 1-d integers; empty parts are allowed anywhere.

    Raises:
        ValueError: a negative length, or more than 2**62 elements together.
    """

    ends: NDArray[np.int64]
    total: int

    def __init__(self, lengths: ArrayLike) -> None: ...
    def __len__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def count(self, length: int, stride: int) -> int:
        """Number of windows of `length` elements that start at multiples of `stride`."""

    def plan(
        self, ids: ArrayLike, length: int, itemsize: int, stride: int = 1
    ) -> NDArray[np.int64]:
        """The byte segments of many windows, computed without the GIL.

        Window ``ids[k]`` covers the elements ``ids[k] * stride`` to ``ids[k] * stride + length``.

        Args:
            ids: 1-d integers in ``[0, count(length, stride))``, in any order, repeated or not.
            length: elements per window.
            itemsize: bytes per element.
            stride: elements between the starts of neighbouring windows.

        Returns:
            int64 of shape (segments, 4), in the order of the windows. The columns are the part,
            the byte offset in the part's file, the number of bytes (at least 1), and the byte
            offset in the output, where the windows lie one behind the other.

        Raises:
            IndexError: an id outside its interval.
            TypeError: ids are not integers.
        """

"""Lists from JSON, or of file names, as arrays; each value is checked.

The functions for columns return the array and the position of the first value that is wrong, -1 if
none is; the array is of no use then.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

def integers(values: list[Any], high: int) -> tuple[NDArray[np.int64], int]:
    """Integers from 0 to `high`, at most 2**63 - 1; booleans are none."""

def tokens(values: list[Any]) -> tuple[NDArray[np.uint64], int]:
    """Strings of 16 lower-case hexadecimal digits, as numbers."""

def stems(
    values: list[Any], most_bytes: int, most_components: int
) -> tuple[NDArray[np.bytes_], int]:
    """Relative names: components of ``[A-Za-z0-9._-]``, none with a leading dot, and slashes."""

def commit_places(names: list[str], most_shards: int, most_parts: int) -> NDArray[np.int64]:
    """``shard * most_parts + part`` of each name of a commit record; others are left out.

    A slash behind the name is ignored: a folder is not the file that it should be.
    """

"""How far a bulk read is: what Python code writes into a `progress` array.

See `guideloom.types.IOFiles` for ``fill_watched``; the compiled fills write into it, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

_AT, _LONGEST, _NANOSECONDS, _LOOKED = range(4)


@contextmanager
def at_row(progress: NDArray[np.int64] | None, row: int) -> Iterator[None]:
    """Within it, `row` is what is worked on; and how long that took is noted."""
    if progress is None:
        yield
        return
    progress[_AT] = row
    begin = time.monotonic_ns()
    yield
    taken = time.monotonic_ns() - begin
    if taken > progress[_NANOSECONDS]:
        progress[_LONGEST], progress[_NANOSECONDS] = row, taken
    progress[_LOOKED] = 0  # the compiled code has a clock of its own, and begins anew

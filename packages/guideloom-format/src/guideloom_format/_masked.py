"""Masked arrays, which NumPy's own functions take for ordinary ones."""

from __future__ import annotations

import sys
from typing import Any


def is_masked(value: Any) -> bool:
    """Whether it is one. Does not import `numpy.ma`, which takes milliseconds at the first use.

    Where nobody has imported that, there is no masked array.
    """
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(value, masked.MaskedArray)

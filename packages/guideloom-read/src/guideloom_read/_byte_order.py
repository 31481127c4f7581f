"""Integers that were read from a little-endian file, on any machine."""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray


def native(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The integers whose little-endian bytes are in `values`; changed in place where need be."""
    return values if sys.byteorder == "little" else values.byteswap(inplace=True)

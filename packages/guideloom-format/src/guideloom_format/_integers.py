"""Integers at the boundary: checked once here, so that the code behind can rely on them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_format._masked import is_masked


def as_integer(name: str, value: Any) -> int:
    """`value` as a Python int; NumPy integers are welcome, bools are not.

    Raises:
        TypeError: not an integer.
    """
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} is {value!r}; expected an integer")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"{name} is {value!r} ({type(value).__name__}); expected an integer"
        ) from None


def as_index(name: str, value: Any, low: int, high: int | None) -> int:
    """`value` as a Python int within [low, high].

    Raises:
        TypeError: not an integer.
        ValueError: outside the interval.
    """
    number = as_integer(name, value)
    if number < low or (high is not None and number > high):
        interval = f"at least {low}" if high is None else f"between {low} and {high}"
        raise ValueError(f"{name} is {shown(number)}; expected {interval}")
    return number


def index_array(name: str, values: Any) -> NDArray[np.int64]:
    """`values` as a C-contiguous, aligned int64 array; without a copy when it is one already.

    Raises:
        TypeError: the array does not hold integers.
        ValueError: an unsigned value does not fit in int64.
    """
    if is_masked(values):
        raise TypeError(f"{name} is a masked array; give values to all with .filled(value)")
    array = np.asarray(values)
    if array.dtype == np.int64 and array.flags.c_contiguous and array.flags.aligned:
        return array.view(np.int64)  # the very dtype, where there are several that are equal
    if array.size == 0 and not isinstance(values, np.ndarray):
        return np.zeros(array.shape, dtype=np.int64)  # [] arrives as float64
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {array.dtype}; expected integers")
    if array.dtype.kind == "u" and array.dtype.itemsize == 8 and array.size:
        largest = int(array.max())
        if largest > np.iinfo(np.int64).max:
            raise ValueError(f"{name} holds {largest}; the largest value allowed is 2**63 - 1")
    return np.array(array, dtype=np.int64, order="C")


def shown(value: object) -> str:
    """Any value for a message, not too long; Python prints no integer of over 4,300 digits."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."

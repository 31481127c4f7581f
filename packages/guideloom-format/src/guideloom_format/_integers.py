"""Numbers at the boundary: checked once here, so that the code behind can rely on them."""

from __future__ import annotations

import operator
import threading
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_format._masked import is_masked

MAX_SEED_BITS = 8192  # so that a seed can be printed, and a state in JSON stays within 4 KiB


def as_integer(name: str, value: Any) -> int:
    """`value` as a Python int; NumPy integers are welcome, bools are not, also not in a tensor.

    What is kept must be this int: NumPy's small ones overflow, and a tensor may change.

    Raises:
        TypeError: not an integer.
    """
    if type(value) is int:
        return value
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} is {value!r}; expected an integer")
    try:
        number = operator.index(value)
        if _is_of_bools(value):
            raise TypeError
    except Exception as error:  # noqa: BLE001  # whatever an __index__ raises
        raise TypeError(
            f"{name} is {shown(value)} ({type(value).__name__}); expected an integer"
        ) from (None if isinstance(error, TypeError) else error)
    return number


def _is_of_bools(value: Any) -> bool:
    """Whether an array or tensor, of whatever library, is one of bools."""
    return str(getattr(value, "dtype", "")).rpartition(".")[2] in ("bool", "bool_")


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


def as_seed(name: str, value: Any) -> int:
    """`value` as a Python int from 0 up, of at most `MAX_SEED_BITS` bits.

    Raises:
        TypeError: not an integer.
        ValueError: negative, or larger.
    """
    number = as_index(name, value, 0, None)
    if number.bit_length() > MAX_SEED_BITS:
        raise ValueError(f"{name} is {shown(number)}; expected at most {MAX_SEED_BITS} bits")
    return number


def as_flag(name: str, value: Any) -> bool:
    """`value` as a bool: True, False, NumPy's, 0 or 1; no text, whose "False" would be true.

    Raises:
        TypeError: of another type.
        ValueError: another integer.
    """
    if not isinstance(value, int | np.integer | np.bool_):
        raise TypeError(
            f"{name} is {shown(value)} ({type(value).__name__}); expected True or False"
        )
    if value not in (0, 1):
        raise ValueError(f"{name} is {shown(value)}; expected True or False")
    return bool(value)


def as_seconds(name: str, value: Any) -> float | None:
    """`value` as seconds that a thread can wait; None stays, for ever.

    Raises:
        TypeError: no real number.
        ValueError: not above 0, NaN, or more than `threading.TIMEOUT_MAX`.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(
            f"{name} is {shown(value)} ({type(value).__name__}); expected seconds, a number, or "
            "None for no limit"
        )
    try:
        seconds = float(value)
    except OverflowError:
        seconds = float("inf")
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise ValueError(
            f"{name} is {shown(value)}; expected seconds above 0, at most "
            f"{threading.TIMEOUT_MAX:.0f}, or None for no limit"
        )
    return seconds


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
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  # the message is about something else
        return f"of the type {type(value).__name__}, whose repr fails ({type(error).__name__})"
    return text if len(text) <= 80 else text[:77] + "..."


def type_shown(value: object) -> str:
    """What a value is, for a message: the name of its type; a class in place of an object."""
    if isinstance(value, type):
        return f"the class {value.__name__} in place of an object of it"
    return type(value).__name__

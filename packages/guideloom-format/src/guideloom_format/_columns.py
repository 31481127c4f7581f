"""Values that a caller gives, as arrays of the type that is stored: checked, never changed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_format._bit_views import is_extension
from guideloom_format._errors import DataError
from guideloom_format._masked import is_masked


def column(what: str, value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """`value` as an array of `dtype`, one entry per position.

    Args:
        what: the value's name in error messages, for example ``field 'tokens'``.
        value: (n,), with the dtype's own shape behind, if it has one.
        dtype: of an entry.

    Returns:
        of the dtype's base type; may be `value` itself.

    Raises:
        DataError: another shape, or values that would change.
    """
    base, shape = base_and_shape(dtype)
    if is_masked(value):
        raise DataError(f"{what} is a masked array; give values to all with .filled(value)")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{what} is not an array that NumPy can take: {error}") from error
    if array.ndim != 1 + len(shape) or array.shape[1:] != shape:
        raise DataError(
            f"{what} has shape {array.shape}; expected (n,{' ' if shape else ''}"
            f"{', '.join(map(str, shape))})"
            + (", n positions with the field's own shape behind" if shape else "")
        )
    if array.dtype == base or (array.size == 0 and not isinstance(value, np.ndarray)):
        return array.astype(base, copy=False)
    if array.dtype.kind in "iu" and base.kind in "iu":
        info = np.iinfo(base)
        if array.size and not (info.min <= int(array.min()) and int(array.max()) <= info.max):
            bad = (array < info.min) | (array > info.max)
            where = tuple(int(k) for k in np.argwhere(bad)[0])
            raise DataError(
                f"{what} holds {array[where]} at position {where[0]}; {base} holds "
                f"{info.min} to {info.max}. Choose a wider dtype"
            )
        return array.astype(base)
    if array.dtype.type is base.type and is_extension(base):
        return array.astype(base)
    if is_extension(base):
        name = base.type.__name__
        bits = ""
        if array.dtype.kind in "iu" and array.dtype.itemsize == base.itemsize:
            bits = f" If these are the bits, use .view(ml_dtypes.{name})."
        raise DataError(
            f"{what} has dtype {array.dtype}; expected {name}.{bits} To convert numbers, which "
            f"rounds them, use .astype({name!r})"
        )
    if is_extension(array.dtype):
        name = array.dtype.type.__name__
        raise DataError(
            f"{what} has dtype {name}; expected {base}. Convert the values with "
            f".astype({str(base)!r}) if none is lost. To store the bits as they are, use {name} in "
            f"the storage format, or an unsigned type of {array.dtype.itemsize} bytes and "
            f".view(np.uint{8 * array.dtype.itemsize})"
        )
    if not _keeps_every_value(array.dtype, base):
        raise DataError(
            f"{what} has dtype {array.dtype}; expected {base}. Convert it with "
            f".astype({str(base)!r}) if no value is lost"
        )
    return array.astype(base)


def base_and_shape(dtype: np.dtype[Any]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The type of a field's values, and the field's own shape."""
    return dtype.subdtype if dtype.subdtype is not None else (dtype, ())


def _keeps_every_value(given: np.dtype[Any], stored: np.dtype[Any]) -> bool:
    """Whether no value changes: numbers stay numbers, text text, and no integer is rounded."""
    if given.kind in "iu" and stored.kind in "fc":
        return 8 * given.itemsize <= np.finfo(stored).nmant + 1
    if given.names is not None or stored.names is not None:
        return given.names == stored.names and all(
            _keeps_every_value(given[name].base, stored[name].base)
            and given[name].shape == stored[name].shape
            for name in given.names or ()
        )
    numbers = "biufc"
    alike = given.kind == stored.kind or (given.kind in numbers and stored.kind in numbers)
    return alike and np.can_cast(given, stored, "safe")

"""Element types: NumPy dtypes that can stand in a header, little-endian, as JSON and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from guideloom_format._members import Members

MAX_FIELDS = 4096
MAX_ITEMSIZE = 1 << 24
_STORABLE_KINDS = "biufcSUV"


def storable_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """`dtype` in little-endian byte order.

    Raises:
        TypeError: it holds Python objects, dates, or no bytes at all.
    """
    given = np.dtype(dtype)
    _check_storable(given, given)
    return given.newbyteorder("<")


def dtype_to_json(dtype: np.dtype[Any]) -> Any:
    """NumPy's type string for a plain dtype, its list of fields for a structured one."""
    if dtype.names is None:
        return dtype.str
    return _lists(dtype.descr)


def dtype_from_json(members: Members, name: str) -> np.dtype[Any]:
    """The little-endian dtype that a header states under `name`.

    Raises:
        DamagedFileError: it states anything else.
    """
    if name not in members.values:
        members.items(name)
    value = members.values[name]
    try:
        dtype = np.lib.format.descr_to_dtype(_tuples(value, depth=0))
        stored = storable_dtype(dtype)
    except (TypeError, ValueError, KeyError, IndexError, RecursionError, SyntaxError) as error:
        raise members.wrong(name, value, "a NumPy dtype description") from error
    if stored != dtype or dtype_to_json(stored) != value:
        raise members.wrong(name, value, "a little-endian NumPy dtype description")
    return stored


def _check_storable(dtype: np.dtype[Any], whole: np.dtype[Any]) -> None:
    if dtype.subdtype is not None:
        _check_storable(dtype.subdtype[0], whole)
    elif dtype.names is not None and dtype.fields is not None:
        if len(dtype.names) > MAX_FIELDS:
            raise TypeError(f"dtype has {len(dtype.names)} fields; at most {MAX_FIELDS} are stored")
        for name in dtype.names:
            if len(dtype.fields[name]) != 2:
                raise TypeError(f"dtype {whole}: field {name!r} has a title; titles are not stored")
            _check_storable(dtype.fields[name][0], whole)
        try:
            _ = dtype.descr
        except ValueError as error:
            raise TypeError(
                f"dtype {whole} has overlapping fields, which are not stored"
            ) from error
    elif dtype.hasobject or dtype.kind not in _STORABLE_KINDS:
        raise TypeError(
            f"dtype {whole} holds {dtype}, which is not stored: use booleans, integers, floats, "
            "complex numbers, fixed-size strings or bytes"
        )
    if not 0 < dtype.itemsize <= MAX_ITEMSIZE:
        raise TypeError(
            f"dtype {whole} holds {dtype} of {dtype.itemsize} bytes; expected 1 to {MAX_ITEMSIZE}"
        )


def _lists(value: Any) -> Any:
    return [_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _tuples(value: Any, depth: int) -> Any:
    """JSON's lists as the lists of tuples that NumPy expects."""
    if depth > 16:
        raise ValueError("nested too deep")
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not 0 < len(value) <= MAX_FIELDS:
        raise ValueError("neither a type string nor a list of fields")
    return [_field(item, depth) for item in value]


def _field(item: Any, depth: int) -> tuple[Any, ...]:
    if not isinstance(item, list) or not 2 <= len(item) <= 3 or not isinstance(item[0], str):
        raise ValueError("a field is not [name, type] or [name, type, shape]")
    inner = _tuples(item[1], depth + 1)
    if len(item) == 2:
        return (item[0], inner)
    shape = item[2]
    if not isinstance(shape, list) or not all(type(n) is int and 0 < n < 2**31 for n in shape):
        raise ValueError("a shape is not a list of positive integers")
    return (item[0], inner, tuple(shape))

"""Element types: NumPy dtypes that can stand in a header, little-endian, as JSON and back."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from guideloom_format._bit_views import is_extension
from guideloom_format._members import Members

MAX_FIELDS = 4096
MAX_ITEMSIZE = 1 << 24
MAX_DEPTH = 16
MAX_DIMENSIONS = 32
_STORABLE_KINDS = "biufcSUV"
_STORABLE_SIZES = {"f": (2, 4, 8), "c": (8, 16)}
_TYPE = re.compile(r"[<|][biufcSUV][1-9][0-9]{0,8}", re.ASCII)
_NOT_DESCRIBED = (TypeError, ValueError, KeyError, IndexError, RecursionError, SyntaxError)


def storable_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """`dtype` in little-endian byte order.

    Raises:
        TypeError: it holds Python objects, dates, or no bytes at all, or it cannot be described.
    """
    if dtype is None:
        raise TypeError("the dtype is None; expected a dtype")  # and not NumPy's default
    given = np.dtype(dtype)
    _check_storable(given, given)
    stored = given.newbyteorder("<")
    try:
        readable = _described(dtype_to_json(stored)) == stored
    except _NOT_DESCRIBED:
        readable = False
    if not readable:
        raise TypeError(
            f"dtype {given} cannot be described in a header and is not stored; use a plain type, "
            f"or named fields with at most one shape each, nested at most {MAX_DEPTH} deep"
        )
    return stored


def dtype_to_json(dtype: np.dtype[Any]) -> Any:
    """NumPy's type string for a plain dtype, its list of fields for a structured one."""
    return dtype.str if dtype.names is None else _lists(dtype.descr)


def dtype_from_json(members: Members, name: str) -> np.dtype[Any]:
    """The little-endian dtype that a header states under `name`.

    Raises:
        DamagedFileError: it states anything else.
    """
    value = members.anything(name)
    try:
        dtype = _described(value)
        described = storable_dtype(dtype) == dtype and dtype_to_json(dtype) == value
    except _NOT_DESCRIBED as error:
        raise members.wrong(name, value, "a NumPy dtype description") from error
    if not described:
        raise members.wrong(name, value, "a little-endian NumPy dtype description")
    return dtype


def described_dtype(value: Any, where: str) -> np.dtype[Any]:
    """The dtype that a header describes in a place of its own.

    Raises:
        DamagedFileError: it describes none.
    """
    return dtype_from_json(Members({"dtype": value}, where), "dtype")


def _described(value: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.lib.format.descr_to_dtype(_tuples(value, depth=0))
    return dtype


def _check_storable(dtype: np.dtype[Any], whole: np.dtype[Any]) -> None:
    if dtype.subdtype is not None:
        _check_storable(dtype.subdtype[0], whole)
    elif dtype.names is not None and dtype.fields is not None:
        if len(dtype.names) > MAX_FIELDS:
            raise TypeError(f"dtype has {len(dtype.names)} fields; at most {MAX_FIELDS} are stored")
        for name in dtype.names:
            if not name:
                raise TypeError(f"dtype {whole} has a field without a name, which is not stored")
            if len(dtype.fields[name]) != 2:
                raise TypeError(f"dtype {whole}: field {name!r} has a title; titles are not stored")
            _check_storable(dtype.fields[name][0], whole)
        try:
            _ = dtype.descr
        except ValueError as error:
            raise TypeError(
                f"dtype {whole} has overlapping fields, which are not stored"
            ) from error
    elif is_extension(dtype):
        raise TypeError(
            f"dtype {whole} holds {dtype.type.__name__}, a type of ml_dtypes; those of 1 or 2 "
            "bytes are stored as named fields, not nested, of StreamNumpyFormat and "
            "StreamSpansFormat. Elsewhere store the bits: an unsigned type, and .view() on both "
            "sides"
        )
    elif dtype.itemsize not in _STORABLE_SIZES.get(dtype.kind, (dtype.itemsize,)):
        raise TypeError(
            f"dtype {whole} holds {dtype}, which is not stored, since other machines do not have "
            "it: use floats of 2, 4 or 8 bytes, complex numbers of 8 or 16"
        )
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
    if depth >= MAX_DEPTH:
        raise ValueError("nested too deep")
    if isinstance(value, str):
        if not _TYPE.fullmatch(value):
            raise ValueError("not a type string")
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
    if (
        not isinstance(shape, list)
        or len(shape) > MAX_DIMENSIONS
        or not all(type(n) is int and 0 < n < 2**31 for n in shape)
    ):
        raise ValueError("a shape is not a list of positive integers")
    return (item[0], inner, tuple(shape))


def has_padding(dtype: np.dtype[Any]) -> bool:
    """Whether some bytes of an element belong to no value."""
    return _value_bytes(dtype) != dtype.itemsize


def zero_padded(array: NDArray[Any]) -> NDArray[Any]:
    """A contiguous copy whose padding is zeros; what was in memory there is nobody's business."""
    out = np.zeros(array.shape, dtype=array.dtype)
    _copy_values(out, array)
    return out


def _value_bytes(dtype: np.dtype[Any]) -> int:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return _value_bytes(base) * math.prod(shape)
    if dtype.names is None or dtype.fields is None:
        return dtype.itemsize
    return sum(_value_bytes(dtype.fields[name][0]) for name in dtype.names)


def _copy_values(out: NDArray[Any], array: NDArray[Any]) -> None:
    if array.dtype.names is None:
        out[...] = array
    else:
        for name in array.dtype.names:
            _copy_values(out[name], array[name])

"""Element types, made from `docs/reference/format.md` alone."""

import math
import re

import numpy as np

from format.independent_json import RefusedError

_PLAIN = re.compile(r"([<|])([biufcSUV])([1-9][0-9]*)")
_LARGEST, _MOST_FIELDS, _DEEPEST = 2**24, 4096, 16
_SIZES = {"b": {1}, "i": {1, 2, 4, 8}, "u": {1, 2, 4, 8}, "f": {2, 4, 8}, "c": {8, 16}}


def element_type(described: object, depth: int = 0) -> np.dtype[np.void]:
    """The NumPy type of a description; fields lie where the page says, not where NumPy would."""
    if isinstance(described, str):
        return _plain(described)
    if isinstance(described, list):
        return _structured(described, depth + 1)
    raise RefusedError(f"element type {described!r} is neither a string nor an array")


def _plain(text: str) -> np.dtype[np.void]:
    match = _PLAIN.fullmatch(text)
    if match is None:
        raise RefusedError(f"element type {text!r} is not plain")
    order, letter, size = match[1], match[2], int(match[3])
    if letter in _SIZES and size not in _SIZES[letter]:
        raise RefusedError(f"element type {text!r}: no such size")
    if (order == "|") != (letter in "SVb" or (letter in "iu" and size == 1)):
        raise RefusedError(f"element type {text!r}: wrong byte order")
    _check_size(size * (4 if letter == "U" else 1))
    return np.dtype(text)


def _check_size(size: int) -> None:
    if size > _LARGEST:
        raise RefusedError(f"an element of {size} bytes")


def _structured(fields: list[object], depth: int) -> np.dtype[np.void]:
    if not 1 <= len(fields) <= _MOST_FIELDS or depth > _DEEPEST:
        raise RefusedError(f"an element type of {len(fields)} fields, nested {depth} deep")
    names: list[str] = []
    formats: list[tuple[np.dtype[np.void], tuple[int, ...]]] = []
    offsets: list[int] = []
    end = 0
    for field in fields:
        if not isinstance(field, list) or len(field) not in (2, 3) or not isinstance(field[0], str):
            raise RefusedError(f"field {field!r} is neither [name, type] nor [name, type, shape]")
        name, inner = field[0], element_type(field[1], depth)
        shape = _shape(field[2]) if len(field) == 3 else ()
        _check_size(end + inner.itemsize * math.prod(shape))
        if name:
            names.append(name)
            formats.append((inner, shape))
            offsets.append(end)
        elif inner.char != "V" or inner.names is not None or shape:
            raise RefusedError(f"field {field!r} without a name is not padding")
        end += inner.itemsize * math.prod(shape)
    if len(set(names)) != len(names):
        raise RefusedError(f"a field name stands twice in {fields!r}")
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": end})


def _shape(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(type(n) is int and n > 0 for n in shape or [0]):
        raise RefusedError(f"shape {shape!r} is not an array of positive integers")
    return tuple(shape)

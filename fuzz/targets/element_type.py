"""Element types: the JSON of a header to a NumPy dtype and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from guideloom_format import DamagedFileError
from guideloom_format._dtypes import (
    described_dtype,
    dtype_to_json,
    has_padding,
    storable_dtype,
    zero_padded,
)
from targets.base import Target, attempt
from targets.mutation import mutate_json

WHERE = "folder/guideloom.json"
MOST = 1 << 24
_SMALL = 1 << 16
SIZES = {"b": {1}, "i": {1, 2, 4, 8}, "u": {1, 2, 4, 8}, "f": {2, 4, 8}, "c": {8, 16}}


def feed(data: bytes) -> None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    dtype = attempt(lambda: described_dtype(value, WHERE), DamagedFileError, names=WHERE)
    expected = size_of(value, 0)
    if dtype is None:
        assert expected is None, f"{value} is refused"
        return
    assert expected == dtype.itemsize, f"{value} is accepted"
    assert dtype_to_json(dtype) == value
    assert storable_dtype(dtype) == dtype
    assert not dtype.hasobject
    if dtype.itemsize <= _SMALL:
        zeros = np.zeros(2, dtype)
        assert zero_padded(zeros).tobytes() == zeros.tobytes()
        has_padding(dtype)


def size_of(value: Any, depth: int) -> int | None:
    """Bytes of an element by the words of the format's page; None if it is not an element type."""
    if depth >= 16:
        return None
    size = _plain(value) if isinstance(value, str) else _fields(value, depth)
    return size if size is not None and 1 <= size <= MOST else None


def _plain(text: str) -> int | None:
    order, letter, digits = text[:1], text[1:2], text[2:]
    if not digits or not set(digits) <= set("0123456789") or digits[0] == "0" or len(digits) > 9:
        return None
    count = int(digits)
    one_byte = letter in "bSV" or (letter in "iu" and count == 1)
    if letter not in "biufcSUV" or not letter or order != ("|" if one_byte else "<"):
        return None
    if letter in SIZES and count not in SIZES[letter]:
        return None
    return 4 * count if letter == "U" else count


def _fields(value: Any, depth: int) -> int | None:
    if not isinstance(value, list) or not 1 <= len(value) <= 4096:
        return None
    total, names, padding_before = 0, set[str](), False
    for field in value:
        if not isinstance(field, list) or len(field) not in (2, 3):
            return None
        name, size = field[0], size_of(field[1], depth + 1)
        if not isinstance(name, str) or size is None:
            return None
        padding = name == ""
        if padding:
            plain = isinstance(field[1], str) and field[1][1:2] == "V"
            if not plain or len(field) == 3 or padding_before:
                return None
        elif name in names:
            return None
        names.add(name)
        padding_before = padding
        for n in _shape(field[2]) if len(field) == 3 else [1]:
            size *= n
        total += size
        if not size or total > MOST:
            return None
    return total


def _shape(shape: Any) -> list[int]:
    if not isinstance(shape, list) or not 1 <= len(shape) <= 32:
        return [0]
    return shape if all(type(n) is int and 0 < n < 1 << 31 for n in shape) else [0]


def seeds() -> list[bytes]:
    deep: Any = "<u2"
    for k in range(16):
        deep = [[f"f{k}", deep]]
    values: list[Any] = [
        "<u2",
        "|b1",
        "<f8",
        "<c16",
        "|S7",
        "<U3",
        "|V5",
        "|i1",
        [["tokens", "<u2"], ["", "|V2"], ["mask", "|b1", [2, 3]]],
        [["a", [["b", "<i4"], ["c", "<f2", [4]]], [2]]],
        [["ü", "|u1"], ["n\0", "<u8"]],
        [["a", "<u2"], ["a", "<u2"]],
        deep[0][1],
        deep,
        [["a", "<u8", [1 << 20, 2]]],
        [["a", "<u8", [1 << 21, 2]]],
        [["", "|V2"]],
    ]
    return [json.dumps(value).encode() for value in values]


TARGET = Target("element_type", feed, mutate_json, seeds)

"""Fields of every type: all their bits, in either byte order and any layout in memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from format.dtype_cases import names, plain_dtypes, shapes, structured_dtypes

EXTENSIONS: list[np.dtype[Any]] = [
    dtype
    for scalar in vars(ml_dtypes).values()
    if isinstance(scalar, type) and issubclass(scalar, np.generic)
    for dtype in [np.dtype(scalar)]
    if dtype.itemsize <= 2
]
"""The types of ml_dtypes that are stored."""

extensions = st.sampled_from(EXTENSIONS)
layouts = st.sampled_from(
    ["plain", "reversed", "strided", "fortran", "unaligned", "frozen", "in a record", "subclass"]
)


@st.composite
def field_dtypes(draw: st.DrawFn) -> np.dtype[Any]:
    """Any fields side by side, those of ml_dtypes among them: packed, aligned, or with gaps."""
    inner = extensions | plain_dtypes | structured_dtypes
    fields = [
        (name, draw(inner), draw(shapes))
        for name in draw(st.lists(names, min_size=1, max_size=4, unique=True))
    ]
    packing = draw(st.sampled_from(["packed", "aligned", "gaps"]))
    if packing != "gaps":
        return np.dtype(fields, align=packing == "aligned")
    formats = [np.dtype((dtype, shape)) for _, dtype, shape in fields]
    gaps = draw(st.lists(st.integers(0, 5), min_size=len(fields) + 1, max_size=len(fields) + 1))
    ends = np.cumsum([gap + dtype.itemsize for gap, dtype in zip(gaps, formats, strict=False)])
    offsets = [int(end) - dtype.itemsize for end, dtype in zip(ends, formats, strict=True)]
    return np.dtype(
        {
            "names": [name for name, _, _ in fields],
            "formats": formats,
            "offsets": offsets,
            "itemsize": int(ends[-1]) + gaps[-1],
        }
    )


def big_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same type with its bytes the other way round."""
    return dtype.newbyteorder(">")


def every_value(dtype: np.dtype[Any]) -> NDArray[Any]:
    """All bit patterns of an extension type, in order."""
    bits = 8 * dtype.itemsize
    return np.arange(2**bits).astype(f"<u{dtype.itemsize}").view(dtype)


def any_bits(
    dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[Any]:
    """Random bits, so that floats are NaNs of any kind, too. Padding is random as well."""
    raw = rng.integers(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
    values: NDArray[Any] = raw.view(dtype).reshape(shape)
    _mend(values, rng)
    return values


def _mend(values: NDArray[Any], rng: np.random.Generator) -> None:
    """Give booleans and text bits that such values can have."""
    if values.dtype.names is not None:
        for name in values.dtype.names:
            _mend(values[name], rng)
    elif values.dtype.kind == "b":
        values[...] = rng.integers(0, 2, values.shape)
    elif values.dtype.kind == "U":
        width = values.dtype.itemsize // 4
        code_points = rng.integers(1, 0xD800, (*values.shape, width), dtype=np.uint32)
        values[...] = code_points.view(f"=U{width}")[..., 0]


def little_endian_bytes(array: NDArray[Any]) -> bytes:
    """The values as they lie in a file; computed without NumPy's conversions."""
    dtype = array.dtype
    if dtype.names is not None:
        return b"".join(little_endian_bytes(array[name]) for name in dtype.names)
    word = {"c": dtype.itemsize // 2, "U": 4}.get(dtype.kind, dtype.itemsize)
    words = np.frombuffer(array.tobytes(), dtype=np.uint8).reshape(-1, word)
    return (words[:, ::-1] if dtype.byteorder == ">" else words).tobytes()


def assert_same_bits(one: NDArray[Any], other: NDArray[Any]) -> None:
    """Equal shape and bits, whatever the byte order; padding does not count."""
    assert one.shape == other.shape
    assert little_endian_bytes(one) == little_endian_bytes(other)


class Subclass(np.ndarray[Any, Any]):
    """What `np.memmap` and others are: an array of a class of its own."""


def laid_out(values: NDArray[Any], layout: str) -> NDArray[Any]:
    """The same values, otherwise in memory."""
    if layout == "reversed":
        return values[::-1].copy()[::-1]
    if layout == "strided":
        return np.repeat(values, 2, axis=0)[::2]
    if layout == "fortran":
        return np.asfortranarray(values)
    if layout == "unaligned":
        room = np.empty(values.nbytes + 1, dtype=np.uint8)
        room[1:] = np.frombuffer(values.tobytes(), dtype=np.uint8)
        return room[1:].view(values.dtype).reshape(values.shape)
    if layout == "in a record":
        record = np.zeros(len(values), [("before", "u1"), ("it", values.dtype, values.shape[1:])])
        record["it"] = values
        inside: NDArray[Any] = record["it"]
        return inside
    copied = values.copy()
    copied.flags.writeable = layout != "frozen"
    return copied.view(Subclass) if layout == "subclass" else copied

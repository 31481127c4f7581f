"""Dtypes as users have them: plain, structured, nested, with shapes, aligned, padded by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

PLAIN = [
    "?",
    *(f"{order}{kind}{size}" for order in "<>" for kind in "iu" for size in (1, 2, 4, 8)),
    *(f"{order}f{size}" for order in "<>" for size in (2, 4, 8)),
    *(f"{order}c{size}" for order in "<>" for size in (8, 16)),
    *("S1", "S7", "<U1", ">U5", "V1", "V9"),
]
NOT_STORED = [
    "O",
    "M8[s]",
    "m8[ms]",
    "S0",
    "U0",
    "V0",
    [("a", "O")],
    [("a", [("b", "<i4"), ("c", "O")])],
    [("a", "M8[s]", (2,))],
    [],
    [("a", "S0")],
    [("a", "<i4", (0,))],
    [(("title", "a"), "<i4")],
    {"names": ["a", "b"], "formats": ["<i4", "<i4"], "offsets": [0, 2]},
    {"names": ["a", "b"], "formats": ["<i4", "<i4"], "offsets": [4, 0]},
    "V16777217",
    [("a", "u1", (16777217,))],
]

names = st.text(min_size=1, max_size=6)
shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)
plain_dtypes = st.sampled_from(PLAIN).map(np.dtype)


@st.composite
def _structured(draw: st.DrawFn, inner: st.SearchStrategy[np.dtype[Any]]) -> np.dtype[Any]:
    field_names = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    fields = [(name, draw(inner), draw(shapes)) for name in field_names]
    kind = draw(st.sampled_from(["packed", "aligned", "padded"]))
    if kind != "padded":
        return np.dtype(fields, align=kind == "aligned")
    formats = [np.dtype((dtype, shape)) for _, dtype, shape in fields]
    offsets, end = [], 0
    for dtype in formats:
        end += draw(st.integers(0, 5))
        offsets.append(end)
        end += dtype.itemsize
    return np.dtype(
        {
            "names": field_names,
            "formats": formats,
            "offsets": offsets,
            "itemsize": end + draw(st.integers(0, 5)),
        }
    )


structured_dtypes = st.recursive(plain_dtypes, _structured, max_leaves=6).flatmap(
    lambda inner: _structured(st.just(inner) | plain_dtypes)
)
dtypes = plain_dtypes | structured_dtypes


def size_by_the_format(described: Any) -> int:
    """The size of an element as the format page defines it."""
    if isinstance(described, str):
        return int(described[2:]) * (4 if described[1] == "U" else 1)
    size = 0
    for _, inner, *shape in described:
        count = 1
        for n in shape[0] if shape else ():
            count *= n
        size += count * size_by_the_format(inner)
    return size


def byte_orders(described: Any) -> set[str]:
    if isinstance(described, str):
        return {described[0]}
    return {order for field in described for order in byte_orders(field[1])}


def assert_same_values(one: NDArray[Any], other: NDArray[Any]) -> None:
    """Bit by bit, whatever the byte order; padding does not count."""
    assert one.shape == other.shape
    if one.dtype.names is None:
        little = one.dtype.newbyteorder("<")
        assert little == other.dtype.newbyteorder("<")
        assert one.astype(little).tobytes() == other.astype(little).tobytes()
    for name in one.dtype.names or ():
        assert_same_values(one[name], other[name])


def random_values(dtype: np.dtype[Any], n: int, rng: np.random.Generator) -> NDArray[Any]:
    """n elements, every byte of them in use; strings hold letters."""
    values = np.zeros(n, dtype=dtype)
    fill(values, rng)
    return values


def fill(values: NDArray[Any], rng: np.random.Generator) -> None:
    if values.dtype.names is not None:
        for name in values.dtype.names:
            fill(values[name], rng)
    elif values.dtype.kind in "SU":
        width = values.dtype.itemsize // (4 if values.dtype.kind == "U" else 1)
        values[...] = np.array("x" * width, dtype=values.dtype)
    elif values.dtype.kind == "b":
        values[...] = rng.integers(0, 2, values.shape)
    elif values.dtype.kind in "fc":
        values[...] = rng.integers(-1000, 1000, values.shape)
    else:
        size = values.dtype.itemsize
        raw = rng.integers(0, 256, (*values.shape, size), dtype=np.uint8)
        values[...] = raw.view(values.dtype if values.dtype.kind != "V" else f"V{size}")[..., 0]

"""Element types: dtypes to JSON and back, and nothing else from a hostile header."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format.dtype_cases import (
    NOT_STORED,
    PLAIN,
    assert_same_values,
    byte_orders,
    dtypes,
    random_values,
    size_by_the_format,
    structured_dtypes,
)
from guideloom_format import DamagedFileError
from guideloom_format._dtypes import (
    dtype_from_json,
    dtype_to_json,
    has_padding,
    storable_dtype,
    zero_padded,
)
from guideloom_format._members import Members


def read(described: Any) -> np.dtype[Any]:
    return dtype_from_json(Members({"element_type": described}, "guideloom.json"), "element_type")


def through_json(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return read(json.loads(json.dumps(dtype_to_json(dtype))))


def assert_stored_exactly(given_dtype: np.dtype[Any]) -> None:
    stored = storable_dtype(given_dtype)
    described = dtype_to_json(stored)
    back = through_json(stored)
    assert back == stored
    assert back.itemsize == given_dtype.itemsize == size_by_the_format(described)
    assert byte_orders(described) <= {"<", "|"}
    assert stored.names == given_dtype.names == back.names


@settings(max_examples=300, deadline=None)
@given(dtype=dtypes)
def test_dtypes_come_back(dtype: np.dtype[Any]) -> None:
    assert_stored_exactly(dtype)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_dtypes_come_back_little_endian(name: str) -> None:
    assert_stored_exactly(np.dtype(name))
    stored = storable_dtype(name)
    assert stored == np.dtype(name).newbyteorder("<")
    assert dtype_to_json(stored) == stored.str


@settings(max_examples=200, deadline=None)
@given(dtype=structured_dtypes, seed=st.integers(0, 2**32 - 1))
def test_bytes_mean_the_same_after_the_round_trip(dtype: np.dtype[Any], seed: int) -> None:
    """Every field of every element, padding apart, has its value back."""
    stored = storable_dtype(dtype)
    rng = np.random.default_rng(seed)
    data = rng.integers(32, 127, 3 * stored.itemsize, dtype=np.uint8)
    written, seen = data.view(stored), data.view(through_json(stored))
    assert_same_values(written, seen)


@pytest.mark.parametrize("dtype", NOT_STORED, ids=str)
def test_what_is_not_stored_is_refused(dtype: Any) -> None:
    with pytest.raises(TypeError, match=r"not stored|expected 1 to 16777216"):
        storable_dtype(dtype)


@pytest.mark.parametrize(
    "dtype, message",
    [
        (
            "O",
            r"^dtype object holds object, which is not stored: use booleans, integers, ",
        ),
        (
            "M8[s]",
            r"^dtype datetime64\[s\] holds datetime64\[s\], which is not stored: use booleans",
        ),
        ("S0", r"^dtype \|S0 holds \|S0 of 0 bytes; expected 1 to 16777216$"),
        ([(("title", "a"), "<i4")], r": field 'a' has a title; titles are not stored$"),
        (
            {"names": ["a", "b"], "formats": ["<i4", "<i4"], "offsets": [0, 2]},
            r"^dtype .* has overlapping fields, which are not stored$",
        ),
        (
            [(f"f{k}", "u1") for k in range(4097)],
            r"^dtype has 4097 fields; at most 4096 are stored$",
        ),
        ({"names": [""], "formats": ["<i4"]}, r" has a field without a name, which is not stored$"),
        (
            np.longdouble,
            r"^dtype float\d+ holds float\d+, which is not stored, since other m",
        ),
        (np.clongdouble, r"^dtype complex\d+ holds complex\d+, which is not stored, since other "),
        (("<i4", (2,)), r"^dtype .* cannot be described in a header and is not stored; use a "),
    ],
)
def test_messages_say_what_is_not_stored(dtype: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        storable_dtype(dtype)


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype(("<i4", (2,))),
        np.dtype([("a", ("<i4", (2,)), (3,))]),
        np.dtype({"names": [""], "formats": ["V3"]}),
        np.dtype({"names": ["", "a"], "formats": ["V3", "<i4"]}),
        np.dtype(
            {
                "names": [f"f{k}" for k in range(3000)],
                "formats": ["u1"] * 3000,
                "offsets": [2 * k for k in range(3000)],
            }
        ),
    ],
    ids=["sub-array alone", "sub-array twice", "void named ''", "'' first", "3000 gaps"],
)
def test_what_is_accepted_can_be_read_back(dtype: np.dtype[Any]) -> None:
    """Whatever is accepted for writing is read back as it is; what cannot be is a TypeError."""
    try:
        stored = storable_dtype(dtype)
    except TypeError:
        return
    assert through_json(stored) == stored


@pytest.mark.parametrize("depth", range(24))
def test_nesting_is_read_as_deep_as_it_is_written(depth: int) -> None:
    dtype: np.dtype[Any] = np.dtype("<i4")
    for _ in range(depth):
        dtype = np.dtype([("a", dtype)])
    try:
        stored = storable_dtype(dtype)
    except TypeError:
        assert depth > 8
        return
    assert through_json(stored) == stored


@pytest.mark.parametrize(
    "described",
    [
        *("", "<", "i", "i4", "=i4", ">i4", "|i4", "<i4 ", " <i4", "<i4\x00", "<i3", "<i16"),
        *("int", "int32", "float", "object", "O", "|O", "<M8[s]", "<m8", "T", "V", "|V0", "|S0"),
        *("B", "p", "c", "?", "a5", "|a5", "1i4", "(2,)i4", "(2,)<i4", "<i4,<i4", "<i4, <i4"),
        *("<U1000000000", "|V99999999999", "|V" + "9" * 4000, "|V-1", "<f1", "<c2", "{'a': 1}"),
        *("numpy.int32", "__import__('os')", "\ud800", "x" * 100_000, "<i\u0664", "<\uff494"),
        *(None, True, False, 0, 4, 1.5, 10**4000, {}, {"names": ["a"], "formats": ["<i4"]}, []),
        *([[]], [["a"]], ["<i4"], [["<i4"]], [[1, "<i4"]], [[None, "<i4"]], [["a", None]]),
        *([["a", []]], [["a", 4]], [["a", "<i4", 2]], [["a", "<i4", []]], [["a", "<i4", None]]),
        *([["a", "<i4", [0]]], [["a", "<i4", [-1]]], [["a", "<i4", [True]]]),
        *([["a", "<i4", [2.0]]], [["a", "<i4", ["2"]]], [["a", "<i4", [[2]]]]),
        *([["a", "<i4", [2], 1]], [["a", "<i4", [1] * 65]], [["a", "<i4", [2**30] * 3]]),
        *([["a", "<i4", [2**31 - 1]]], [["a", "<i4", [2**31]]], [["a", "<i4", [10**4000]]]),
        *([["a", "<i4"], ["a", "<i4"]], [["a", ">i4"]], [["a", "i4"]], [[["t", "a"], "<i4"]]),
        *([["a", "|O"]], [["a", [["b", "|O"]]]], [["a", "<i4"], ["", "|V0"]]),
        *([["a", "<i4"], ["", "|V1"], ["", "|V1"]], [["", "|V3", [2]], ["a", "<i4"]]),
        [[f"f{k}", "|u1"] for k in range(100_000)],
    ],
    ids=lambda described: ascii(described)[:32],
)
def test_hostile_descriptions_are_refused(described: Any) -> None:
    with pytest.raises(
        DamagedFileError,
        match=r"^guideloom\.json: element_type is .*; expected a (little-endian )?NumPy dtype "
        r"description\. The file is damaged or was not written by GuideLoom$",
    ) as caught:
        read(described)
    assert len(str(caught.value)) < 300


@settings(max_examples=300, deadline=None)
@given(
    described=st.recursive(
        st.sampled_from(["<i4", "|V2", "|u1", ">i2", "O", "", "a", 0, 1, 2, -1, None, True]),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=12,
    )
)
def test_whatever_is_read_says_what_it_said(described: Any) -> None:
    """A description is refused, or is the one that the dtype is written as."""
    try:
        dtype = read(described)
    except DamagedFileError:
        return
    assert dtype_to_json(dtype) == described
    assert dtype.itemsize == size_by_the_format(described)


def value_bytes(dtype: np.dtype[Any]) -> list[bool]:
    """For each byte of an element, whether it belongs to a value; the rest is padding."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return value_bytes(base) * int(np.prod(shape))
    if dtype.names is None or dtype.fields is None:
        return [True] * dtype.itemsize
    used = [False] * dtype.itemsize
    for name in dtype.names:
        inner, offset = dtype.fields[name][:2]
        used[offset : offset + inner.itemsize] = value_bytes(inner)
    return used


@settings(max_examples=300, deadline=None)
@given(dtype=dtypes, n=st.integers(0, 4), filler=st.sampled_from([1, 0x41, 0xFF]))
def test_what_was_in_memory_as_padding_is_not_stored(
    dtype: np.dtype[Any], n: int, filler: int
) -> None:
    stored = storable_dtype(dtype)
    raw = np.full((n, stored.itemsize), filler, dtype=np.uint8)
    if has_padding(stored):
        used = np.array(value_bytes(stored))
        raw[:, used] = 0
        clean = zero_padded(raw.reshape(-1).view(stored))
        assert clean.dtype == stored
        assert clean.shape == (n,)
        assert not clean.view(np.uint8).any()
    assert has_padding(stored) == (not all(value_bytes(stored)))


@settings(max_examples=300, deadline=None)
@given(dtype=structured_dtypes, seed=st.integers(0, 2**32 - 1))
def test_clearing_the_padding_keeps_every_value(dtype: np.dtype[Any], seed: int) -> None:
    values = random_values(storable_dtype(dtype), 3, np.random.default_rng(seed))
    for layout in (values, values[::-1], np.repeat(values, 2)[::2]):
        clean = zero_padded(layout)
        assert clean.flags.c_contiguous
        assert_same_values(clean, layout)

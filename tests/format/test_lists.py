"""Lists from JSON and names of files as arrays, against the same in plain Python."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guideloom_format import _lists, _names

HIGH = [0, 1, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1]
numbers = st.integers(-3, 3) | st.sampled_from([x + d for x in HIGH for d in (-1, 0, 1)])
anything = numbers | st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.just(10**30)


class Number(int):
    """Not what a parser of JSON gives."""


def first_wrong(values: list[Any], right: Any) -> int:
    return next((k for k, value in enumerate(values) if not right(value)), -1)


@given(values=st.lists(numbers, max_size=8) | st.lists(anything, max_size=8), high=numbers)
def test_integers(values: list[Any], high: int) -> None:
    high = max(0, min(high, 2**63 - 1))
    found, bad = _lists.integers(values, high)
    assert bad == first_wrong(values, lambda v: type(v) is int and 0 <= v <= high)
    assert found.dtype == np.int64
    if bad < 0:
        assert found.tolist() == values


def test_a_subclass_of_int_is_none() -> None:
    assert _lists.integers([1, Number(1)], 5)[1] == 1


hexadecimal = st.text("0123456789abcdef", min_size=16, max_size=16)


@given(st.lists(hexadecimal | st.text("0123456789abcdefABg\ud800é", max_size=17), max_size=6))
def test_tokens(values: list[str]) -> None:
    found, bad = _lists.tokens(values)
    assert bad == first_wrong(values, lambda v: re.fullmatch(r"[0-9a-f]{16}", v) is not None)
    if bad < 0:
        assert found.dtype == np.uint64
        assert found.tolist() == [int(value, 16) for value in values]


component = st.text("aZ09._-", min_size=1, max_size=4)
stem = st.lists(component, min_size=1, max_size=4).map("/".join)
STEM = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*){0,2}")


@given(st.lists(stem | st.text("a/.\\é\ud800\0", max_size=5), max_size=5), st.integers(1, 12))
def test_stems(values: list[str], most: int) -> None:
    found, bad = _lists.stems(values, most, 3)
    assert bad == first_wrong(values, lambda v: len(v) <= most and STEM.fullmatch(v) is not None)
    if bad < 0:
        assert found.tolist() == [value.encode("ascii") for value in values]


@pytest.mark.parametrize("value", [None, 5, b"0123456789abcdef", ["0123456789abcdef"]])
def test_what_is_no_string_is_wrong(value: Any) -> None:
    assert _lists.tokens(["0" * 16, value])[1] == 1
    assert _lists.stems(["a", value], 99, 3)[1] == 1
    assert _lists.commit_places([value], 10, 10).tolist() == []


digits = st.text("0123456789", min_size=1, max_size=11)
name = st.builds("{}-{}{}".format, digits, digits, st.sampled_from([".json", ".json/", ".jso", ""]))
number = st.sampled_from([0, 7, 10**7, 10**9, 10**9 + 1, 10**10])
right = st.builds("{:07d}-{:04d}.json".format, number, st.sampled_from([0, 9999, 10**6, 10**6 + 1]))


@given(st.lists(name | right | st.text(max_size=20), max_size=8))
def test_commit_places(names: list[str]) -> None:
    """As `parse_commit_name` reads them; a folder of such a name counts."""
    parsed = [_names.parse_commit_name(name.removesuffix("/")) for name in names]
    parts = _names.MAX_PART + 1
    expected = [shard * parts + part for shard, part in filter(None, parsed)]
    assert _lists.commit_places(names, _names.MAX_SHARD + 1, parts).tolist() == expected


@pytest.mark.parametrize("function", ["integers", "tokens", "stems", "commit_places"])
def test_only_lists_are_taken(function: str) -> None:
    arguments = {"integers": (1,), "tokens": (), "stems": (9, 3), "commit_places": (9, 9)}
    for value in (None, (1,), "ab"):
        with pytest.raises(TypeError):
            getattr(_lists, function)(value, *arguments[function])

"""StreamIndex against a list of all elements: which part, and where in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from guideloom_format import StreamIndex

Rows = list[list[int]]
INTEGER_TYPES = [np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)]


def plan_by_elements(
    lengths: Sequence[int], ids: Iterable[int], length: int, itemsize: int, stride: int = 1
) -> Rows:
    """The reference: walk over every element of every window."""
    elements = [(part, k) for part, count in enumerate(lengths) for k in range(count)]
    rows: Rows = []
    out = 0
    for window in ids:
        inside = elements[window * stride : window * stride + length]
        assert len(inside) == length
        for part, run in itertools.groupby(inside, key=lambda element: element[0]):
            offsets = [k for _, k in run]
            rows.append([part, offsets[0] * itemsize, len(offsets) * itemsize, out])
            out += len(offsets) * itemsize
    return rows


def plan_by_borders(
    lengths: Sequence[int], ids: Iterable[int], length: int, itemsize: int, stride: int = 1
) -> Rows:
    """The reference for streams too long to list: intervals, in Python's integers."""
    rows: Rows = []
    out = 0
    for window in ids:
        begin, end, part_begin = window * stride, window * stride + length, 0
        for part, count in enumerate(lengths):
            low, high = max(begin, part_begin), min(end, part_begin + count)
            if low < high:
                rows.append([part, (low - part_begin) * itemsize, (high - low) * itemsize, out])
                out += (high - low) * itemsize
            part_begin += count
    return rows


cuts = st.lists(st.integers(0, 5) | st.just(0), max_size=40)


@settings(max_examples=300, deadline=None)
@given(
    lengths=cuts,
    length=st.integers(0, 60),
    stride=st.integers(1, 9),
    itemsize=st.integers(1, 70),
    seed=st.integers(0, 2**32 - 1),
)
def test_plans_are_those_of_the_reference(
    lengths: list[int], length: int, stride: int, itemsize: int, seed: int
) -> None:
    """Any cut, empty parts anywhere; any order of windows, repeated or not."""
    index = StreamIndex(lengths)
    assert len(index) == index.total == sum(lengths)
    count = len(range(0, sum(lengths) - length + 1, stride))
    assert index.count(length, stride) == count
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, count, size=rng.integers(0, 30)) if count else np.zeros(0, np.int64)
    rows = index.plan(ids, length, itemsize, stride)
    assert rows.dtype == np.int64
    assert rows.shape[1:] == (4,)
    assert rows.tolist() == plan_by_elements(lengths, ids.tolist(), length, itemsize, stride)


def test_every_window_of_every_small_cut() -> None:
    """All cuts into up to 4 parts of 0 to 3 elements, all lengths, strides 1 to 3, all windows."""
    windows = 0
    for parts in range(5):
        for lengths in itertools.product(range(4), repeat=parts):
            index = StreamIndex(lengths)
            for length in range(sum(lengths) + 2):
                for stride in (1, 2, 3):
                    ids = range(len(range(0, sum(lengths) - length + 1, stride)))
                    assert index.count(length, stride) == len(ids)
                    rows = index.plan(list(ids), length, 3, stride)
                    assert rows.tolist() == plan_by_elements(lengths, ids, length, 3, stride)
                    windows += len(ids)
    assert windows > 15_000


@settings(max_examples=300, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 3) | st.integers(0, 2**59), min_size=1, max_size=8),
    length=st.integers(1, 20) | st.integers(1, 2**58),
    near=st.lists(st.tuples(st.integers(0, 8), st.integers(-25, 25)), max_size=6),
)
def test_huge_streams_are_exact(
    lengths: list[int], length: int, near: list[tuple[int, int]]
) -> None:
    """Windows near the borders of parts, anywhere below 2**62."""
    index = StreamIndex(lengths)
    count = index.count(length, 1)
    assert count == max(0, sum(lengths) - length + 1)
    borders = [0, *itertools.accumulate(lengths)]
    ids = [borders[k % len(borders)] + off for k, off in near]
    ids = [window for window in ids if 0 <= window < count][: 2**62 // length]
    assert index.plan(ids, length, 1).tolist() == plan_by_borders(lengths, ids, length, 1)


@pytest.mark.parametrize("itemsize", [1, 2, 3, 4, 5, 8, 16, 1000])
@pytest.mark.parametrize("power", [31, 32, 33, 40, 41, 42, 50])
def test_offsets_beyond_32_bits_are_exact(power: int, itemsize: int) -> None:
    """Elements beyond 2**31, bytes beyond 2**32 and 2**41: at, before and after each power."""
    lengths = [7, 2**power, 0, 2**power - 1, 2**power + 9]
    index = StreamIndex(lengths)
    starts = [
        border + off
        for border in (0, 2**31, 2**32, 2**power, 2 * 2**power, 3 * 2**power)
        for off in range(-9, 10)
    ]
    for stride in (1, 3, 2048):
        ids = [s // stride for s in starts if 0 <= s // stride < index.count(11, stride)]
        rows = index.plan(ids, 11, itemsize, stride)
        assert rows.tolist() == plan_by_borders(lengths, ids, 11, itemsize, stride)
        assert rows[:, 1].max() > itemsize * 2 ** (power - 1)


def test_the_largest_stream() -> None:
    index = StreamIndex([2**61, 0, 2**61])
    assert len(index) == 2**62
    assert index.count(2**62, 1) == 1
    assert index.count(1, 1) == 2**62
    assert index.count(1, 2**62) == 1
    assert index.count(0, 1) == 2**62 + 1
    assert index.plan([2**62 - 1], 1, 1).tolist() == [[2, 2**61 - 1, 1, 0]]
    assert index.plan([0], 2**62, 1).tolist() == [[0, 0, 2**61, 0], [2, 0, 2**61, 2**61]]
    assert index.plan([1], 1, 1, 2**61).tolist() == [[2, 0, 1, 0]]


@pytest.mark.parametrize("parts", [1, 2, 10, 1000, 20_000])
def test_windows_across_many_parts(parts: int) -> None:
    """More segments than windows: the rows do not fit at the first try."""
    lengths = [k % 3 for k in range(parts)]
    index = StreamIndex(lengths)
    total = sum(lengths)
    for length in {1, total // 2, total} - {0}:
        if total >= length:
            ids = [0, total - length, (total - length) // 2]
            expected = plan_by_elements(lengths, ids, length, 5)
            assert index.plan(ids, length, 5).tolist() == expected


@pytest.mark.parametrize("dtype", INTEGER_TYPES, ids=str)
def test_ids_and_lengths_of_every_integer_type(dtype: np.dtype[Any]) -> None:
    lengths = [5, 0, 3, 100, 1]
    expected = plan_by_elements(lengths, [3, 0, 90, 3], 9, 2)
    index = StreamIndex(np.array(lengths, dtype=dtype))
    for order in "<>":
        ids = np.array([3, 0, 90, 3], dtype=dtype.newbyteorder(order))  # type: ignore[arg-type]
        assert index.plan(ids, 9, 2).tolist() == expected
        assert index.plan(list(ids), 9, 2).tolist() == expected
    asked = (dtype.type(9), dtype.type(2), dtype.type(1))
    assert index.plan(ids, *asked).tolist() == expected
    assert index.count(dtype.type(9), dtype.type(3)) == index.count(9, 3)


def test_narrow_integers_do_not_wrap_around() -> None:
    """A length of type int8 or int32 times many windows exceeds its own type."""
    lengths = [2**40, 2**40]
    index = StreamIndex(lengths)
    ids = [2**20 - 1, 5, 2**19] * 100
    kinds: list[tuple[Any, int]] = [(np.int8, 100), (np.uint8, 200), (np.int16, 2**14)]
    for kind, length in [*kinds, (np.int32, 2**30)]:
        rows = index.plan(ids, kind(length), kind(100), kind(120))
        assert rows.tolist() == plan_by_borders(lengths, ids, length, 100, 120)


def id_arrays() -> dict[str, NDArray[np.int64]]:
    ids = np.array([4, 0, 7, 7, 2, 1], dtype=np.int64)
    frozen = ids.copy()
    frozen.flags.writeable = False
    raw = np.zeros(6 * 8 + 1, dtype=np.uint8)
    shifted = raw[1:].view(np.int64)
    shifted[:] = ids
    columns = np.zeros((6, 3), dtype=np.int64)
    columns[:, 1] = ids
    fields = np.zeros(6, dtype=[("x", "u1"), ("id", "i8")])
    fields["id"] = ids
    return {
        "plain": ids,
        "read-only": frozen,
        "every second": np.repeat(ids, 2)[::2],
        "backward": ids[::-1].copy()[::-1],
        "a column": columns[:, 1],
        "unaligned": shifted,
        "of a dtype made little-endian": ids.astype(ids.dtype.newbyteorder("<")),
        "a packed field": fields["id"],
        "a matrix's row": np.asfortranarray(np.stack([ids, ids]))[0],
    }


@pytest.mark.parametrize("name", id_arrays())
def test_ids_of_every_layout(name: str) -> None:
    ids = id_arrays()[name]
    expected = plan_by_elements([5, 0, 8], ids.tolist(), 5, 3)
    assert StreamIndex([5, 0, 8]).plan(ids, 5, 3).tolist() == expected
    assert StreamIndex(ids).total == ids.sum()


@pytest.mark.parametrize("ids", [[], (), np.zeros(0, dtype=np.uint8), range(0)], ids=repr)
@pytest.mark.parametrize("lengths", [[], [0], [0, 0], [5]])
def test_no_windows_make_no_rows(ids: Any, lengths: list[int]) -> None:
    assert StreamIndex(lengths).plan(ids, 3, 4).shape == (0, 4)


def test_windows_without_elements_make_no_rows() -> None:
    assert StreamIndex([]).plan([0, 0], 0, 4).shape == (0, 4)
    assert StreamIndex([2]).plan([2, 0], 0, 4).shape == (0, 4)


@pytest.mark.parametrize("window", [-(2**63), -1, 5, 6, 2**31, 2**62, 2**63 - 1])
@pytest.mark.parametrize("position", [0, 1, 4])
def test_a_window_outside_is_named(window: int, position: int) -> None:
    ids = [0, 4, 0, 4, 2]
    ids[position] = window
    with pytest.raises(
        IndexError,
        match=rf"^window {window} at position {position} is outside \[0, 5\): the stream has 8 "
        r"elements, a window 4, with stride 1$",
    ):
        StreamIndex([5, 0, 3]).plan(ids, 4, 2)


@pytest.mark.parametrize(
    "lengths, length, stride, count",
    [([], 1, 1, 0), ([0, 0], 1, 1, 0), ([5], 6, 1, 0), ([5], 2, 4, 1), ([5, 5], 5, 5, 2)],
)
def test_the_first_window_outside_is_the_count(
    lengths: list[int], length: int, stride: int, count: int
) -> None:
    index = StreamIndex(lengths)
    assert index.plan(range(count), length, 2, stride)[:, 2].sum() == count * length * 2
    with pytest.raises(
        IndexError,
        match=rf"^window {count} at position {count} is outside \[0, {count}\): the stream has "
        rf"{sum(lengths)} elements, a window {length}, with stride {stride}$",
    ):
        index.plan(range(count + 1), length, 2, stride)


@pytest.mark.parametrize(
    "ids, dtype",
    [
        ([0.0], "float64"),
        ([True], "bool"),
        (["0"], "<U1"),
        ([None], "object"),
        (np.zeros(0), "float64"),
        (np.zeros(1, dtype=np.float16), "float16"),
        (np.zeros(1, dtype="M8[s]"), r"datetime64\[s\]"),
    ],
)
def test_ids_and_lengths_that_are_no_integers_are_refused(ids: Any, dtype: str) -> None:
    with pytest.raises(TypeError, match=rf"^ids has dtype {dtype}; expected integers$"):
        StreamIndex([5]).plan(ids, 1, 1)
    with pytest.raises(TypeError, match=rf"^lengths has dtype {dtype}; expected integers$"):
        StreamIndex(ids)


@pytest.mark.parametrize("dtype", ["i8", "i4", "u8"])
@pytest.mark.parametrize("shape", [(), (1, 1), (0, 1), (1, 2, 3)])
def test_ids_and_lengths_that_are_no_vector_are_refused(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, dtype=dtype)
    with pytest.raises(ValueError, match=rf"^ids has {len(shape)} dimensions; expected 1$"):
        StreamIndex([5]).plan(array, 1, 1)
    with pytest.raises(ValueError, match=rf"^lengths has {len(shape)} dimensions; expected 1$"):
        StreamIndex(array)


@pytest.mark.parametrize("length", [-1, -(2**63)])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_a_negative_length_is_refused(length: int, k: int) -> None:
    lengths = [3, 3, 3]
    lengths[k] = length
    with pytest.raises(ValueError, match=rf"^lengths holds {length}; expected 0 or more$"):
        StreamIndex(lengths)


@pytest.mark.parametrize(
    "lengths",
    [
        [2**62 + 1],
        [2**63 - 1],
        [2**62, 1],
        [1, 0, 2**62],
        [2**61] * 2 + [1],
        *([2**62] * k for k in range(2, 12)),
        *([2**63 - 1] * k for k in range(2, 12)),
        [2**60] * 17,
    ],
    ids=lambda lengths: f"{len(lengths)} of {max(lengths)}",
)
def test_more_than_2_to_the_62_elements_are_refused(lengths: list[int]) -> None:
    """Also where the sum goes round in 64 bits, once or several times."""
    with pytest.raises(ValueError, match=r"^the parts hold more than 2\*\*62 elements together$"):
        StreamIndex(lengths)


@pytest.mark.parametrize(
    "lengths, windows, length, itemsize",
    [
        ([2**62], 1, 1, 2),
        ([2**60], 1, 1, 5),
        ([2**40], 2**15, 2**40, 2**8),
        ([2**61], 3, 2**61, 1),
        ([2**40], 64, 2**40, 2**20),
        ([5], 1, 1, 2**62),
        ([5], 1, 1, 0),
        ([5], 1, 1, -1),
        ([5], 0, 0, -1),
    ],
)
def test_more_than_2_to_the_62_bytes_are_refused(
    lengths: list[int], windows: int, length: int, itemsize: int
) -> None:
    with pytest.raises(
        ValueError,
        match=rf"^{windows} windows of {length} elements of {itemsize} bytes, from a stream of "
        rf"{sum(lengths)} elements: more than 2\*\*62 bytes, or a size below 1$",
    ):
        StreamIndex(lengths).plan([0] * windows, length, itemsize)

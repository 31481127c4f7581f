"""`SpanSearch` and `pieces` against a comparison of every window with every span."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format.span_oracle import Parts, Span, Stream, expected, find, from_rows, rows_of
from guideloom_format import SpanIndex, StreamIndex

sizes = st.sampled_from([0, 0, 1, 2, 9])
few_spans = st.lists(st.tuples(st.sampled_from([0, 0, 1, 1, 2, 3, 8]), sizes), max_size=9)
a_run_of_empty_ones = st.builds(
    lambda before, run, size, after: [*before, *[(0, size)] * run, *after],
    few_spans,
    st.sampled_from([90, 96, 97, 200, 1500]),
    st.integers(0, 1),
    few_spans,
)
one_per_element = st.builds(
    lambda count, size: [(1, size)] * count, st.integers(0, 400), st.integers(0, 2)
)
a_giant = st.builds(
    lambda before, size, after: [(1, 1)] * before + [(size, 5)] + [(1, 0), (0, 3)] * after,
    st.integers(0, 150),
    st.integers(1, 10**6),
    st.integers(0, 150),
)
any_parts = st.lists(few_spans | a_run_of_empty_ones | one_per_element | a_giant, max_size=5)


def windows_of(parts: Parts, length: int, stride: int, seed: int) -> list[int]:
    """Ids in any order, some of them twice, with those at the borders of parts."""
    count = StreamIndex(Stream.of(parts).lengths).count(length, stride)
    if not count:
        return []
    rng = np.random.default_rng(seed)
    borders = np.cumsum(Stream.of(parts).lengths)[:, None] + np.arange(-length - 1, 2)
    near = np.unique(np.clip(borders // stride, 0, count - 1))
    drawn = rng.integers(0, count, size=rng.integers(0, 20))
    ids = np.concatenate([rng.permutation(near)[:15], drawn, drawn[:3]])
    return [int(window) for window in rng.permutation(ids)]


@settings(max_examples=300, deadline=None)
@given(
    parts=any_parts,
    length=st.integers(0, 12) | st.sampled_from([50, 97, 300, 5000]),
    stride=st.integers(1, 9),
    itemsize=st.integers(1, 70),
    unique=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_pieces_are_those_of_the_reference(
    parts: Parts, length: int, stride: int, itemsize: int, unique: bool, seed: int
) -> None:
    stream, answer = Stream.of(parts), from_rows(rows_of(parts))
    ids = windows_of(parts, length, stride, seed)
    right = expected(parts, ids, length, stride=stride, unique=unique)
    found = find(stream, answer, ids, length, stride=stride, itemsize=itemsize, unique=unique)
    assert found == right
    index = stream.index()
    for start in ids[:5]:
        find(stream, answer, [start], length, stride=stride, index=index)
    assert find(stream, answer, ids, length, stride=stride, unique=unique, index=index) == right


def test_every_window_of_every_small_stream() -> None:
    """All streams of two parts of up to three spans of 0, 1 or 3 elements; all windows at once."""
    windows = 0
    contents = [
        [(count, k + 1) for k, count in enumerate(counts)]
        for spans in range(4)
        for counts in itertools.product((0, 1, 3), repeat=spans)
    ]
    for parts in itertools.product(contents, repeat=2):
        stream, answer = Stream.of(parts), from_rows(rows_of(parts))
        total = sum(stream.lengths)
        for length in {1, 2, 4, total}:
            ids = [*range(total - length + 1), *range(0, total - length + 1, 2)]
            for unique in (False, True):
                found = find(stream, answer, ids, length, unique=unique)
                assert found == expected(parts, ids, length, unique=unique)
                windows += len(ids)
    assert windows > 50_000


LAYOUTS: dict[str, list[Span]] = {
    "one span": [(20_000, 7)],
    "one element each": [(1, k % 3) for k in range(20_000)],
    "a giant, then tiny ones": [(10**9, 3), *[(1, 1)] * 9000],
    "tiny ones, then a giant": [*[(1, 1)] * 9000, (10**9, 3)],
    "giants between tiny ones": [*[(1, 1)] * 3000, (10**9, 3)] * 3,
    "empty ones first": [*[(0, 2)] * 9000, (50, 1), (50, 1)],
    "empty ones last": [(50, 1), (50, 1), *[(0, 2)] * 9000],
    "empty ones in the middle": [(30, 1), *[(0, 2)] * 9000, (1, 1), *[(0, 0)] * 5000, (30, 4)],
    "empty ones between all": [(k % 2, 1) for k in range(9000)],
    "twice as long each": [(2**k, k) for k in range(40)],
    "half as long each": [(2 ** (40 - k), k) for k in range(40)],
    "more each": [(k, 1) for k in range(9000)],
    "most in few": [(10**6 if k % 1000 == 999 else 1, 1) for k in range(9000)],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_that_mislead_a_guess(layout: str) -> None:
    """Windows at both ends, around big spans, and anywhere; of one element and across thousands."""
    spans = LAYOUTS[layout]
    parts = [[(5, 1)], spans, [], [(0, 1)] * 200, [(3, 9)]]
    rows = rows_of(parts)
    stream = Stream.of(parts)
    total = sum(stream.lengths)
    rng = np.random.default_rng(7)
    ends = rows[1][:, 0] + 5
    borders = ends[np.argsort(-np.diff(ends, prepend=5))[:3]]
    places = [*rng.integers(0, total, 2), *rng.choice(ends, 2), *borders, 0, 5, total]
    for length in (1, 7, min(500, total)):
        starts = {int(place) + shift for place in places for shift in (-length, -1, 0)}
        ids = [start for start in sorted(starts) if 0 <= start <= total - length]
        assert ids
        for unique in (False, True):
            found = find(stream, from_rows(rows), ids, length, unique=unique)
            assert found == expected(parts, ids, length, unique=unique)
            assert found.rounds <= 2 + np.log2(len(spans) + 1) + 4


def test_documents_of_usual_lengths_take_few_rounds() -> None:
    """A guess by interpolation misses by the square root of the rows, and the next is there."""
    rng = np.random.default_rng(1)
    lengths = rng.lognormal(6.5, 1.2, size=1_000_000).astype(np.int64)
    rows = [np.stack([np.cumsum(lengths), np.arange(1, 1_000_001)], axis=1)]
    total = int(lengths.sum())
    stream = Stream([lengths.size], [total], [lengths.size])
    ids = rng.integers(0, total - 4096, 300).tolist()
    found = find(stream, from_rows(rows), ids, 4096, unique=True)
    for start, window in zip(ids, found.windows, strict=True):
        spans = [span for _, _, span, _ in window]
        first = int(np.searchsorted(rows[0][:, 0], start, side="right"))
        last = int(np.searchsorted(rows[0][:, 0], start + 4096, side="left"))
        assert spans == [span for span in range(first, last + 1) if lengths[span]]
    assert found.rounds <= 5
    assert found.rows <= 4 * 96 * len(ids)


def test_a_payload_that_several_windows_touch_comes_once() -> None:
    parts = [[(4, 3), (0, 8), (6, 2)], [(10, 5)]]
    stream, answer = Stream.of(parts), from_rows(rows_of(parts))
    found = find(stream, answer, [5, 0, 5, 9], 8, unique=True)
    assert found.windows == [
        [(0, 5, 2, 0), (5, 3, 3, 1)],
        [(0, 4, 0, 2), (4, 4, 2, 0)],
        [(0, 5, 2, 0), (5, 3, 3, 1)],
        [(0, 1, 2, 0), (1, 7, 3, 1)],
    ]
    assert found.payloads == [(0, 2), (1, 5), (0, 3)]
    assert found.reads == [(0, 11, 2, 0), (1, 0, 5, 2), (0, 0, 3, 7)]
    found = find(stream, answer, [5, 0], 8, unique=False)
    assert found.windows == [[(0, 5, 2, 0), (5, 3, 3, 1)], [(0, 4, 0, 2), (4, 4, 2, 3)]]
    assert found.payloads == [(0, 2), (1, 5), (0, 3), (0, 2)]


def test_payloads_that_are_neighbours_are_one_read() -> None:
    """Also across spans without elements that have no payload; not across one that has bytes."""
    parts = [[(1, 2), (0, 0), (1, 3), (1, 0), (0, 1), (1, 4), (1, 1)]]
    found = find(Stream.of(parts), from_rows(rows_of(parts)), [0], 5)
    assert found.reads == [(0, 0, 5, 0), (0, 6, 5, 5)]


@pytest.mark.parametrize("windows", [0, 1, 3])
@pytest.mark.parametrize("parts", [[], [[]], [[(0, 3)], []], [[(2, 1)]]])
def test_windows_without_elements_touch_nothing(parts: Parts, windows: int) -> None:
    found = find(Stream.of(parts), from_rows(rows_of(parts)), [0] * windows, 0)
    assert found.windows == [[]] * windows
    assert not found.payloads
    assert not found.reads
    assert found.rounds == 0


def test_an_index_of_spans() -> None:
    index = SpanIndex([2, 0, 3], [10, 0, 5], [7, 0, 0])
    assert len(index) == index.total == 5
    assert index.bases.tolist() == [0, 2, 2]
    assert index.counts.tolist() == [2, 0, 3]
    assert len(SpanIndex([], [], [])) == 0
    with pytest.raises(ValueError, match="counts, lengths and payload_sizes differ in length"):
        SpanIndex([1, 2], [1], [1, 2])
    with pytest.raises(ValueError, match="lengths holds -1; expected 0 or more"):
        SpanIndex([-1], [1], [1])

"""`SpanSearch` over damaged rows: a named error, or an answer that is what the rows say.

The search reads only some of the rows, so it cannot see all damage; `verify` does that. What it
must not do: read outside the file, go on for ever, or return pieces that do not fit their window.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from format.span_oracle import Answer, Found, Parts, Span, Stream, find, from_rows, probed, rows_of
from guideloom_format import SpanSearch, StreamIndex, pieces
from guideloom_format._spans import WrongSpansError

Rows = Sequence[NDArray[np.int64]]

SPECIAL = [0, 1, -1, 2**31, 2**32, -(2**31), 2**62, 2**62 + 1, 2**63 - 1, -(2**63), -(2**62)]


def check_consistent(
    found: Found, stream: Stream, rows: Rows, ids: Sequence[int], length: int
) -> None:
    """Every piece is what the rows say of its span, and the pieces of a window cover it."""
    starts = np.cumsum([0, *stream.lengths]).tolist()
    bases = np.cumsum([0, *stream.counts]).tolist()
    for start, window in zip(ids, found.windows, strict=True):
        at = 0
        for begin, count, span, payload in window:
            part = int(np.searchsorted(bases, span, side="right")) - 1
            row = span - bases[part]
            first = int(rows[part][row - 1, 0]) if row else 0
            behind = int(rows[part][row, 0])
            low = max(starts[part], start)
            high = min(starts[part + 1], start + length)
            assert begin == at == max(starts[part] + first, low) - start
            assert begin + count == min(starts[part] + behind, high) - start
            assert count > 0
            before = int(rows[part][row - 1, 1]) if row else 0
            assert found.payloads[payload] == (part, int(rows[part][row, 1]) - before)
            at += count
        assert at == length
        spans = [span for _, _, span, _ in window]
        assert spans == sorted(set(spans))
    at = 0
    for part, offset, nbytes, target in found.reads:
        assert 0 <= offset < offset + nbytes <= stream.payload_sizes[part]
        assert target == at
        at += nbytes
    assert at == sum(size for _, size in found.payloads)


def try_damaged(
    stream: Stream, rows: Rows, ids: Sequence[int], length: int, answer: Answer | None = None
) -> bool:
    """Whether the damage was seen; anything but an error or a consistent answer fails."""
    try:
        found = find(stream, answer or from_rows(rows), ids, length, unique=len(ids) % 2 == 0)
    except WrongSpansError as wrong:
        check_named(wrong, stream)
        return True
    check_consistent(found, stream, rows, ids, length)
    return False


def check_named(wrong: WrongSpansError, stream: Stream) -> None:
    """Rows that are there."""
    assert 0 <= wrong.part < len(stream.counts)
    assert 0 <= wrong.first <= wrong.last < stream.counts[wrong.part]
    rows = f"rows {wrong.first} to {wrong.last}"
    assert str(wrong) == f"{rows} of part {wrong.part} are damaged"


spans = st.lists(
    st.tuples(st.sampled_from([0, 1, 1, 2, 5, 900]), st.sampled_from([0, 1, 4])), max_size=12
) | st.builds(lambda count, size: [(1, size)] * count, st.integers(0, 300), st.integers(0, 1))
changes = st.lists(
    st.tuples(
        st.integers(0, 10**6),
        st.integers(0, 1),
        st.sampled_from(["set", "add", "bit", "like"]),
        st.sampled_from(SPECIAL) | st.integers(-3, 3),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=500, deadline=None)
@given(
    parts=st.lists(spans, min_size=1, max_size=3),
    changes=changes,
    length=st.integers(1, 30) | st.just(400),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_change_of_any_rows(
    parts: Parts, changes: list[tuple[int, int, str, int]], length: int, seed: int
) -> None:
    stream, rows = Stream.of(parts), rows_of(parts)
    count = StreamIndex(stream.lengths).count(length, 1)
    places = [(part, k) for part, content in enumerate(parts) for k in range(len(content))]
    if not count or not places:
        return
    for place, column, how, value in changes:
        part, k = places[place % len(places)]
        if how == "set":
            rows[part][k, column] = value
        elif how == "add":
            rows[part][k, column] += min(max(value, -3), 3)
        elif how == "bit":
            rows[part][k, column] ^= np.int64(1) << np.int64(value % 63)
        else:
            rows[part][k, column] = rows[part][value % len(parts[part]), column]
    ids = np.random.default_rng(seed).integers(0, count, 6).tolist()
    for some in (ids, ids[:1]):
        try_damaged(stream, rows, some, length)


def one_by_one(part: Sequence[Span]) -> tuple[int, int]:
    """Every bit of every row of a part, with every window of three lengths: (tried, seen)."""
    parts = [[(2, 1)], part, [(1, 2)]]
    stream, rows = Stream.of(parts), rows_of(parts)
    total = sum(stream.lengths)
    tried = seen = 0
    for k, column, bit in np.ndindex(len(part), 2, 64):
        intact = rows[1][k, column]
        rows[1].view(np.uint64)[k, column] ^= np.uint64(1) << np.uint64(bit)
        seen_here = False
        for length in {1, 3, total}:
            for start in range(total - length + 1):
                seen_here |= try_damaged(stream, rows, [start], length)
        rows[1][k, column] = intact
        tried += 1
        seen += seen_here
    return tried, seen


def test_every_bit_of_every_row() -> None:
    """Windows over the whole stream read every row, so what is not seen are numbers that may be."""
    for part in ([(5, 3)], [(2, 1), (0, 2), (3, 0)], [(0, 0), (4, 4), (0, 1), (4, 4)]):
        tried, seen = one_by_one(part)
        assert tried == 128 * len(part)
        assert seen >= tried - 4 * len(part)
    assert one_by_one([(5, 3)]) == (128, 128)


SHAPES: dict[str, NDArray[np.int64]] = {
    "zeros": np.zeros((1000, 2), dtype=np.int64),
    "ones in every bit": np.full((1000, 2), -1, dtype=np.int64),
    "largest": np.full((1000, 2), 2**63 - 1, dtype=np.int64),
    "least": np.full((1000, 2), -(2**63), dtype=np.int64),
    "backward": np.stack([np.arange(1000)[::-1] * 10, np.arange(1000)], axis=1),
    "columns swapped": np.stack([np.arange(1, 1001), 10 * np.arange(1, 1001)], axis=1),
    "saw teeth": np.stack([10 * (np.arange(1000) % 7), np.arange(1, 1001)], axis=1),
    "one behind": np.stack([10 * np.arange(1000), np.arange(1000)], axis=1),
    "too far": np.stack([20 * np.arange(1, 1001), np.arange(1, 1001)], axis=1),
    "payloads backward": np.stack([10 * np.arange(1, 1001), np.arange(1000)[::-1]], axis=1),
    "big-endian": np.stack([10 * np.arange(1, 1001), np.arange(1, 1001)], axis=1).byteswap(),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_that_is_something_else(shape: str) -> None:
    """Each of a thousand windows of ten elements, alone, and all together."""
    stream = Stream([1000], [10_000], [1000])
    ids = [*range(0, 9991, 37), 9990]
    rows = [SHAPES[shape]]
    seen = [try_damaged(stream, rows, [start], 10) for start in ids]
    assert any(seen) == try_damaged(stream, rows, ids, 10)
    if shape == "too far":  # the rows that are read may be, and the last one is not
        assert not any(seen)
    else:
        assert seen[-1], "the last row was read, and its ends are not the sizes of the files"


@pytest.mark.parametrize("shape", ["zeros", "falling", "negative"])
def test_a_damaged_tail_is_seen_where_it_begins(shape: str) -> None:
    """Not after all of it was read, for each window of the batch: that ends in lack of memory."""
    count, good = 10**7, 10**6
    slope = {"zeros": 0, "falling": -10, "negative": -(2**30)}[shape]

    def answer(_: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        assert numbers.size < 10_000
        ends = np.where(numbers < good, 10 * (numbers + 1), slope * (numbers - good))
        return np.stack([ends, np.zeros_like(ends)], axis=1)

    stream = Stream([count], [10 * count], [0])
    seen = 0
    for start in range(10 * good - 2000, 10 * good + 50, 5):
        try:
            found = find(stream, answer, [start], 20)
        except WrongSpansError:
            seen += 1
        else:
            assert start <= 10 * good - 20
            assert [piece[2] for piece in found.windows[0]] == [
                *range(start // 10, (start + 19) // 10 + 1)
            ]
    assert seen >= 10
    for start in (10 * good - 15_000, 10 * good - 1000):
        with pytest.raises(WrongSpansError):
            find(stream, answer, [start], 20_000)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.sampled_from([1, 5, 97, 10**4, 10**6]))
def test_rows_that_are_others_at_each_read(seed: int, count: int) -> None:
    """As on storage that is being overwritten: whatever comes back, the search ends."""
    rng = np.random.default_rng(seed)
    limits = [(-(2**63), 2**63 - 1), (0, 1000), (490, 510), (0, 2)]
    low, high = limits[seed % len(limits)]

    def answer(_: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = rng.integers(low, high, (numbers.size, 2), endpoint=True)
        return np.sort(rows, axis=0) if seed % 3 == 0 else rows

    stream = Stream([count], [1000], [1000])
    try:
        found = find(stream, answer, [0, 495, 990], 10)
    except WrongSpansError:
        return
    for window in found.windows:
        ends = [0, *(begin + size for begin, size, _, _ in window)]
        assert [begin for begin, _, _, _ in window] == ends[:-1]
        assert ends[-1] == 10
        assert all(0 <= a < b < count for a, b in pairwise([span for _, _, span, _ in window]))
    for _, offset, nbytes, _ in found.reads:
        assert 0 <= offset < offset + nbytes <= 1000


def test_garbage_that_was_read_once_is_not_remembered() -> None:
    """Storage that was overwritten or failed for a moment does not condemn rows for ever."""
    parts: Parts = [[(3, 1)] * 5000]
    stream, rows = Stream.of(parts), rows_of(parts)
    rng = np.random.default_rng(5)
    for _ in range(20):
        index = stream.index()

        def garbage(_: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
            return rng.integers(0, 15_000, (numbers.size, 2))

        for start in rng.integers(0, 14_990, 10).tolist():
            with suppress(WrongSpansError):
                find(stream, garbage, [start], 10, index=index)
        ids = [*range(0, 14_990, 251)]
        found = find(stream, from_rows(rows), ids, 10, index=index)
        check_consistent(found, stream, rows, ids, 10)


def go_on(search: SpanSearch, rows: Rows) -> None:
    while (asked := search.probes()) is not None:
        places = probed(Stream([len(part) for part in rows], [], []), asked)
        search.take(np.concatenate([rows[part][row] for part, row in places]))


def test_a_search_that_met_damage_has_no_pieces() -> None:
    """Also if it is asked again: it stays an error, and no memory is read that is gone."""
    parts: Parts = [[(3, 1), (2, 2)], [(3, 1), (2, 2)]]
    for broken in (0, 1):
        rows = rows_of(parts)
        rows[broken][0, 0] = -5
        search = Stream.of(parts).begin([0, 5], 5)
        for _ in range(3):
            with pytest.raises((WrongSpansError, ValueError), match="damaged"):
                go_on(search, rows)
            with pytest.raises(ValueError, match=r"not found yet|damaged"):
                pieces(search, unique=False)

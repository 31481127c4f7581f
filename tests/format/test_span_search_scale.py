"""`SpanSearch` over more spans than memory holds: rows come from a function of their number."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from format.span_oracle import Found, Parts, Stream, expected, find, from_rows, rows_of
from guideloom_format import SpanIndex

Ends = Callable[[NDArray[np.int64], int], NDArray[np.int64]]
"""From numbers of spans, -1 among them, and the number of spans: elements up to their ends."""


DISTRIBUTIONS: dict[str, Ends] = {
    "even": lambda k, _: 1000 * (k + 1),
    "one element each": lambda k, _: k + 1,
    "a giant first": lambda k, _: np.where(k < 0, 0, 2**61 + k),
    "a giant last": lambda k, n: np.where(k == n - 1, 2**61, k + 1),
    "a giant in the middle": lambda k, n: k + 1 + np.where(k >= n // 2, 2**60, 0),
    "growing": lambda k, n: k + 1 + (((k + 1.0) / n) ** 2 * 2.0**60).astype(np.int64),
    "growing fast": lambda k, n: k + 1 + (((k + 1.0) / n) ** 50 * 2.0**60).astype(np.int64),
    "growing twofold": lambda k, n: np.where(
        k < 0, 0, np.int64(1) << np.clip(k // (n // 60), 0, 61)
    ),
    "shrinking": lambda k, n: k + 1 + (((k + 1.0) / n) ** 0.02 * 2.0**60).astype(np.int64),
    "steps": lambda k, n: (k + 1) + ((k + 1) // (n // 1000)) * 2**40,
    "few among empty ones": lambda k, n: ((k + 1) // (n // 100)) * 7,
}


def bounds(ends: Ends, n: int, k: int) -> tuple[int, int]:
    """First element of span k, and the one behind its last."""
    before, behind = ends(np.array([k - 1, k], dtype=np.int64), n).tolist()
    return before, behind


def check(found: Found, starts: list[int], length: int, ends: Ends, n: int) -> None:
    """Each piece against its own span; together they cover the window."""
    for start, window in zip(starts, found.windows, strict=True):
        at = 0
        for begin, count, span, payload in window:
            first, behind = bounds(ends, n, span)
            assert begin == at == max(first - start, 0)
            assert count == min(behind - start, length) - at
            assert found.payloads[payload] == (0, 3)
            assert count > 0
            at += count
        assert at == length


LONG_RUNS_OF_EMPTY_ONES = {"growing twofold": 60, "few among empty ones": 100}
"""And how many runs. A window at a border reads the whole run, so these are tried with few."""


@pytest.mark.parametrize(
    ("distribution", "power"),
    [
        (name, power)
        for name in DISTRIBUTIONS
        for power in ((17, 21) if name in LONG_RUNS_OF_EMPTY_ONES else (17, 24, 30, 40))
    ],
)
def test_rounds_grow_with_the_logarithm_of_the_spans(distribution: str, power: int) -> None:
    """Few guesses, then halving: no distribution makes a search long."""
    ends, n = DISTRIBUTIONS[distribution], 2**power + 7
    total = bounds(ends, n, n - 1)[1]
    length = 50

    def answer(_: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.stack([ends(numbers, n), 3 * (numbers + 1)], axis=1)

    rng = np.random.default_rng(power)
    spans = [0, 1, n // 2, n - 2, n - 1, *rng.integers(0, n, 20).tolist()]
    places = [bounds(ends, n, span)[0] for span in spans] + rng.integers(0, total, 20).tolist()
    starts = [min(max(place - 2, 0), total - length) for place in places]
    found = find(Stream([n], [total], [3 * n]), answer, starts, length)
    check(found, starts, length, ends, n)
    empty = n // LONG_RUNS_OF_EMPTY_ONES.get(distribution, n)
    at_last = math.ceil(math.log((empty + length) / 8, 4))  # four times as many rows each time
    assert found.rounds <= 4 + math.log2(n / 96) + 2 + at_last
    if distribution in ("even", "one element each"):
        assert found.rounds <= 2


@pytest.mark.parametrize("elements", [1, 10, 500])
def test_windows_of_few_elements_ask_for_few_rows(elements: int) -> None:
    """However many spans without elements there are besides."""
    n = 2**40

    def answer(_: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        assert numbers.size < 10_000
        return np.stack([np.minimum(numbers + 1, 1000), numbers + 1], axis=1)

    found = find(Stream([n], [1000], [n]), answer, [0, 500 - elements, 500], elements)
    assert [len(window) for window in found.windows] == [elements] * 3


def test_landmarks_make_searches_short_and_stay_few() -> None:
    """What searches leave behind narrows the later ones; it does not grow with the spans."""
    rng = np.random.default_rng(1)
    lengths = rng.lognormal(6.5, 1.2, size=1_000_000).astype(np.int64)
    rows = [np.stack([np.cumsum(lengths), np.arange(1, 1_000_001)], axis=1)]
    total = int(lengths.sum())
    stream = Stream([lengths.size], [total], [lengths.size])
    index = stream.index()
    rounds = []
    for _ in range(12):
        ids = rng.integers(0, total - 2048, 1000).tolist()
        found = find(stream, from_rows(rows), ids, 2048, index=index)
        rounds.append(found.rounds)
    assert max(rounds) <= 5
    assert rounds[-1] <= rounds[0]
    assert found == find(stream, from_rows(rows), ids, 2048)
    for counts in ([2**58], [0, 1, 2**50, 2**57], [10] * 100_000, [2**20] * 100_000):
        tracemalloc.start()
        index = SpanIndex(counts, [2**40] * len(counts), [0] * len(counts))
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < 2**20 + 100 * len(counts)


@pytest.mark.parametrize("size", [1, 5])
def test_landmarks_are_exact(size: int) -> None:
    """When all of them are known, one read finds any window, also those that begin at one."""
    parts: Parts = [[(size, 1)] * 3000, [(size, 0)] * 517]
    stream, answer = Stream.of(parts), from_rows(rows_of(parts))
    index = stream.index()
    total = sum(stream.lengths)
    find(stream, answer, range(0, total - 9, 7), 10, index=index)
    starts = range(total - 9)
    found = find(stream, answer, starts, 10, index=index)
    assert found.rounds == 1
    for start in starts:
        touched = [*range(start // size, (start + 9) // size + 1)]
        assert [span for _, _, span, _ in found.windows[start]] == touched
    assert found == find(stream, answer, starts, 10)


def test_a_part_of_as_many_spans_as_there_may_be() -> None:
    """2**58 rows of 16 bytes are 2**62 bytes."""
    n = 2**58
    for ends in (DISTRIBUTIONS["one element each"], DISTRIBUTIONS["a giant in the middle"]):
        total = bounds(ends, n, n - 1)[1]

        def answer(_: int, numbers: NDArray[np.int64], ends: Ends = ends) -> NDArray[np.int64]:
            return np.stack([ends(numbers, n), 3 * (numbers + 1)], axis=1)

        starts = [0, 2**57 - 3, total - 5, 2**31 - 2, 2**32 - 2, 2**53 + 1]
        found = find(Stream([n], [total], [3 * n]), answer, starts, 5)
        check(found, starts, 5, ends, n)
        assert found.rounds <= 64


@settings(max_examples=300, deadline=None)
@given(
    content=st.lists(
        st.tuples(
            st.sampled_from([0, 1, 2, 2**31, 2**32 + 1]) | st.integers(0, 2**59),
            st.sampled_from([0, 1, 2**32 + 1]) | st.integers(0, 2**57),
        ),
        min_size=1,
        max_size=7,
    ),
    cut=st.integers(0, 7),
    length=st.integers(1, 20) | st.integers(1, 2**58),
    near=st.lists(st.tuples(st.integers(0, 8), st.integers(-25, 25)), max_size=6),
    unique=st.booleans(),
)
def test_huge_streams_are_exact(
    content: list[tuple[int, int]],
    cut: int,
    length: int,
    near: list[tuple[int, int]],
    unique: bool,
) -> None:
    """Spans and payloads up to 2**62 together, windows near their borders."""
    parts: Parts = [content[:cut], content[cut:]]
    stream = Stream.of(parts)
    total = sum(stream.lengths)
    borders = [0, *np.cumsum([count for count, _ in content]).tolist()]
    ids = [borders[k % len(borders)] + off for k, off in near]
    ids = [start for start in ids if 0 <= start <= total - length][: 2**62 // length]
    found = find(stream, from_rows(rows_of(parts)), ids, length, unique=unique)
    assert found == expected(parts, ids, length, unique=unique)


def test_values_at_the_limit() -> None:
    """One element, or all of them, at the end of a stream of 2**62; the same for payloads."""
    half = 2**61
    parts: Parts = [[(half, 0), (0, half)], [(half - 1, half - 1), (0, 0), (1, 1)]]
    stream, answer = Stream.of(parts), from_rows(rows_of(parts))
    assert sum(stream.lengths) == sum(stream.payload_sizes) == 2**62
    for length, starts in (
        (1, [0, half - 1, half, 2**62 - 2, 2**62 - 1]),
        (2, [half - 1, 2**62 - 2]),
        (2**62, [0]),
        (half, [0, half, 1]),
    ):
        found = find(stream, answer, starts[: 2**62 // length], length, unique=True)
        assert found == expected(parts, starts[: 2**62 // length], length, unique=True)

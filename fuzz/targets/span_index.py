"""`SpanIndex`, `SpanSearch` and `pieces`: hostile ends of spans, against a search by hand.

Spans come as runs, so that a few bytes make tables of some thousand rows, and the search has to
guess, to halve, and to use landmarks.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from guideloom_format import SpanIndex, SpanSearch, StreamIndex, pieces
from guideloom_format._spans import WrongSpansError
from targets.base import Target, attempt
from targets.taking import Taking, mutate_plain

MOST_ROWS = 3000
MOST_ROUNDS = 500


@dataclass(frozen=True)
class Part:
    """The ends of a part's spans as they are in its file, and what its record says."""

    ends: NDArray[np.int64]
    length: int
    payload_size: int

    @property
    def right(self) -> bool:
        """Whether all ends are as the format's page wants them."""
        before = np.concatenate((np.zeros((1, 2), np.int64), self.ends))
        grows = bool(np.all(before[1:] >= before[:-1]))
        return grows and before[-1].tolist() == [self.length, self.payload_size]


def feed(data: bytes) -> None:
    taking = Taking(data)
    parts = [take_part(taking) for _ in range(1 + taking.below(3))]
    stream = StreamIndex([part.length for part in parts])
    made = attempt(
        lambda: [
            SpanIndex(
                [len(part.ends) for part in parts],
                [part.length for part in parts],
                [part.payload_size for part in parts],
            )
        ],
        ValueError,
    )
    if made is None or not stream.total:
        return
    itemsize = 1 + taking.below(3)
    for _ in range(1 + taking.below(4)):
        length = 1 + taking.below(40)
        count = stream.count(length, 1)
        if not count:
            continue
        starts = np.array(
            [int.from_bytes(taking.take(3), "little") % count for _ in range(taking.below(6))],
            dtype=np.int64,
        )
        plan = stream.plan(starts, length, itemsize)
        search = SpanSearch(made[0], plan, itemsize, length * itemsize, starts.size)
        wrong = run(search, parts)
        if wrong is None:
            check_pieces(search, parts, starts, length, unique=bool(taking.below(2)))
        else:
            part = parts[wrong.part]
            assert not part.right
            assert 0 <= wrong.first <= wrong.last < len(part.ends)


def take_part(taking: Taking) -> Part:
    rows: list[tuple[int, int]] = []
    at = payload = 0
    for _ in range(taking.below(12)):
        kind, repeat = taking.byte(), 1 + taking.byte()
        if kind < 200:
            step, payload_step = kind % 5, taking.byte() % 4
            for _ in range(min(repeat, MOST_ROWS - len(rows))):
                at, payload = at + step, payload + payload_step
                rows.append((at, payload))
        else:
            rows.append((taking.number(200), taking.number(200)))
    kind = taking.below(4)
    length = at if kind else abs(taking.number(300)) % (1 << 59)
    size = payload if kind != 1 else taking.number(300)
    if not rows:
        length = 0
    return Part(np.array(rows, dtype=np.int64).reshape(-1, 2), length, size)


def run(search: SpanSearch, parts: list[Part]) -> WrongSpansError | None:
    """Answer the search's questions from memory; what it says of wrong answers."""
    for _ in range(MOST_ROUNDS):
        rows = search.probes()
        if rows is None:
            return None
        chunk = np.empty((search.asked, 2), dtype=np.int64)
        target = 0
        for file, offset, nbytes, at in rows.tolist():
            ends = parts[file - len(parts)].ends
            assert at == 16 * target
            assert offset % 16 == nbytes % 16 == 0
            assert 0 <= offset < offset + nbytes <= 16 * len(ends)
            count = nbytes // 16
            chunk[target : target + count] = ends[offset // 16 :][:count]
            target += count
        assert target == search.asked
        try:
            search.take(chunk)
        except WrongSpansError as wrong:
            return wrong
    raise AssertionError(f"no end after {MOST_ROUNDS} rounds")


def check_pieces(
    search: SpanSearch, parts: list[Part], starts: NDArray[np.int64], length: int, *, unique: bool
) -> None:
    """Pieces cover the windows, and nothing outside the payloads is read."""
    offsets, columns, payload_offsets, payload_parts, rows = pieces(search, unique)
    assert offsets.size == starts.size + 1
    assert offsets[0] == 0
    assert np.all(np.diff(offsets) >= 0)
    assert offsets[-1] == columns.shape[1]
    assert np.all(np.diff(payload_offsets) >= 0)
    assert payload_parts.size == payload_offsets.size - 1
    for file, offset, nbytes, at in rows.tolist():
        size = parts[file - 2 * len(parts)].payload_size
        assert 0 <= offset < offset + nbytes <= size
        assert 0 <= at < at + nbytes <= payload_offsets[-1]
    assert int(rows[:, 2].sum()) == payload_offsets[-1]
    right = all(part.right for part in parts)
    spans = sum(len(part.ends) for part in parts)
    known = by_hand(parts) if right else []
    for k, start in enumerate(starts.tolist()):
        begin, runs, numbers, payloads = columns[:, offsets[k] : offsets[k + 1]].tolist()
        assert begin[:1] == [0] or not right
        assert all(0 <= number < spans for number in numbers)
        assert all(0 <= payload < payload_parts.size for payload in payloads)
        assert all(run > 0 for run in runs)
        assert all(a + n <= length for a, n in zip(begin, runs, strict=True))
        if right:
            window = known[start : start + length]
            expected = [(key, len(list(run))) for key, run in itertools.groupby(window)]
            assert list(zip(numbers, runs, strict=True)) == expected


def by_hand(parts: list[Part]) -> list[int]:
    """The number of its span for every element of the stream."""
    found, base = [], 0
    for part in parts:
        lengths = np.diff(part.ends[:, 0], prepend=0)
        found += np.repeat(np.arange(base, base + len(lengths)), lengths).tolist()
        base += len(lengths)
    return found


def seeds() -> list[bytes]:
    some = [3, 1, 40, 2, 0, 5, 1, 3, 255, 3]
    return [
        bytes([2, *some, 1, 1, 2, 250, 1, 1, 2, *some, 1, 0, 3, 20, 4, *range(12), 1, 30, 5])
        + bytes(range(40)),
        bytes([0, 8, *[2, 255, 1] * 8, 1, 0, 1, 9, 5, *range(15), 0, 39, 5, *range(100, 115), 1]),
        bytes([0, 3, 1, 9, 1, 201, 30, 240, 200, 2, 7, 1, 0, 0, 3, 5, 3, *range(9)]),
        bytes([1, 2, 4, 200, 1, 4, 0, 2, 1, 1, 230, 240, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 2]),
        bytes(30),
    ]


TARGET = Target("span_index", feed, mutate_plain, seeds)

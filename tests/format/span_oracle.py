"""Which spans windows touch, in plain Python; and the search, driven without files.

A span is (elements, bytes of its payload), a part is a list of spans, a stream is a list of parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from guideloom_format import SpanIndex, SpanSearch, StreamIndex, pieces

Span = tuple[int, int]
Parts = Sequence[Sequence[Span]]
Answer = Callable[[int, NDArray[np.int64]], NDArray[np.int64]]
"""From a part and the numbers of rows to those rows: int64 of shape (rows, 2)."""


@dataclass
class Found:
    """What a search has found, as lists.

    Attributes:
        windows: for each window its pieces: (start, length, span, payload).
        payloads: for each payload its part and its number of bytes.
        reads: what to read of the payloads: (part, offset, bytes, offset in the output).
        rounds: how many reads of spans it took.
        rows: how many spans were read.
    """

    windows: list[list[tuple[int, int, int, int]]] = field(default_factory=list)
    payloads: list[tuple[int, int]] = field(default_factory=list)
    reads: list[tuple[int, int, int, int]] = field(default_factory=list)
    rounds: int = field(default=0, compare=False)
    rows: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Stream:
    """How many spans, elements and payload bytes each part has."""

    counts: Sequence[int]
    lengths: Sequence[int]
    payload_sizes: Sequence[int]

    @classmethod
    def of(cls, parts: Parts) -> Stream:
        return cls(
            [len(part) for part in parts],
            [sum(count for count, _ in part) for part in parts],
            [sum(size for _, size in part) for part in parts],
        )

    def index(self) -> SpanIndex:
        """An index that has seen no search yet."""
        return SpanIndex(self.counts, self.lengths, self.payload_sizes)

    def begin(
        self,
        ids: Sequence[int],
        length: int,
        *,
        stride: int = 1,
        itemsize: int = 1,
        index: SpanIndex | None = None,
    ) -> SpanSearch:
        """The search for these windows."""
        plan = StreamIndex(self.lengths).plan(ids, length, itemsize, stride)
        window_bytes = max(length, 1) * itemsize
        return SpanSearch(index or self.index(), plan, itemsize, window_bytes, len(ids))


def find(
    stream: Stream,
    answer: Answer,
    ids: Sequence[int],
    length: int,
    *,
    stride: int = 1,
    itemsize: int = 1,
    unique: bool = False,
    index: SpanIndex | None = None,
) -> Found:
    """Let the search find the pieces; every read that it asks for is checked and answered.

    With an `index` that other searches have used, what those left in it is used as well.
    """
    search = stream.begin(ids, length, stride=stride, itemsize=itemsize, index=index)
    # Guesses, halvings and rows by the fourfold; and once more without landmarks.
    most_rounds = 2 * (20 + 2 * max(stream.counts, default=0).bit_length())
    found = Found()
    while (asked := search.probes()) is not None:
        found.rounds += 1
        assert found.rounds <= most_rounds, "the search does not end"
        chunk = np.concatenate([answer(*place) for place in probed(stream, asked)])
        assert search.asked == len(chunk)
        found.rows += len(chunk)
        search.take(chunk)
    return with_pieces(found, search, len(stream.counts), unique=unique)


def probed(stream: Stream, asked: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """Part and rows of each read: within the part, whole rows, one behind the other in the output.

    What lies outside would be read from another place of the file, or behind its end.
    """
    places = []
    at = 0
    for file, offset, nbytes, target in asked.tolist():
        part = file - len(stream.counts)
        assert 0 <= part < len(stream.counts), f"file {file} is not one of spans"
        assert offset % 16 == nbytes % 16 == 0 < nbytes
        assert 0 <= offset < offset + nbytes <= 16 * stream.counts[part]
        assert target == at
        assert nbytes < 2**30, f"one read of {nbytes} bytes of spans"
        at += nbytes
        places.append((part, np.arange(offset // 16, (offset + nbytes) // 16, dtype=np.int64)))
    return places


def with_pieces(found: Found, search: SpanSearch, parts: int, *, unique: bool) -> Found:
    """The arrays of `pieces` as lists, after what must hold for any of them."""
    offsets, columns, payload_offsets, payload_parts, rows = pieces(search, unique)
    for array in (offsets, columns, payload_offsets, payload_parts, rows):
        assert array.dtype == np.int64
    assert offsets.shape == (search.windows + 1,)
    assert columns.shape == (4, offsets[-1])
    assert payload_offsets.shape == (payload_parts.size + 1,)
    bounds = offsets.tolist()
    assert bounds[0] == 0
    every = [tuple(piece) for piece in columns.T.tolist()]
    found.windows = [every[a:b] for a, b in pairwise(bounds)]
    sizes = np.diff(payload_offsets).tolist()
    found.payloads = list(zip(payload_parts.tolist(), sizes, strict=True))
    for file, offset, nbytes, target in rows.tolist():
        assert 2 * parts <= file < 3 * parts, f"file {file} is not one of payloads"
        found.reads.append((file - 2 * parts, offset, nbytes, target))
    return found


def expected(
    parts: Parts, ids: Iterable[int], length: int, *, stride: int = 1, unique: bool = False
) -> Found:
    """The reference: compare every window with every span."""
    spans = []
    at = 0
    for part, content in enumerate(parts):
        ends = list(accumulate((size for _, size in content), initial=0))
        for (count, size), begin in zip(content, ends, strict=False):
            spans.append((at, at + count, part, begin, size))
            at += count
    found = Found()
    numbers: dict[int, int] = {}
    for window in ids:
        begin, end = window * stride, window * stride + length
        touched = []
        for number, (first, behind, part, offset, size) in enumerate(spans):
            low, high = max(first, begin), min(behind, end)
            if low >= high:
                continue
            payload = len(found.payloads)
            if unique:
                payload = numbers.setdefault(number, payload)
            if payload == len(found.payloads):
                _add_payload(found, part, offset, size)
            touched.append((low - begin, high - low, number, payload))
        found.windows.append(touched)
    return found


def _add_payload(found: Found, part: int, offset: int, size: int) -> None:
    """One read for payloads that are neighbours in their file; none for empty ones."""
    target = sum(size for _, size in found.payloads)
    found.payloads.append((part, size))
    if not size:
        return
    if found.reads and found.reads[-1][0] == part:
        _, start, before, at = found.reads[-1]
        if start + before == offset:
            found.reads[-1] = (part, start, before + size, at)
            return
    found.reads.append((part, offset, size, target))


def rows_of(parts: Parts) -> list[NDArray[np.int64]]:
    """What the files of spans hold."""
    return [
        np.cumsum(np.array(part, dtype=np.int64).reshape(-1, 2), axis=0, dtype=np.int64)
        for part in parts
    ]


def from_rows(rows: Sequence[NDArray[np.int64]]) -> Answer:
    """Answers from the rows of all parts."""
    return lambda part, numbers: rows[part][numbers]

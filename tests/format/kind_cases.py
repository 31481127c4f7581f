"""Documents and streams with metadata for tests: what is in them, written by hand, and drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from format.independent_spans import SpanPiece
from format.independent_writing import HandWriter, MadePart, Span, document_part, span_part

BYTES_FORMAT = {"name": "document-bytes", "parameters": {}}
SPANS_FORMAT = {"name": "stream-spans", "parameters": {"payload_format": BYTES_FORMAT}}
SHARDS = [0, 1, 3, 999, 1000, 10**9]

# For each shard the contents of its parts.
Documents = Mapping[int, Sequence[Sequence[bytes]]]
Spans = Mapping[int, Sequence[Sequence[Span]]]


def parts_of_documents(shards: Documents) -> list[MadePart]:
    return [
        document_part(shard, number, documents)
        for shard in sorted(shards)
        for number, documents in enumerate(shards[shard])
    ]


def parts_of_spans(shards: Spans, itemsize: int) -> list[MadePart]:
    """Parts with these spans; their elements are bytes that differ from place to place."""
    parts, at = [], 0
    for shard in sorted(shards):
        for number, spans in enumerate(shards[shard]):
            size = itemsize * sum(count for count, _ in spans)
            elements = (np.arange(at, at + size) * 7919 % 251).astype(np.uint8).tobytes()
            parts.append(span_part(shard, number, elements, spans))
            at += size
    return parts


@dataclass(frozen=True)
class ExpectedSpans:
    """All elements, and for each span its first element, the one behind, its payload and shard."""

    elements: np.ndarray[Any, Any]
    spans: list[tuple[int, int, bytes, int]]

    def window(self, start: int, stop: int) -> list[SpanPiece]:
        pieces = []
        for number, (first, end, payload, shard) in enumerate(self.spans):
            low, high = max(first, start), min(end, stop)
            if low < high:
                pieces.append(SpanPiece(low - start, high - low, number, payload, shard))
        return pieces


def expected_spans(shards: Spans, parts: Sequence[MadePart], dtype: Any) -> ExpectedSpans:
    content = b"".join(part.contents["elements"] for part in parts)
    rows = [
        (count, payload, shard)
        for shard in sorted(shards)
        for spans in shards[shard]
        for count, payload in spans
    ]
    ends = list(accumulate(count for count, _, _ in rows))
    spans = [
        (end - count, end, payload, shard)
        for end, (count, payload, shard) in zip(ends, rows, strict=True)
    ]
    return ExpectedSpans(np.frombuffer(content, dtype), spans)


def write_documents(
    path: Path, parts: Sequence[MadePart], element_type: Any = "|u1", storage: Any = BYTES_FORMAT
) -> HandWriter:
    """A document dataset of these parts, published by records."""
    writer = HandWriter.create(path, "document", element_type, storage)
    writer.publish(parts, 0, "all")
    return writer


def write_spans(
    path: Path, parts: Sequence[MadePart], element_type: Any = "<u2", storage: Any = SPANS_FORMAT
) -> HandWriter:
    """A stream with metadata of these parts, published by records."""
    writer = HandWriter.create(path, "stream-with-meta", element_type, storage)
    writer.publish(parts, 0, "all")
    return writer


def documents(itemsize: int) -> st.SearchStrategy[Documents]:
    """Documents in parts of shards; many are empty, and so are some parts."""
    sizes = st.sampled_from([0, 0, 1, 2, 3, 7, 40])
    document = sizes.flatmap(
        lambda size: st.binary(min_size=size * itemsize, max_size=size * itemsize)
    )
    return _in_shards(st.lists(document, max_size=6))


def spans() -> st.SearchStrategy[Spans]:
    """Spans in parts of shards; many have no elements, no payload, or neither."""
    counts = st.sampled_from([0, 0, 1, 1, 1, 2, 3, 9])
    payloads = st.just(b"") | st.binary(max_size=9)
    return _in_shards(st.lists(st.tuples(counts, payloads), max_size=8))


def _in_shards(contents: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = st.lists(contents, min_size=1, max_size=3)
    return st.dictionaries(st.sampled_from(SHARDS), parts, max_size=4)

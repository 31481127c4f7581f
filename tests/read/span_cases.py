"""Streams with metadata cut in any way, and the plain lists that they should read as.

A span is (elements, payload). An append is a list of spans; a part is what several appends make;
a dataset has for each shard a list of parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from guideloom import SpanBatch
from guideloom.types import IOReader
from guideloom_format import (
    DocumentBytesFormat,
    SpanWindow,
    StreamSpansFormat,
    StreamWithMetaStorage,
)
from guideloom_write import StreamWithMetaWriter
from read.stream_cases import PACKED, values
from write.faulty_files import Watched

Span = tuple[int, bytes]
Append = Sequence[Span]
Cut = Mapping[int, Sequence[Sequence[Append]]]

TOKENS = np.dtype("<u2")
DTYPES = [TOKENS, PACKED]
SHARDS = [0, 1, 3, 999, 1000, 10**9]


@dataclass(frozen=True)
class Piece:
    """What a window has of a span."""

    start: int
    length: int
    span: int
    payload: bytes
    shard: int


@dataclass(frozen=True)
class Model:
    """All elements, and for each span: its first element, the one behind, its payload and shard."""

    elements: NDArray[Any]
    spans: Sequence[tuple[int, int, bytes, int]]

    def window(self, start: int, length: int) -> list[Piece]:
        """The pieces of a window, found by looking at every span."""
        pieces = []
        for number, (first, behind, payload, shard) in enumerate(self.spans):
            low, high = max(first, start), min(behind, start + length)
            if low < high:
                pieces.append(Piece(low - start, high - low, number, payload, shard))
        return pieces

    def samples(self, length: int, stride: int) -> range:
        """Where the samples start."""
        return range(0, max(len(self.elements) - length + 1, 0), stride)


def model_of(cut: Cut, elements: NDArray[Any]) -> Model:
    """What a dataset cut like this is, if these are its elements in order."""
    spans = []
    at = 0
    for shard in sorted(cut):
        for part in cut[shard]:
            for append in part:
                for count, payload in append:
                    spans.append((at, at + count, payload, shard))
                    at += count
    return Model(elements, spans)


def element_count(cut: Cut) -> int:
    return sum(
        count for parts in cut.values() for part in parts for append in part for count, _ in append
    )


def stored(form: Any, chunk: NDArray[Any]) -> Any:
    """Elements as a storage format takes them."""
    if isinstance(form, StreamSpansFormat) and form.stream_format is not None:
        return {name: chunk[name] for name in chunk.dtype.names or ()}
    return chunk


def write_spans(storage: StreamWithMetaStorage, cut: Cut, elements: NDArray[Any]) -> None:
    """Write these elements as the dataset that is cut in this way."""
    form = storage.storage_format
    starts = {}
    at = 0
    for shard in sorted(cut):
        starts[shard] = at
        at += element_count({shard: cut[shard]})
    with StreamWithMetaWriter(storage, files=Watched()) as writer:
        for number in range(max(map(len, cut.values()), default=0)):
            for shard, parts in cut.items():
                for append in parts[number] if number < len(parts) else ():
                    begin = starts[shard] + writer.length(shard)
                    count = sum(length for length, _ in append)
                    chunk = stored(form, elements[begin : begin + count])
                    lengths = [length for length, _ in append]
                    writer.append(shard, (chunk, lengths, [payload for _, payload in append]))
            writer.commit()


def spans_dataset(
    directory: Path,
    cut: Cut,
    dtype: Any = TOKENS,
    io: IOReader | None = None,
    form: Any = None,
    seed: int = 0,
) -> tuple[StreamWithMetaStorage, Model]:
    """A dataset of random elements that is cut in this way, and what it is."""
    form = form or StreamSpansFormat(dtype, DocumentBytesFormat())
    storage = StreamWithMetaStorage(directory, form, io)
    count = element_count(cut)
    if storage.element_type.names is None:
        elements = np.random.default_rng(seed).integers(1, 60_000, count).astype(dtype)
    else:
        elements = values(storage.element_type, count, seed)
    write_spans(storage, cut, elements)
    return storage, model_of(cut, elements)


def check_elements(found: Any, expected: NDArray[Any]) -> None:
    """Elements of any shape, as arrays for each field if they have fields."""
    if expected.dtype.names is None:
        assert isinstance(found, np.ndarray)
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        assert np.array_equal(found, expected)
        assert found.flags.writeable
        return
    assert list(found) == list(expected.dtype.names)
    for name in expected.dtype.names:
        check_elements(found[name], np.ascontiguousarray(expected[name]))


def check_window(found: SpanWindow, model: Model, start: int, length: int) -> None:
    """A sample of `StreamSpansFormat` against the model."""
    pieces = model.window(start, length)
    check_elements(found.stream, model.elements[start : start + length])
    assert found.span_index.dtype == np.int64
    assert found.span_index.tolist() == [
        number for number, piece in enumerate(pieces) for _ in range(piece.length)
    ]
    assert list(found.payloads) == [piece.payload for piece in pieces]
    assert list(found.shards) == [piece.shard for piece in pieces]
    assert all(type(shard) is int for shard in found.shards)


def check_batch(
    batch: SpanBatch, model: Model, starts: Sequence[int], length: int, *, payloads: bool = True
) -> None:
    """Every field of what `gather` returned against the model."""
    assert isinstance(batch, SpanBatch)
    windows = [model.window(start, length) for start in starts]
    pieces = [piece for window in windows for piece in window]
    expected = np.empty((len(starts), length), model.elements.dtype)
    for row, start in enumerate(starts):
        expected[row] = model.elements[start : start + length]
    check_elements(batch.stream, expected)
    columns = (batch.offsets, batch.starts, batch.lengths, batch.spans, batch.payload_index)
    for column in columns:
        assert column.dtype == np.int64
        assert column.ndim == 1
    assert batch.offsets.tolist() == np.cumsum([0, *map(len, windows)]).tolist()
    assert batch.starts.tolist() == [piece.start for piece in pieces]
    assert batch.lengths.tolist() == [piece.length for piece in pieces]
    assert batch.spans.tolist() == [piece.span for piece in pieces]
    assert batch.sequence_length == length
    touched = list(dict.fromkeys(piece.span for piece in pieces))
    assert batch.payload_index.tolist() == [touched.index(piece.span) for piece in pieces]
    if not payloads:
        assert batch.payloads is None
        return
    assert batch.payloads is not None
    assert batch.payloads.values.dtype == np.uint8
    assert batch.payloads.offsets.dtype == np.int64
    found = [bytes(payload) for payload in batch.payloads.arrays()]
    assert found == [model.spans[span][2] for span in touched]
    assert batch.payloads.lengths.tolist() == [len(payload) for payload in found]


def check_derived(batch: SpanBatch, model: Model, starts: Sequence[int], length: int) -> None:
    """What the methods of a batch make of it, element by element."""
    ids = np.empty((len(starts), length), dtype=np.int64)
    positions = np.empty((len(starts), length), dtype=np.int64)
    bounds = [0]
    for row, start in enumerate(starts):
        for piece in model.window(start, length):
            for k in range(piece.length):
                ids[row, piece.start + k] = piece.span
                positions[row, piece.start + k] = k
            bounds.append(bounds[-1] + piece.length)
    for found, expected in ((batch.document_ids(), ids), (batch.position_ids(), positions)):
        assert found.dtype == np.int64
        assert found.shape == expected.shape
        assert np.array_equal(found, expected)
    assert batch.cu_seqlens().dtype == np.int32
    assert batch.cu_seqlens().tolist() == bounds


def cuts() -> st.SearchStrategy[Cut]:
    """Any cut into shards, parts, appends and spans; many spans have no element or no payload."""
    count = st.sampled_from([0, 0, 1, 1, 2, 3, 9])
    payload = st.just(b"") | st.binary(max_size=5)
    append = st.lists(st.tuples(count, payload), max_size=5)
    run = st.builds(lambda length: [(0, b"x")] * length, st.sampled_from([100, 300]))
    part = st.lists(append | append | append | run, max_size=3)
    return st.dictionaries(st.sampled_from(SHARDS), st.lists(part, max_size=3), max_size=4)


SOME: Cut = {
    0: [[[(3, b"a"), (0, b"empty"), (4, b"bc")], [(1, b"")]], [[(2, b"d")]]],
    1: [[[(0, b"nothing"), (0, b"")]]],
    3: [[[(9, b"efg"), (1, b"h")]], [[(0, b"i"), (5, b"j")]]],
    1000: [[[(6, b""), (0, b""), (5, b"last")]]],
}
"""36 elements; shard 1 has none."""

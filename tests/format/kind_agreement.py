"""The packages' readers and the independent ones give the same documents and spans."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from format.independent import OpenDataset
from format.independent_documents import IndependentDocuments
from format.independent_spans import IndependentSpans, SpanPiece
from format.kind_cases import ExpectedSpans
from guideloom import (
    DocumentBytesFormat,
    DocumentNumpyFormat,
    DocumentStorage,
    SpanBatch,
    StreamDataset,
    StreamSpansFormat,
    StreamWithMetaStorage,
)
from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom_read import verify

BACKENDS: list[Any] = [PosixPreadIO(), MmapIO(), SeekIO()]


def document_storage(path: Path, dtype: Any = None, backend: Any = None) -> DocumentStorage:
    """Documents of plain bytes, or arrays of `dtype`."""
    form: Any = DocumentBytesFormat() if dtype is None else DocumentNumpyFormat(np.dtype(dtype))
    return DocumentStorage(path, form, read_interface=backend)


def span_storage(path: Path, dtype: Any = "<u2", backend: Any = None) -> StreamWithMetaStorage:
    form = StreamSpansFormat(np.dtype(dtype), DocumentBytesFormat())
    return StreamWithMetaStorage(path, form, read_interface=backend)


def raw(document: Any) -> bytes:
    """The bytes of a decoded document."""
    return document.tobytes() if isinstance(document, np.ndarray) else bytes(document)


def check_verified(ours: OpenDataset) -> None:
    """Both verifications find nothing wrong, in the same parts."""
    ours.verify()
    report = verify(ours.path)
    assert not [fault for fault in report.faults if fault.file.startswith("data/")]
    assert report.parts == len(ours.parts)


def check_documents(
    path: Path, expected: Sequence[bytes], dtype: Any = None, backend: Any = None
) -> IndependentDocuments:
    """Both readers open the same dataset with these documents."""
    ours = IndependentDocuments(path)
    assert [ours.read(k) for k in range(len(ours))] == list(expected)
    check_verified(ours)
    with document_storage(path, dtype, backend).sync_reader() as reader:
        assert len(reader) == len(expected)
        assert reader.fingerprint == ours.fingerprint
        assert reader.header.dataset_id == ours.header.dataset_id
        assert [raw(reader.read(k)) for k in range(len(reader))] == list(expected)
        order = [*range(len(expected) - 1, -1, -1), *range(0, len(expected), 2)]
        assert [raw(document) for document in reader.read_many(order)] == [
            expected[k] for k in order
        ]
        batch = reader.gather(np.array(order, np.int64))
        offsets = batch.offsets.tolist()
        assert batch.values.dtype == ours.header.element_type
        assert [raw(batch.values[low:high]) for low, high in pairwise(offsets)] == [
            expected[k] for k in order
        ]
    return ours


def check_spans(
    path: Path,
    expected: ExpectedSpans,
    windows: Iterable[tuple[int, int]],
    backend: Any = None,
) -> IndependentSpans:
    """Both readers open the same dataset and give the same windows, from start to stop."""
    ours = IndependentSpans(path)
    dtype, count = expected.elements.dtype, len(expected.elements)
    assert len(ours) == count
    assert ours.header.element_type == dtype
    assert [ours.span(k) for k in range(ours.first_spans[-1])] == expected.spans
    check_verified(ours)
    with span_storage(path, dtype, backend).sync_reader() as reader:
        assert len(reader) == count
        assert reader.fingerprint == ours.fingerprint
        for start, stop in windows:
            elements, pieces = ours.window(start, stop)
            assert np.array_equal(elements, expected.elements[start:stop]), (start, stop)
            assert pieces == expected.window(start, stop), (start, stop)
            assert_window(reader.read(start, stop - start), elements, pieces)
    return ours


def assert_window(window: Any, elements: Any, pieces: list[SpanPiece]) -> None:
    """A decoded window has these elements, and for each the payload of its span."""
    assert np.array_equal(window.stream, elements)
    assert [bytes(payload) for payload in window.payloads] == [piece.payload for piece in pieces]
    assert list(window.shards) == [piece.shard for piece in pieces]
    assert window.span_index.tolist() == [
        row for row, piece in enumerate(pieces) for _ in range(piece.length)
    ]


def pieces_of(batch: SpanBatch, sample: int) -> list[tuple[int, int, int, bytes]]:
    """Start, length, span and payload of each piece of a gathered sample."""
    assert batch.payloads is not None
    values, ends = np.asarray(batch.payloads.values), batch.payloads.offsets.tolist()
    found = []
    for row in range(int(batch.offsets[sample]), int(batch.offsets[sample + 1])):
        entry = int(batch.payload_index[row])
        payload = values[ends[entry] : ends[entry + 1]].tobytes()
        start, length, span = (int(c[row]) for c in (batch.starts, batch.lengths, batch.spans))
        found.append((start, length, span, payload))
    return found


def check_samples(path: Path, expected: ExpectedSpans, length: int, stride: int) -> int:
    """Every sample has the right spans, gathered by one reader in several orders; their number."""
    with StreamDataset(
        span_storage(path, expected.elements.dtype), length, stride
    ).sync_reader() as reader:
        count = len(reader)
        shuffled = np.random.default_rng(count).permutation(count)
        orders = [np.arange(count)[::-1], *np.array_split(shuffled, 9), shuffled, np.arange(count)]
        for order in orders:
            batch = reader.gather(order)
            assert len(batch.offsets) == len(order) + 1
            for row, sample in enumerate(order.tolist()):
                start = sample * stride
                assert np.array_equal(batch.stream[row], expected.elements[start : start + length])
                wanted = [piece[:4] for piece in expected.window(start, start + length)]
                assert pieces_of(batch, row) == wanted, (sample, length, stride)
        return count

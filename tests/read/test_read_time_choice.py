"""How samples are cut is chosen when they are read: length and stride of one written stream.

And one text in all three kinds of storage, which must agree about every token.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import guideloom
from guideloom import (
    DocumentBytesFormat,
    DocumentDataset,
    DocumentNumpyFormat,
    DocumentStorage,
    StreamDataset,
    StreamNumpyFormat,
    StreamSpansFormat,
    StreamStorage,
    StreamWithMetaStorage,
)
from guideloom_write import DocumentWriter, StreamWithMetaWriter, StreamWriter
from read.stream_cases import BACKENDS, consolidate
from write.faulty_files import Watched

TOKENS = np.dtype([("tokens", "<u2")])
SHARDS = [0, 2, 1000]
Documents = Sequence[Sequence[int]]
Append = tuple[int, Documents]
numbers = itertools.count()
into_one_folder = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
appends_of_documents = st.lists(
    st.tuples(
        st.sampled_from(SHARDS),
        st.lists(st.lists(st.integers(0, 65535), max_size=6), max_size=4),
    ),
    max_size=6,
)


class Written:
    """The same documents in each kind, appended and committed alike."""

    def __init__(self, directory: Path, appends: Sequence[Append]) -> None:
        self.documents = DocumentStorage(directory / "documents", DocumentNumpyFormat("<u2"))
        self.stream = StreamStorage(directory / "stream", StreamNumpyFormat(TOKENS))
        self.spans = StreamWithMetaStorage(
            directory / "spans", StreamSpansFormat(TOKENS, DocumentBytesFormat())
        )
        self._write_documents(appends)
        self._write_windows(StreamWriter(self.stream, files=Watched()), appends, _columns)
        self._write_windows(StreamWithMetaWriter(self.spans, files=Watched()), appends, _spans)
        self.in_order = [
            (document, shard)
            for shard in SHARDS
            for found, documents in appends
            if found == shard
            for document in documents
        ]
        self.tokens = np.array([token for one, _ in self.in_order for token in one], dtype="<u2")

    def _write_documents(self, appends: Sequence[Append]) -> None:
        with DocumentWriter(self.documents, files=Watched()) as writer:
            for number, (shard, documents) in enumerate(appends):
                writer.extend(shard, documents)
                if number % 2:
                    writer.commit()

    def _write_windows(
        self, opened: Any, appends: Sequence[Append], form: Callable[[Documents], Any]
    ) -> None:
        with opened as writer:
            for number, (shard, documents) in enumerate(appends):
                writer.append(shard, form(documents))
                if number % 2:
                    writer.commit()

    @property
    def windowed(self) -> list[Any]:
        return [self.stream, self.spans]


def _columns(documents: Documents) -> dict[str, NDArray[Any]]:
    tokens = [token for document in documents for token in document]
    return {"tokens": np.array(tokens, dtype="<u2")}


def _spans(documents: Documents) -> Any:
    payloads = [_payload(document) for document in documents]
    return _columns(documents), [len(document) for document in documents], payloads


def _payload(document: Sequence[int]) -> bytes:
    """Says which document it is: all tokens of it."""
    return np.array(document, dtype="<u2").tobytes()


def starts_of(count: int, length: int, stride: int) -> list[int]:
    """Where whole windows start."""
    return [start for start in range(0, count, stride) if start + length <= count]


def contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Every file: when it was changed last, and what is in it."""
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in directory.rglob("*")
        if path.is_file()
    }


SOME: list[Append] = [
    (2, [[1, 2, 3], [], [4]]),
    (0, [[5, 6, 7, 8, 9, 10, 11]]),
    (2, [[12, 13]]),
    (1000, [[], []]),
    (0, [[14], [15, 16, 17, 18, 19]]),
    (1000, [[20, 21, 22], []]),
]
"""Six appends, three commits; 22 tokens."""


def test_every_length_and_stride_of_one_written_stream(tmp_path: Path) -> None:
    """Nothing is written again, and nothing is left behind by reading."""
    written = Written(tmp_path, SOME)
    before = contents(tmp_path)
    tokens = written.tokens
    assert len(tokens) == 22
    for storage in written.windowed:
        for length, stride in itertools.product(range(1, 25), range(1, 25)):
            starts = starts_of(22, length, stride)
            with StreamDataset(storage, length, stride).sync_reader() as reader:
                assert len(reader) == len(starts)
                found = reader.gather(np.arange(len(starts)))
                rows = (found if storage is written.stream else found.stream)["tokens"]
                expected = [tokens[start : start + length].tolist() for start in starts]
                assert rows.tolist() == expected, (length, stride)
        for length in range(1, 25):
            with StreamDataset(storage, length).sync_reader() as reader:
                assert len(reader) == 22 // length
    assert contents(tmp_path) == before


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_cuts_open_at_the_same_time(backend: str, tmp_path: Path) -> None:
    """Each keeps its own; a storage holds no length."""
    written = Written(tmp_path, SOME)
    for storage in written.windowed:
        directory = Path(storage.directory)
        storage.read_interface = BACKENDS[backend](directory)
        with (
            StreamDataset(storage, 3).sync_reader() as short,
            StreamDataset(storage, 10, 7).sync_reader() as long,
            storage.sync_reader() as elements,
        ):
            for k in range(2):
                for reader, length, stride in ((short, 3, 3), (long, 10, 7)):
                    sample = reader[k]
                    stream = sample if storage is written.stream else sample.stream
                    start = stride * k
                    expected = written.tokens[start : start + length].tolist()
                    assert stream["tokens"].tolist() == expected
            assert len(elements) == 22


def test_formats_from_the_header_are_cut_as_well(tmp_path: Path) -> None:
    """`guideloom.open` needs no length: it is not stored."""
    written = Written(tmp_path, SOME)
    consolidate(tmp_path / "stream")
    stream: Any = guideloom.open(tmp_path / "stream")
    spans: Any = guideloom.open(tmp_path / "spans")
    documents: Any = guideloom.open(tmp_path / "documents")
    for length, stride in ((1, 1), (4, 3), (22, 1)):
        with (
            StreamDataset(stream, length, stride).sync_reader() as windows,
            StreamDataset(spans, length, stride).sync_reader() as spanned,
        ):
            assert len(windows) == len(spanned) == len(starts_of(22, length, stride))
            for one, other in zip(windows, spanned, strict=True):
                assert one["tokens"].tolist() == other.stream["tokens"].tolist()
    with DocumentDataset(documents).sync_reader() as reader:
        assert [one.tolist() for one in reader] == [list(one) for one, _ in written.in_order]


@into_one_folder
@given(
    appends=appends_of_documents,
    length=st.integers(1, 12),
    stride=st.none() | st.integers(1, 15),
    data=st.data(),
)
def test_documents_and_windows_agree_on_every_token(
    appends: list[Append],
    length: int,
    stride: int | None,
    data: st.DataObject,
    tmp_path: Path,
) -> None:
    """A window is a slice of the documents one behind the other; many documents are empty.

    What a `SpanBatch` says of its pieces leads back to the documents in the document dataset.
    """
    directory = tmp_path / str(next(numbers))
    written = Written(directory, appends)
    backend = data.draw(st.sampled_from(sorted(BACKENDS)), "backend")
    for storage in (written.documents, *written.windowed):
        storage.read_interface = BACKENDS[backend](Path(storage.directory))
    starts = starts_of(len(written.tokens), length, stride or length)
    with (
        DocumentDataset(written.documents).sync_reader() as documents,
        StreamDataset(written.stream, length, stride).sync_reader() as windows,
        StreamDataset(written.spans, length, stride).sync_reader() as spanned,
    ):
        everything = documents.gather(np.arange(len(documents)))
        assert [one.tolist() for one in documents] == [list(one) for one, _ in written.in_order]
        assert everything.values.tolist() == written.tokens.tolist()
        assert len(windows) == len(spanned) == len(starts)
        batch = spanned.gather(np.arange(len(starts)))
        rows = windows.gather(np.arange(len(starts)))["tokens"]
        ids, places = batch.document_ids(), batch.position_ids()
        payloads = [bytes(one) for one in batch.payloads.arrays()]
        for k, start in enumerate(starts):
            expected = everything.values[start : start + length].tolist()
            assert rows[k].tolist() == batch.stream["tokens"][k].tolist() == expected
            assert windows[k]["tokens"].tolist() == expected
            sample = spanned[k]
            assert sample.stream["tokens"].tolist() == expected
            for column in range(length):
                document = int(ids[k, column])
                place = start + column - int(everything.offsets[document])
                assert documents[document][place] == expected[column]
                assert place - places[k, column] == max(start - everything.offsets[document], 0)
                assert sample.payloads[sample.span_index[column]] == _payload(
                    written.in_order[document][0]
                )
                assert sample.shards[sample.span_index[column]] == written.in_order[document][1]
        for piece, span in enumerate(batch.spans.tolist()):
            payload = payloads[batch.payload_index[piece]]
            assert payload == documents[span].tobytes()


@into_one_folder
@given(appends=appends_of_documents, data=st.data())
def test_more_in_the_last_shard_moves_no_window(
    appends: list[Append], data: st.DataObject, tmp_path: Path
) -> None:
    """Appending to the last shard leaves every earlier window where it was, for every cut."""
    directory = tmp_path / str(next(numbers))
    before = Written(directory / "before", appends)
    more = data.draw(st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=4), "more")
    after = Written(directory / "after", [*appends, (SHARDS[-1], more)])
    length, stride = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9)), "cut")
    for one, other in zip(before.windowed, after.windowed, strict=True):
        with (
            StreamDataset(one, length, stride).sync_reader() as earlier,
            StreamDataset(other, length, stride).sync_reader() as later,
        ):
            count = len(earlier)
            assert len(later) >= count
            assert repr(later.gather(range(count))) == repr(earlier.gather(range(count)))

"""Opening streams with metadata: by what the header says, as something else, twice, never."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import guideloom
from guideloom import StreamDataset, StreamWithMetaStorage
from guideloom_format import (
    DocumentBytesFormat,
    DocumentJSONFormat,
    DocumentNumpyFormat,
    DocumentPickleFormat,
    DocumentStorage,
    MismatchError,
    StreamSpansFormat,
    StreamStorage,
)
from guideloom_read import StreamReader, StreamWithMetaReader
from read.span_cases import (
    SOME,
    TOKENS,
    Cut,
    check_batch,
    check_window,
    spans_dataset,
    write_spans,
)
from read.stream_cases import BatchOrigins, consolidate


def test_a_dataset_opens_by_its_header(tmp_path: Path) -> None:
    formats = [
        StreamSpansFormat("<u2", DocumentJSONFormat()),
        StreamSpansFormat([("token", "<u4"), ("mask", "?")], DocumentNumpyFormat("<f4")),
        StreamSpansFormat("|u1", DocumentBytesFormat()),
    ]
    for number, form in enumerate(formats):
        directory = tmp_path / str(number)
        with StreamWithMetaStorage(directory, form).sync_writer():
            pass
        opened = guideloom.open(directory)
        assert isinstance(opened, StreamWithMetaStorage)
        assert repr(opened.storage_format) == repr(form)
        for other in formats:
            if other is not form:
                with pytest.raises(MismatchError, match=r"was written with|elements of type"):
                    guideloom.open(directory, other)


def test_pickled_payloads_are_never_unpickled_because_a_file_says_so(tmp_path: Path) -> None:
    form = StreamSpansFormat("<u2", DocumentPickleFormat())
    storage = StreamWithMetaStorage(tmp_path / "x", form)
    with storage.sync_writer() as writer:
        writer.append(0, ([1], [1], [{1: 2}]))
    with pytest.raises(MismatchError, match="holds pickles, and reading a pickle runs the code"):
        guideloom.open(tmp_path / "x")
    other = StreamWithMetaStorage(tmp_path / "x", StreamSpansFormat("<u2", DocumentJSONFormat()))
    with pytest.raises(MismatchError, match="was written with the storage format"):
        other.sync_reader().open()
    opened = guideloom.open(tmp_path / "x", form)
    assert isinstance(opened, StreamWithMetaStorage)
    with opened.sync_reader() as reader:
        assert reader.read(0, 1).payloads == [{1: 2}]


def test_opened_as_something_else(tmp_path: Path) -> None:
    spans_dataset(tmp_path / "x", SOME)
    with pytest.raises(MismatchError, match="kind 'stream-with-meta', it was opened as 'stream'"):
        StreamReader(StreamStorage(tmp_path / "x", BatchOrigins(TOKENS))).open()
    with pytest.raises(MismatchError, match="kind 'stream-with-meta', it was opened as 'document'"):
        DocumentStorage(tmp_path / "x", DocumentBytesFormat()).sync_reader().open()
    wide = StreamWithMetaStorage(tmp_path / "x", StreamSpansFormat("<u4", DocumentBytesFormat()))
    with pytest.raises(MismatchError, match="holds elements of type <u2, it was opened"):
        wide.sync_reader().open()
    with pytest.raises(MismatchError, match="holds elements of type <u2, it was opened"):
        wide.sync_writer().open()


def test_a_reader_that_is_not_open(tmp_path: Path) -> None:
    storage, _ = spans_dataset(tmp_path / "x", SOME)
    reader = StreamWithMetaReader(storage)
    assert "not open" in repr(reader)
    for _ in range(2):
        for call in (
            lambda: len(reader),
            lambda: reader.span_count,
            lambda: reader.read(0, 1),
            lambda: reader.read_many([0], 1),
            lambda: reader.fingerprint,
            lambda: reader.header,
        ):
            with pytest.raises(ValueError, match="the reader is not open; use it in a with block"):
                call()
        assert reader.open() is reader.open()
        assert len(reader) == 36
        assert "36 elements" in repr(reader)
        reader.close()
        reader.close()


def test_a_reader_shows_the_dataset_as_it_was_when_opened(tmp_path: Path) -> None:
    cut: Cut = {0: [[[(4, b"a")]]], 1: [[[(5, b"b")]]]}
    storage, model = spans_dataset(tmp_path / "x", cut)
    with storage.sync_reader() as reader:
        fingerprint = reader.fingerprint
        write_spans(storage, {0: [[[(2, b"new"), (5, b"")]]]}, np.arange(20, dtype=TOKENS))
        assert (len(reader), reader.span_count) == (9, 2)
        assert reader.fingerprint == fingerprint
        check_window(reader.read(0, 9), model, 0, 9)
        with storage.sync_reader() as newer:
            assert (len(newer), newer.span_count) == (16, 4)
            assert newer.fingerprint != fingerprint
            assert newer.read(0, 16).payloads == [b"a", b"new", b"", b"b"]


@pytest.mark.parametrize("consolidated", [False, True])
def test_an_empty_dataset(consolidated: bool, tmp_path: Path) -> None:
    storage, model = spans_dataset(tmp_path / "x", {})
    if consolidated:
        consolidate(tmp_path / "x")
    with storage.sync_reader() as reader:
        assert (len(reader), reader.span_count) == (0, 0)
        check_window(reader.read(0, 0), model, 0, 0)
        with pytest.raises(IndexError, match=r"outside \[0, 0\): the stream has 0 elements"):
            reader.read(0, 1)
    with StreamDataset(storage, 5).sync_reader() as samples:
        assert len(samples) == 0
        check_batch(samples.gather([]), model, [], 5)


def test_an_opened_reader_is_pickled_by_its_description(tmp_path: Path) -> None:
    storage, model = spans_dataset(tmp_path / "x", SOME)
    with storage.sync_reader() as reader, StreamDataset(storage, 5).sync_reader() as samples:
        assert len(reader.read_many(range(30), 5)) == 30
        assert len(samples[:]) == 7
        sent = pickle.dumps((reader, samples, storage))
    assert len(sent) < 10_000
    again, samples_again, storage_again = pickle.loads(sent)
    with again, samples_again:
        check_window(again.read(3, 20), model, 3, 20)
        check_batch(samples_again.gather([2]), model, [10], 5)
    with storage_again.sync_reader() as reader:
        check_window(reader.read(3, 20), model, 3, 20)

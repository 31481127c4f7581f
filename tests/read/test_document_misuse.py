"""Slips at a `DocumentReader`, each with its error; and the padding of batches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from format.document_cases import Plain, write
from guideloom import (
    DocumentBytesFormat,
    DocumentDataset,
    DocumentNumpyFormat,
    DocumentStorage,
    StreamDataset,
    StreamNumpyFormat,
    StreamStorage,
)
from guideloom_format import DatasetNotFoundError
from guideloom_read import DocumentReader
from read.document_cases import dataset

LENGTHS = [3, 0, 5, 1]
TOKENS = [np.arange(length) + 10 * k for k, length in enumerate(LENGTHS)]


@pytest.fixture
def reader(tmp_path: Path) -> DocumentReader:
    storage, _ = dataset(tmp_path / "x")
    return storage.sync_reader().open()


@pytest.mark.parametrize("index", [30, 31, -1, -31, 2**31, 2**62, 2**63, -(2**63), 10**30])
def test_a_document_outside_is_named(index: int, reader: DocumentReader) -> None:
    with pytest.raises(IndexError, match=rf"^document {index} is outside \[0, 30\)$"):
        reader.read(index)
    if not -30 <= index < 30:
        with pytest.raises(IndexError, match=rf"^sample {index} is outside \[-30, 30\)$"):
            reader[index]
    if -(2**63) <= index < 2**63:
        for read in (reader.read_many, reader.gather, reader.gather_padded):
            with pytest.raises(
                IndexError, match=rf"^document {index} at position 1 is outside \[0, 30\), the docu"
            ):
                read([3, index, 99])
        if index not in range(-30, 30):
            with pytest.raises(IndexError, match=rf"sample {index} at position 1 is outside \[-30"):
                reader[[3, index, 99]]


def test_an_integer_too_long_to_print(reader: DocumentReader) -> None:
    for read in (reader.read, reader.__getitem__):
        with pytest.raises(IndexError, match="an integer of 40001 bits is outside"):
            read(2**40_000)


@pytest.mark.parametrize("index", [1.0, "1", True, None, np.True_, 1j, b"1"], ids=repr)
def test_what_is_no_integer(index: Any, reader: DocumentReader) -> None:
    with pytest.raises(TypeError, match="expected an integer"):
        reader.read(index)
    with pytest.raises(TypeError, match=r"expected an integer|expected integers"):
        reader[index]


@pytest.mark.parametrize(
    "ids",
    [
        [1.0],
        [True],
        ["1"],
        [None],
        np.zeros(3),
        np.zeros(0),
        np.array([True] * 30),
        "1",
        b"1",
        None,
    ],
    ids=repr,
)
def test_what_are_no_integers(ids: Any, reader: DocumentReader) -> None:
    for name, read in (
        ("indexes", reader.read_many),
        ("ids", reader.gather),
        ("ids", reader.gather_padded),
        ("index", reader.__getitem__),
    ):
        with pytest.raises(TypeError, match=rf"^{name} (has dtype .*; expected integers|is .*)"):
            read(ids)


def test_what_is_no_vector(reader: DocumentReader) -> None:
    for ids in (np.zeros((1, 1), np.int64), np.zeros((0, 2), np.int64), [[0], [1]]):
        for read in (reader.gather, reader.gather_padded):
            with pytest.raises(ValueError, match=r"^ids has 2 dimensions; expected 1$"):
                read(ids)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"^indexes has 2 dimensions; expected 1$"):
            reader.read_many(ids)
        with pytest.raises(TypeError, match=r"the index array has 2 dimensions; expected 1"):
            reader[ids]
    with pytest.raises(ValueError, match=r"^ids has 0 dimensions; expected 1$"):
        reader.gather(3)  # type: ignore[arg-type]


def test_masked_ids_are_refused(reader: DocumentReader) -> None:
    masked = np.ma.masked_array([1, 2], [False, True])
    for read in (reader.read_many, reader.gather, reader.gather_padded, reader.__getitem__):
        with pytest.raises(TypeError, match="is a masked array; give values to all"):
            read(masked)


def test_a_reader_that_is_not_open(tmp_path: Path) -> None:
    storage, _ = dataset(tmp_path / "x")
    reader = DocumentReader(storage)
    for _ in range(2):
        for call in (
            lambda: len(reader),
            lambda: reader.read(0),
            lambda: reader.read_many([0]),
            lambda: reader.read_many([]),
            lambda: reader.gather([0]),
            lambda: reader.gather_padded([0]),
            lambda: reader[0],
            lambda: reader[:],
            lambda: list(reader),
            lambda: reader.fingerprint,
            lambda: reader.identity(),
            lambda: reader.header,
        ):
            with pytest.raises(ValueError, match="the reader is not open; use it in a with block"):
                call()
        assert reader.open() is reader.open()
        assert len(reader) == 30
        reader.close()
        reader.close()


def test_no_dataset_and_another_kind(tmp_path: Path) -> None:
    storage = DocumentStorage(tmp_path / "nowhere", DocumentBytesFormat())
    with pytest.raises(DatasetNotFoundError, match=r"holds no dataset: the file guideloom.json is"):
        storage.sync_reader().open()
    stream = StreamStorage(tmp_path / "stream", StreamNumpyFormat([("a", "u1")]))
    with pytest.raises(
        TypeError,
        match=r"^storage is StreamStorage; expected a DocumentStorage. For the windows of a stream "
        "use StreamDataset$",
    ):
        DocumentDataset(stream)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"storage is DocumentStorage; .* use DocumentDataset"):
        StreamDataset(storage, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"storage is str; expected a DocumentStorage"):
        DocumentDataset("x")  # type: ignore[arg-type]


def test_an_index_error_does_not_end_an_iteration(tmp_path: Path) -> None:
    class Failing(Plain):
        def unpack(self, buffer: memoryview, shard: int) -> Any:
            if bytes(buffer) == b"2":
                raise IndexError("of the user's code")
            return bytes(buffer), shard

    write(tmp_path / "x", Failing(), [b"0", b"1", b"2", b"3"])
    with DocumentStorage(tmp_path / "x", Failing()).sync_reader() as reader:
        for direction in (iter(reader), reversed(reader)):
            with pytest.raises(IndexError, match="of the user's code"):
                list(direction)


@pytest.fixture
def tokens(tmp_path: Path) -> DocumentReader:
    write(tmp_path / "x", DocumentNumpyFormat("<u2"), TOKENS)
    return DocumentStorage(tmp_path / "x", DocumentNumpyFormat("<u2")).sync_reader().open()


@pytest.mark.parametrize("pad_to", [None, 5, 6, 100, np.int8(7)])
@pytest.mark.parametrize("pad_value", [0, 1, 65535, np.int64(7), 3.0, True])
def test_padding(pad_to: Any, pad_value: Any, tokens: DocumentReader) -> None:
    for ids in ([0, 1, 2, 3], [2, 0], [3, 3, 3, 1], [1], []):
        longest = max((LENGTHS[k] for k in ids), default=0)
        padded = tokens.gather_padded(ids, pad_to, pad_value)
        width = longest if pad_to is None else int(pad_to)
        assert padded.values.shape == (len(ids), width)
        assert padded.values.flags.c_contiguous
        assert padded.lengths.tolist() == [LENGTHS[k] for k in ids]
        for row, k in zip(padded.values.tolist(), ids, strict=True):
            assert row == [*TOKENS[k].tolist(), *[int(pad_value)] * (width - LENGTHS[k])]


@pytest.mark.parametrize("pad_to", [0, 1, 2, 4])
def test_a_document_longer_than_the_padding_is_named(pad_to: int, tokens: DocumentReader) -> None:
    with pytest.raises(
        ValueError,
        match=f"^document 2 has 5 values; pad_to is {pad_to}. Raise pad_to, or leave it out to pad "
        "to the longest of each batch",
    ):
        tokens.gather_padded([1, 0, 2, 3, 2], pad_to)
    assert tokens.gather_padded([1, 1], 0).values.shape == (2, 0)


@pytest.mark.parametrize(
    ("pad_to", "kind", "text"),
    [
        (-1, ValueError, "pad_to is -1; expected between 0 and "),
        (2**41, ValueError, "pad_to is 2199023255552; expected between 0 and "),
        (2**70, ValueError, "pad_to is .*; expected between 0 and "),
        (5.0, TypeError, r"pad_to is 5\.0 \(float\); expected an integer"),
        ("longest", TypeError, "pad_to is 'longest' "),
        (True, TypeError, "pad_to is True; expected an integer"),
    ],
)
def test_what_rows_cannot_have(
    pad_to: Any, kind: type[Exception], text: str, tokens: DocumentReader
) -> None:
    with pytest.raises(kind, match=f"^{text}"):
        tokens.gather_padded([0], pad_to)


@pytest.mark.parametrize(
    "pad_value",
    [-1, 65536, 2**63, 2**64, 10**30, 1.5, np.int64(-1), np.int64(70_000), float("nan"),
     float("inf"), 2 + 0j, "x", "0", b"\0", None, [0], [0, 0, 0], np.zeros(1)],
    ids=repr,
)  # fmt: skip
def test_a_padding_value_that_would_change_is_refused(
    pad_value: Any, tokens: DocumentReader
) -> None:
    for ids in ([0, 2], [], [2]):
        with pytest.raises(ValueError, match="^" + re.escape(f"pad_value is {pad_value!r}, which")):
            tokens.gather_padded(ids, pad_value=pad_value)


@pytest.mark.parametrize(
    ("dtype", "pad_value", "stored"),
    [
        ("?", True, True),
        ("?", 0, False),
        ("<f4", -1e9, -1e9),
        ("<f8", 0.1, 0.1),
        ("<f2", float("-inf"), float("-inf")),
        ("<c8", 1j, 1j),
        ("<i8", -(2**63), -(2**63)),
        ("<u8", 2**64 - 1, 2**64 - 1),
        ([("a", "<u2"), ("b", "?")], 0, (0, False)),
        ("S3", 0, b""),
        ("<U2", 0, ""),
    ],
    ids=repr,
)
def test_padding_values_of_other_types(
    dtype: Any, pad_value: Any, stored: Any, tmp_path: Path
) -> None:
    form = DocumentNumpyFormat(dtype)
    write(tmp_path / "x", form, [np.ones(2, form.document_dtype), np.ones(1, form.document_dtype)])
    with DocumentStorage(tmp_path / "x", form).sync_reader() as reader:
        values = reader.gather_padded([0, 1], 4, pad_value).values
        assert values[0, 2:].tolist() == [stored] * 2
        assert values[1, 1:].tolist() == [stored] * 3
        assert values[1, :1].tolist() == np.ones(1, form.document_dtype).tolist()


def test_padding_with_nan(tmp_path: Path) -> None:
    write(tmp_path / "x", DocumentNumpyFormat("<f4"), [np.ones(1, "f4"), np.ones(0, "f4")])
    with DocumentStorage(tmp_path / "x", DocumentNumpyFormat("<f4")).sync_reader() as reader:
        assert np.isnan(reader.gather_padded([0, 1], pad_value=float("nan")).values[1]).all()

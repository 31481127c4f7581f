"""Datasets made by hand whose headers name a built-in storage format: `guideloom.open` reads them.

What each format does with the data is said by the table in the format page.
"""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import guideloom
from format.independent_spans import IndependentSpans
from format.independent_writing import HandWriter, Span, document_part, span_part
from format.member_changes import change_members, put
from guideloom import (
    DamagedFileError,
    DocumentPickleFormat,
    DocumentStorage,
    GuideLoomError,
    MismatchError,
    StreamSpansFormat,
    StreamWithMetaStorage,
)

HEADER = "guideloom.json"
JSON = {"name": "document-json", "parameters": {}}
BYTES = {"name": "document-bytes", "parameters": {}}
PICKLE = {"name": "document-pickle", "parameters": {}}

VALUES: list[Any] = [None, {"größe": [1, 2.5, -3e300], "": {}}, "", "\N{SNOWMAN}", [], True, 10**30]

ARRAY_TYPES: list[tuple[Any, Any]] = [
    ("|u1", "u1"),
    ("|b1", "?"),
    ("<i8", "<i8"),
    ("<f2", "<f2"),
    ("<c16", "<c16"),
    ("|S3", "S3"),
    ("<U2", "<U2"),
    ("|V5", "V5"),
    ([["a", "<u4"], ["b", "|i1"]], [("a", "<u4"), ("b", "i1")]),
    ([["a", "|u1"], ["", "|V3"], ["c", "<f4", [2, 2]]], None),
]


def write_documents(path: Path, element_type: Any, form: Any, documents: list[bytes]) -> None:
    parts = [
        document_part(0, 0, documents[:1]),
        document_part(0, 1, []),
        document_part(7, 0, documents[1:]),
    ]
    HandWriter.create(path, "document", element_type, form).publish(parts, 2, "all")


def read_documents(path: Path, form: Any = None) -> list[Any]:
    storage = guideloom.open(path, form)
    assert isinstance(storage, DocumentStorage)
    with storage.sync_reader() as reader:
        return list(reader.read_many(range(len(reader))))


def test_bytes_as_they_are(tmp_path: Path) -> None:
    documents = [b"", bytes(range(256)), b"\0", b""]
    write_documents(tmp_path, "|u1", BYTES, documents)
    assert [bytes(document) for document in read_documents(tmp_path)] == documents


@pytest.mark.parametrize("described, dtype", ARRAY_TYPES, ids=lambda part: json.dumps(str(part)))
def test_arrays_of_each_type(tmp_path: Path, described: Any, dtype: Any) -> None:
    if dtype is None:  # what NumPy's own list of fields cannot say: where padding is
        dtype = {
            "names": ["a", "c"],
            "formats": ["u1", ("<f4", (2, 2))],
            "offsets": [0, 4],
            "itemsize": 20,
        }
    wanted = np.dtype(dtype)
    random = np.random.default_rng(0)
    arrays = [
        np.frombuffer(random.integers(0, 2, n * wanted.itemsize, "u1").tobytes(), wanted)
        for n in (3, 0, 1, 70)
    ]
    form = {"name": "document-numpy", "parameters": {"dtype": described}}
    write_documents(tmp_path, described, form, [array.tobytes() for array in arrays])
    for found, array in zip(read_documents(tmp_path), arrays, strict=True):
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        for name in wanted.names or (...,):
            assert np.array_equal(found[name], array[name])


def test_json_values(tmp_path: Path) -> None:
    """However they are spaced and escaped."""
    texts = [
        json.dumps(value, ensure_ascii=bool(k % 2), indent=k % 3 or None)
        for k, value in enumerate(VALUES)
    ]
    write_documents(tmp_path, "|u1", JSON, [text.encode() for text in texts])
    assert read_documents(tmp_path) == VALUES


@pytest.mark.parametrize(
    "text", [b"NaN", b"[Infinity]", b'{"a": -Infinity}', b"", b"{}{}", b"'a'", b'"\xe4"', b"01"]
)
def test_what_is_no_json_is_refused_when_it_is_read(tmp_path: Path, text: bytes) -> None:
    write_documents(tmp_path, "|u1", JSON, [b"1", text])
    storage = guideloom.open(tmp_path)
    with storage.sync_reader() as reader:
        assert reader.read(0) == 1  # type: ignore[call-arg]
        with pytest.raises(DamagedFileError, match="JSON"):
            reader.read(1)  # type: ignore[call-arg]


class Exploding:
    """Its pickle would leave a trace."""

    def __reduce__(self) -> Any:
        return (Path("/").joinpath, ("nothing",))


def test_pickles_are_only_for_those_who_ask(tmp_path: Path) -> None:
    write_documents(tmp_path, "|u1", PICKLE, [pickle.dumps(7), pickle.dumps(Exploding())])
    with pytest.raises(MismatchError, match="DocumentPickleFormat"):
        guideloom.open(tmp_path)
    assert read_documents(tmp_path, DocumentPickleFormat()) == [7, Path("/nothing")]


def test_pickles_of_payloads_are_only_for_those_who_ask(tmp_path: Path) -> None:
    form = {"name": "stream-spans", "parameters": {"payload_format": PICKLE}}
    parts = [span_part(0, 0, b"ab", [(1, pickle.dumps(7)), (1, pickle.dumps([]))])]
    HandWriter.create(tmp_path, "stream-with-meta", "|u1", form).publish(parts, 0, "all")
    with pytest.raises(MismatchError, match="DocumentPickleFormat"):
        guideloom.open(tmp_path)
    asked = StreamSpansFormat(np.dtype("u1"), DocumentPickleFormat())
    assert read_window(guideloom.open(tmp_path, asked)).payloads == [7, []]


def read_window(storage: Any) -> Any:
    assert isinstance(storage, StreamWithMetaStorage)
    with storage.sync_reader() as reader:
        return reader.read(0, len(reader))


@pytest.mark.parametrize("described, dtype", ARRAY_TYPES, ids=lambda part: json.dumps(str(part)))
def test_spans_of_each_type_of_elements(tmp_path: Path, described: Any, dtype: Any) -> None:
    form = {"name": "stream-spans", "parameters": {"payload_format": JSON}}
    writer = HandWriter.create(tmp_path, "stream-with-meta", described, form)
    size = IndependentSpans(tmp_path).header.element_type.itemsize
    content = np.random.default_rng(0).integers(0, 2, 7 * size, "u1").tobytes()
    spans: list[Span] = [(2, b'{"a": 1}'), (0, b"null"), (1, b'"x"')]
    parts = [
        span_part(1, 0, content[: 3 * size], spans),
        span_part(2, 0, content[3 * size :], [(4, b"[]")]),
    ]
    writer.publish(parts, 1, "rest")
    ours, _ = IndependentSpans(tmp_path).window(0, 7)
    window = read_window(guideloom.open(tmp_path))
    for name in ours.dtype.names or (...,):
        column = window.stream if name is ... else window.stream[name]
        wanted = ours if name is ... else ours[name]
        assert column.dtype == wanted.dtype
        assert np.array_equal(column, wanted)
    assert window.payloads == [{"a": 1}, "x", []]
    assert list(window.shards) == [1, 1, 2]
    assert window.span_index.tolist() == [0, 0, 1, 2, 2, 2, 2]
    assert dtype is None or ours.dtype == np.dtype(dtype)


UNKNOWN: list[Any] = [
    {},
    {"class": "somewhere.Format"},
    {"name": "document-parquet", "parameters": {}},
    {"name": "stream-numpy", "parameters": {}},
    {"name": "document-numpy", "parameters": {}},
    {"name": "document-numpy", "parameters": {"dtype": "<u3"}},
    {"name": 7},
]


class Raw:
    """A format of the user's own, for which a document is its bytes."""

    def pack(self, data: bytes) -> bytes:
        return data

    def unpack(self, buffer: Any, shard: int) -> bytes:
        del shard
        return bytes(buffer)


@pytest.mark.parametrize("form", UNKNOWN, ids=json.dumps)
def test_a_format_that_is_not_built_in_is_information(tmp_path: Path, form: Any) -> None:
    """Whoever passes one gets the raw data; who does not is told to, or what is wrong with it."""
    write_documents(tmp_path, "|u1", form, [b"ab", b"c"])
    with pytest.raises(GuideLoomError, match=r"storage format|dtype is (None|'<u3')"):
        guideloom.open(tmp_path)
    assert read_documents(tmp_path, Raw()) == [b"ab", b"c"]


def test_members_that_the_table_has_not_are_ignored(tmp_path: Path) -> None:
    write_documents(tmp_path, "|u1", JSON, [b"1", b"2"])
    for place in (("storage_format", "later"), ("storage_format", "parameters", "later")):
        copy = Path(shutil.copytree(tmp_path, tmp_path / place[-2]))
        change_members(copy / HEADER, put(*place, value=1))
        assert read_documents(copy) == [1, 2]

"""`guideloom.open` for documents, and formats that are not those a dataset was written with."""

from __future__ import annotations

import itertools
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import guideloom
from format.document_cases import Plain, Typed, write
from format.independent_writing import HandWriter, document_part
from guideloom import (
    DocumentBytesFormat,
    DocumentJSONFormat,
    DocumentNumpyFormat,
    DocumentPickleFormat,
    DocumentStorage,
    StreamNumpyFormat,
    StreamStorage,
)
from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom_format import DamagedFileError, DatasetNotFoundError, MismatchError
from guideloom_read import DocumentReader
from write.known_content import all_files

STRUCTURED = np.dtype([("a", "<u2"), ("b", "?", (2,))])
SAFE: dict[str, tuple[Any, list[Any]]] = {
    "bytes": (DocumentBytesFormat(), [b"", b"one", bytes(range(256))]),
    "json": (DocumentJSONFormat(), [{"a": [1, 2.5, None]}, "text", 7]),
    "u2": (DocumentNumpyFormat("<u2"), [[1, 2, 3], [], [65535]]),
    "u1": (DocumentNumpyFormat("u1"), [[1, 2, 3], [], [255]]),
    "big-endian": (DocumentNumpyFormat(">f8"), [[0.5], [1.5, 2.5]]),
    "structured": (
        DocumentNumpyFormat(STRUCTURED),
        [np.ones(3, STRUCTURED), np.ones(0, STRUCTURED)],
    ),
}
BUILT_IN = {name: form for name, (form, _) in SAFE.items()} | {"pickle": DocumentPickleFormat()}


def open_documents(directory: Path, storage_format: Any = None) -> DocumentStorage:
    storage = guideloom.open(directory, storage_format)
    assert isinstance(storage, DocumentStorage)
    return storage


def plain(document: Any) -> str:
    """For comparison: arrays as their values."""
    return repr(document.tolist() if isinstance(document, np.ndarray) else document)


@pytest.mark.parametrize("name", SAFE)
@pytest.mark.parametrize("io", [None, PosixPreadIO(), MmapIO(), SeekIO()], ids=repr)
def test_a_built_in_format_is_found_in_the_header(name: str, io: Any, tmp_path: Path) -> None:
    form, documents = SAFE[name]
    write(tmp_path / "x", form, documents)
    for directory in (tmp_path / "x", str(tmp_path / "x")):
        storage = guideloom.open(directory, read_interface=io)
        assert type(storage) is DocumentStorage
        assert storage.read_interface is io
        assert storage.directory == tmp_path / "x"
        assert repr(storage.storage_format) == repr(form)
        with storage.sync_reader() as reader:
            assert type(reader) is DocumentReader
            assert [plain(one) for one in reader] == [plain(one) for one in documents]
    again = guideloom.open(tmp_path / "x")
    with again.sync_writer() as writer:
        writer.append(3, documents[0])
        assert writer.length(3) == len(documents) + 1


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_format_may_be_passed(name: str, tmp_path: Path) -> None:
    form = BUILT_IN[name]
    with DocumentStorage(tmp_path / "x", form).sync_writer():
        pass
    storage = guideloom.open(tmp_path / "x", form)
    assert storage.storage_format is form
    custom = Typed(storage.element_type)
    assert guideloom.open(tmp_path / "x", storage_format=custom).storage_format is custom


def test_pickles_are_never_chosen_by_a_file(tmp_path: Path) -> None:
    """Nor read: opening runs nothing of what is in the dataset."""
    write(tmp_path / "x", DocumentPickleFormat(), [Marker(tmp_path / "ran")])
    with pytest.raises(
        MismatchError,
        match=re.escape(
            f"{tmp_path / 'x'}/guideloom.json, storage_format: the dataset holds pickles, and "
            "reading a pickle runs the code that the file asks for, so this format is never chosen "
            "by a file. If you trust whoever wrote the data, pass "
            "storage_format=DocumentPickleFormat()"
        ),
    ):
        guideloom.open(tmp_path / "x")
    storage = open_documents(tmp_path / "x", DocumentPickleFormat())
    with storage.sync_reader() as reader:
        reader.gather([0])
        assert not (tmp_path / "ran").exists()
        reader.read(0)
        assert (tmp_path / "ran").exists(), "the marker works"


class Marker:
    """An object whose pickle creates a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_a_custom_format_must_be_passed(tmp_path: Path) -> None:
    write(tmp_path / "x", Plain(), [b"one"])
    with pytest.raises(
        MismatchError,
        match=re.escape(
            f"{tmp_path / 'x'}/guideloom.json, storage_format: the dataset was written with the "
            "storage format 'format.document_cases.Plain', which is not one that is built in for "
            "data of its kind; pass it with storage_format="
        ),
    ):
        guideloom.open(tmp_path / "x")
    with open_documents(tmp_path / "x", Plain()).sync_reader() as reader:
        assert reader[:] == [(b"one", 3)]
    with open_documents(tmp_path / "x", DocumentBytesFormat()).sync_reader() as reader:
        assert reader[:] == [b"one"], "a built-in one may read what a custom one wrote"


@pytest.mark.parametrize(
    "description, text",
    [
        ({"class": "os.system"}, "the storage format 'os.system', which is not one"),
        ({"name": "document-next", "parameters": {}}, "format 'document-next', which is not one"),
        ({"name": "stream-numpy", "parameters": {}}, "'stream-numpy', which is not one"),
        ({"name": ["document-json"]}, r"format \['document-json'\], which is not one"),
        ({"name": None}, "format None, which is not one"),
        ({"name": "x" * 500}, r"'xxx.*\.\.\., which is not one"),
        ({}, r"format \{\}, which is not one"),
        ({"name": "document-pickle", "parameters": 7}, "holds pickles"),
    ],
    ids=repr,
)
def test_a_header_that_names_something_else(description: Any, text: str, tmp_path: Path) -> None:
    """What it names is not imported and not run, only shown."""
    HandWriter.create(tmp_path, "document", "|u1", description)
    with pytest.raises(MismatchError, match=text) as raised:
        guideloom.open(tmp_path)
    assert len(str(raised.value)) < 500
    assert len(guideloom.open(tmp_path, Plain()).sync_reader().open()) == 0


@pytest.mark.parametrize(
    "parameters",
    [{}, None, [], {"dtype": None}, {"dtype": "O"}, {"dtype": ">u2"}, {"dtype": "uint16"},
     {"dtype": 7}, {"dtype": [["a"]]}, {"dtype": "<M8[s]"}],
    ids=repr,
)  # fmt: skip
def test_a_header_that_describes_no_type(parameters: Any, tmp_path: Path) -> None:
    HandWriter.create(
        tmp_path, "document", "<u2", {"name": "document-numpy", "parameters": parameters}
    )
    with pytest.raises(DamagedFileError, match=r"dtype is .*; expected a .*dtype description"):
        guideloom.open(tmp_path)


def test_a_header_whose_types_differ(tmp_path: Path) -> None:
    description = {"name": "document-numpy", "parameters": {"dtype": "<u4"}}
    HandWriter.create(tmp_path, "document", "<u2", description)
    with pytest.raises((MismatchError, DamagedFileError), match=r"<u2.*<u4|<u4.*<u2"):
        guideloom.open(tmp_path)


def test_unknown_parameters_are_ignored(tmp_path: Path) -> None:
    """A later release may add some."""
    description = {"name": "document-json", "parameters": {"new": 1}, "more": [2]}
    writer = HandWriter.create(tmp_path, "document", "|u1", description)
    writer.publish([document_part(0, 0, [b"[1]", b'"\xc3\xa9"'])], 0, "all")
    with open_documents(tmp_path).sync_reader() as reader:
        assert reader[:] == [[1], "é"]


def test_no_dataset(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(
            DatasetNotFoundError,
            match=re.escape(f"{directory} holds no dataset: the file guideloom.json is not there."),
        ):
            guideloom.open(directory)
        assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("written, opened", [*itertools.permutations(BUILT_IN, 2)])
def test_another_built_in_format_is_refused(written: str, opened: str, tmp_path: Path) -> None:
    """By reader, writer and `open`, before anything is read or written; both are shown."""
    with DocumentStorage(tmp_path / "x", BUILT_IN[written]).sync_writer():
        pass
    before = all_files(tmp_path / "x")
    other = DocumentStorage(tmp_path / "x", BUILT_IN[opened])
    for call in (
        other.sync_reader().open,
        other.sync_writer().open,
        lambda: guideloom.open(tmp_path / "x", BUILT_IN[opened]),
    ):
        with pytest.raises(MismatchError) as raised:
            call()
        text = str(raised.value)
        assert text.startswith(f"{tmp_path / 'x'} ")
        assert text.endswith("; open it with the format that it was written with")
        one, two = ways_to_show(BUILT_IN[written]), ways_to_show(BUILT_IN[opened])
        assert any(a in text and b in text for a, b in zip(one, two, strict=True)), text
    assert all_files(tmp_path / "x") == before


def ways_to_show(form: Any) -> list[str]:
    """The format by its name, or by the type of its values."""
    dtype = DocumentStorage("x", form).element_type
    shown = dtype.str if dtype.names is None else str([[*field] for field in dtype.descr])[:12]
    return [repr(form.name), shown]


def test_another_kind_of_dataset_is_refused(tmp_path: Path) -> None:
    stream = StreamStorage(tmp_path / "stream", StreamNumpyFormat([("a", "u1")]))
    documents = DocumentStorage(tmp_path / "documents", DocumentBytesFormat())
    for storage in (stream, documents):
        with storage.sync_writer():
            pass
    for call in (
        DocumentStorage(stream.directory, DocumentBytesFormat()).sync_reader().open,
        DocumentStorage(stream.directory, DocumentBytesFormat()).sync_writer().open,
    ):
        with pytest.raises(MismatchError, match="kind 'stream', it was opened as 'document'"):
            call()
    with pytest.raises(MismatchError, match="kind 'document', it was opened as 'stream'"):
        StreamStorage(documents.directory, stream.storage_format).sync_reader().open()


def test_storages_and_formats_are_pickled(tmp_path: Path) -> None:
    """They go to worker processes."""
    for form in BUILT_IN.values():
        storage = pickle.loads(pickle.dumps(DocumentStorage(tmp_path, form, MmapIO())))
        assert type(storage) is DocumentStorage
        assert type(storage.storage_format) is type(form)
        assert storage.directory == tmp_path
        assert storage.element_type == DocumentStorage(tmp_path, form).element_type
        assert storage.read_interface == MmapIO()

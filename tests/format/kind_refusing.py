"""The same small dataset of each new kind, by hand, with faults; and what both readers say."""

from pathlib import Path
from typing import Any

import pytest

from format.independent import OpenDataset
from format.independent_documents import IndependentDocuments
from format.independent_json import RefusedError
from format.independent_spans import IndependentSpans
from format.independent_writing import HandWriter, MadePart, ends_file, spans_file
from format.kind_agreement import document_storage, raw, span_storage
from format.kind_cases import SPANS_FORMAT
from guideloom import GuideLoomError
from guideloom_read import verify

KINDS = ["document", "stream-with-meta"]
NUMPY_FORMAT = {"name": "document-numpy", "parameters": {"dtype": "<u2"}}

# Documents "abcd", "", "ef" of <u2; elements "aabbccdd" of <u2 in three spans, one of them empty.
CONTENTS = {
    "document": {"documents": b"abcdef", "ends": ends_file([4, 4, 6])},
    "stream-with-meta": {
        "elements": b"aabbccdd",
        "payloads": b"pqrs",
        "spans": spans_file([(3, 1), (3, 2), (4, 4)]),
    },
}
LENGTHS = {"document": 3, "stream-with-meta": 4}


def write(
    path: Path, kind: str, publisher: str, length: int | None = None, **contents: Any
) -> MadePart:
    """A dataset of one part with the usual contents except these; `_` in a role stands for `.`.

    `publisher` is "record" or "manifest".
    """
    given = {role.replace("_", "."): content for role, content in contents.items()}
    whole = LENGTHS[kind] if length is None else length
    part = MadePart(3, 0, whole, {**CONTENTS[kind], **given})
    form = NUMPY_FORMAT if kind == "document" else SPANS_FORMAT
    writer = HandWriter.create(path, kind, "<u2", form)
    writer.publish([part], int(publisher == "manifest"), "rest")
    return part


def independent(path: Path, kind: str) -> OpenDataset:
    return IndependentDocuments(path) if kind == "document" else IndependentSpans(path)


def packaged(path: Path, kind: str) -> Any:
    return document_storage(path, "<u2") if kind == "document" else span_storage(path, "<u2")


def read_whole(reader: Any, kind: str) -> Any:
    if kind == "document":
        return [raw(document) for document in reader.read_many(range(len(reader)))]
    window = reader.read(0, len(reader))
    return window.stream.tobytes(), window.payloads, window.span_index.tolist()


def check_both_refuse_to_open(path: Path, kind: str, match: str) -> None:
    with pytest.raises(RefusedError):
        independent(path, kind)
    with pytest.raises(GuideLoomError, match=match), packaged(path, kind).sync_reader():
        pass
    assert not verify(path).clean


def check_both_read(path: Path, kind: str) -> None:
    """Both readers give the usual contents."""
    ours = independent(path, kind)
    ours.verify()
    if isinstance(ours, IndependentDocuments):
        assert [ours.read(k) for k in range(3)] == [b"abcd", b"", b"ef"]
        expected: Any = [b"abcd", b"", b"ef"]
    else:
        assert isinstance(ours, IndependentSpans)
        elements, pieces = ours.window(0, 4)
        assert elements.tobytes() == b"aabbccdd"
        assert pieces == [(0, 3, 0, b"p", 3), (3, 1, 2, b"rs", 3)]
        expected = (b"aabbccdd", [b"p", b"rs"], [0, 0, 0, 1])
    with packaged(path, kind).sync_reader() as reader:
        assert reader.fingerprint == ours.fingerprint
        assert read_whole(reader, kind) == expected
    report = verify(path)
    assert report.clean, report.faults


def check_both_refuse_to_read(path: Path, kind: str, match: str) -> None:
    """They open it, since nothing is wrong with what is said; verification finds the file."""
    ours = independent(path, kind)
    with pytest.raises((RefusedError, FileNotFoundError)):
        ours.verify()
    with packaged(path, kind).sync_reader() as reader:
        assert len(reader) == len(ours)
        with pytest.raises(GuideLoomError, match=match):
            read_whole(reader, kind)
    assert not verify(path).clean

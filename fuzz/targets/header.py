"""`guideloom.json`, and the storage format that it names."""

from __future__ import annotations

from typing import Any

import numpy as np

from guideloom_format import (
    DamagedFileError,
    DataError,
    Header,
    MismatchError,
    UnsupportedFormatError,
)
from guideloom_format._built_in import built_in_format, check_same_format, describe
from guideloom_format._storage import STORAGE_OF_KIND
from targets.base import Target, attempt
from targets.mutation import mutate_sealed

WHERE = "folder/guideloom.json"
MAX_ITEMSIZE = 1 << 24
DATASET_ID = "00112233445566778899aabbccddeeff"


def feed(data: bytes) -> None:
    header = attempt(
        lambda: Header.decode(data, WHERE), DamagedFileError, UnsupportedFormatError, names=WHERE
    )
    if header is None:
        return
    assert header.kind in STORAGE_OF_KIND
    assert 1 <= header.element_type.itemsize <= MAX_ITEMSIZE
    assert not header.element_type.hasobject
    encoded = attempt(header.encode, DataError)
    if encoded is not None:
        assert Header.decode(encoded, WHERE) == header
    open_as_described(header)


def open_as_described(header: Header) -> None:
    """What `guideloom.open` does with a header."""
    form: Any = attempt(
        lambda: built_in_format(header, WHERE),
        MismatchError,
        DamagedFileError,
        UnsupportedFormatError,
        names=WHERE,
    )
    if form is None:
        return
    storage = STORAGE_OF_KIND[header.kind]("folder", form)

    def check() -> bool:
        header.check_opened_as(storage.kind, storage.element_type, "folder")
        check_same_format(header, form, "folder")
        return True

    if attempt(check, MismatchError, names="folder"):
        assert describe(form)["name"] == header.storage_format["name"]


def header_of(kind: str, dtype: Any, storage_format: dict[str, Any]) -> bytes:
    """A header that a reader opens, most often."""
    return Header(
        kind=kind,
        element_type=np.dtype(dtype),
        storage_format=storage_format,
        dataset_id=DATASET_ID,
        user={"tokenizer": "none", "list": [1, {"deep": [0.5]}]},
        optional_features=("x",),
        written_by="a program 1.0",
    ).encode()


def seeds() -> list[bytes]:
    record = [("tokens", "<u2"), ("loss", "|b1"), ("half", "<u2", (2, 3)), ("odd", "|u1")]
    views = {"half": "bfloat16", "odd": "float8_e4m3fn"}
    numpy_format = {"name": "document-numpy", "parameters": {"dtype": "<u4"}}
    nested = [["a", [["b", "<f4"], ["", "|V4"], ["c", "<U3", [2]]]], ["d", "<c16"]]
    structured = {"name": "document-numpy", "parameters": {"dtype": nested}}
    inner = np.dtype([("b", "<f4"), ("", "V4"), ("c", "<U3", (2,))])
    return [
        header_of("stream", record, {"name": "stream-numpy", "parameters": {"views": views}}),
        header_of("stream", record, {"name": "stream-numpy", "parameters": {}}),
        header_of("stream", "<f8", {"class": "module.Format"}),
        header_of("document", "<u4", numpy_format),
        header_of("document", "|u1", {"name": "document-json", "parameters": {}}),
        header_of("document", "|u1", {"name": "document-pickle", "parameters": {}}),
        header_of(
            "document",
            np.dtype([("a", inner), ("d", "<c16")]),
            structured,
        ),
        header_of(
            "stream-with-meta",
            "<u2",
            {"name": "stream-spans", "parameters": {"payload_format": numpy_format}},
        ),
        header_of(
            "stream-with-meta",
            record,
            {
                "name": "stream-spans",
                "parameters": {"payload_format": {"name": "document-bytes"}, "views": views},
            },
        ),
    ]


TARGET = Target("header", feed, mutate_sealed, seeds)

"""Small good datasets of every kind, from the independent writer, and files outside of them.

Each has the parts (0, 0), (0, 1) and (1, 0). Everything in them is fixed, so that a vector can
name a file. Beside the dataset lies a folder with files of the same names and sizes that hold
canaries: a reader that is led there gives them away.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from format.independent_writing import (
    TOKEN,
    HandWriter,
    MadePart,
    document_part,
    span_part,
)
from guideloom_format import (
    DocumentBytesFormat,
    DocumentJSONFormat,
    DocumentNumpyFormat,
    DocumentStorage,
    StreamNumpyFormat,
    StreamSpansFormat,
    StreamStorage,
    StreamWithMetaStorage,
)

TOKENS = np.dtype([("token", "<u2")])
BYTES = {"name": "document-bytes", "parameters": {}}
OTHER_ID = "ffeeddccbbaa99887766554433221100"
CANARY = b"\xca\xfe"
"""No good dataset has these two bytes side by side, and canaries have nothing else."""

Storage = StreamStorage | StreamWithMetaStorage | DocumentStorage


class _OpensAFile:
    """Unpickled, it creates the file `unpickled`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, ("unpickled", "w")


@dataclass(frozen=True)
class Base:
    """A good dataset.

    Attributes:
        kind: of the dataset.
        element_type, storage_format: for its header.
        parts: what is in it.
    """

    kind: str
    element_type: Any
    storage_format: dict[str, Any]
    parts: tuple[MadePart, ...]

    def write(self, path: Path, *, manifest: bool) -> None:
        """Write it, published by records, and by a manifest as well."""
        writer = HandWriter.create(path, self.kind, self.element_type, self.storage_format)
        writer.publish(self.parts, len(self.parts) if manifest else 0, "all")


def _u2(numbers: range) -> bytes:
    return np.array(numbers, "<u2").tobytes()


def _stream() -> Iterator[MadePart]:
    for shard, number, numbers in ((0, 0, range(20)), (0, 1, range(20, 30)), (1, 0, range(50))):
        yield MadePart(shard, number, len(numbers), {"elements": _u2(numbers)})


def _spans() -> Iterator[MadePart]:
    yield span_part(0, 0, _u2(range(8)), [(3, b"abc"), (0, b"de"), (5, b"")])
    yield span_part(0, 1, _u2(range(8, 12)), [(4, b"f")])
    yield span_part(1, 0, _u2(range(40)), [(30, b"ghij"), (10, b"k")])


def _documents(values: list[list[bytes]]) -> Iterator[MadePart]:
    for (shard, number), documents in zip(((0, 0), (0, 1), (1, 0)), values, strict=True):
        yield document_part(shard, number, documents)


_NUMBERS = [[b"abcd", b"", b"ef"], [b"ghij"], [b"klmn" * 9, b"op"]]
_VALUES = [[b'{"a":1}', b"[]", b'"x"'], [b"null"], [b"[1,2,3]", b"0.5"]]


@cache
def bases() -> dict[str, Base]:
    """Every good dataset by its name."""
    spans = {"name": "stream-spans", "parameters": {"payload_format": BYTES}}
    arrays = {"name": "document-numpy", "parameters": {"dtype": "<u2"}}
    values = {"name": "document-json", "parameters": {}}
    pickles = {"name": "document-pickle", "parameters": {}}
    hostile = [[pickle.dumps(_OpensAFile())]] * 3
    return {
        "stream": Base("stream", [["token", "<u2"]], stream_format(), tuple(_stream())),
        "document": Base("document", "<u2", arrays, tuple(_documents(_NUMBERS))),
        "stream-with-meta": Base("stream-with-meta", "<u2", spans, tuple(_spans())),
        "json": Base("document", "|u1", values, tuple(_documents(_VALUES))),
        "pickle": Base("document", "|u1", pickles, tuple(_documents(hostile))),
    }


def stream_format() -> dict[str, Any]:
    return {"name": "stream-numpy", "parameters": {}}


def storage(base: str, path: Path, io: Any = None, **more: Any) -> Storage:
    """The storage that a program would open the dataset with."""
    if base == "stream":
        return StreamStorage(path, StreamNumpyFormat(TOKENS), io, **more)
    if base == "stream-with-meta":
        form = StreamSpansFormat("<u2", DocumentBytesFormat())
        return StreamWithMetaStorage(path, form, io, **more)
    forms: dict[str, Any] = {"document": DocumentNumpyFormat("<u2"), "json": DocumentJSONFormat()}
    return DocumentStorage(path, forms.get(base, DocumentBytesFormat()), io, **more)


def contents(base: str, reader: Any) -> bytes:
    """All that a reader shows, as bytes."""
    if base == "stream":
        tokens: bytes = reader.read(0, len(reader))["token"].tobytes()
        return tokens
    if base == "stream-with-meta":
        window = reader.read(0, len(reader))
        return b"|".join(
            [window.stream.tobytes(), window.span_index.tobytes(), *map(bytes, window.payloads)]
        )
    documents = reader.read_many(range(len(reader)))
    if base == "json":
        return json.dumps(documents).encode("ascii")
    return b"|".join(bytes(memoryview(document).cast("B")) for document in documents)


def more_data(base: str) -> Any:
    """Something to append."""
    if base == "stream":
        return {"token": np.arange(7)}
    if base == "stream-with-meta":
        return np.arange(3), [1, 2], [b"x", b"y"]
    return {"json": [1]}.get(base, np.arange(5, dtype="u1") if base == "pickle" else [1, 2])


def plant_canaries(outside: Path, base: Base) -> None:
    """Beside the dataset: files that a hostile name may lead to, as large as the real ones.

    Also a whole dataset of the same shape, with another id and nothing but canaries in it.
    """
    outside.mkdir()
    (outside / "secret").write_bytes(CANARY * 500)
    parts = [
        MadePart(
            part.shard,
            part.number,
            part.length,
            {
                role: (CANARY * len(content))[: len(content)] if role in _CONTENT else content
                for role, content in part.contents.items()
            },
        )
        for part in base.parts
    ]
    other = HandWriter.create(
        outside / "dataset", base.kind, base.element_type, base.storage_format, OTHER_ID
    )
    other.publish(parts, len(parts), "all")
    (outside / "orphans").mkdir()
    for role in ("elements", "documents", "ends"):  # with another token: no record names it
        (outside / f"orphans/0001000-0000-{OTHER_ID[:16]}.{role}").write_bytes(CANARY)
    for part in parts:
        for file in (outside / "dataset/data").glob(f"{part.stem}.*"):
            (outside / file.name).write_bytes(file.read_bytes())


_CONTENT = ("elements", "documents", "payloads")
DATA = f"data/0000/0000000-0001-{TOKEN}"
"""What the names of the data files of part 1 of shard 0 begin with."""


@cache
def expected_contents(base: str) -> bytes:
    """What `contents` must give, made from the parts and not by a reader."""
    parts = bases()[base].parts
    if base == "stream":
        return b"".join(part.contents["elements"] for part in parts)
    if base == "stream-with-meta":
        elements = b"".join(part.contents["elements"] for part in parts)
        counts, payloads = [], []
        for part in parts:
            at = begin = 0
            pairs = np.frombuffer(part.contents["spans"], "<i8").reshape(-1, 2)
            for end, payload_end in pairs.tolist():
                if end > at:  # spans without elements lie in no window
                    counts.append(end - at)
                    payloads.append(part.contents["payloads"][begin:payload_end])
                at, begin = end, payload_end
        index = np.repeat(np.arange(len(counts)), counts)
        return b"|".join([elements, index.tobytes(), *payloads])
    documents = []
    for part in parts:
        ends: list[int] = np.frombuffer(b"\0" * 8 + part.contents["ends"], "<i8").tolist()
        documents += [part.contents["documents"][a:b] for a, b in pairwise(ends)]
    if base == "json":
        return json.dumps([json.loads(document) for document in documents]).encode("ascii")
    return b"|".join(documents)

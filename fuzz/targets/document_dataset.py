"""Documents whose ends are hostile, in a dataset of which all else is right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

import guideloom
from guideloom_format import DamagedFileError
from guideloom_read import DocumentReader, verify
from targets.base import Target, attempt
from targets.header import header_of
from targets.memory_io import DIRECTORY, MemoryIO, part_files
from targets.taking import Taking, mutate_plain

FORMATS = [
    ("|u1", {"name": "document-bytes", "parameters": {}}),
    ("<u2", {"name": "document-numpy", "parameters": {"dtype": "<u2"}}),
]


@dataclass(frozen=True)
class Part:
    """The two files of a part."""

    ends: list[int]
    content: bytes

    def document(self, k: int, itemsize: int) -> bytes | None:
        """Document k; None if its ends cannot be."""
        start, end, size = (0 if k == 0 else self.ends[k - 1]), self.ends[k], len(self.content)
        last = k == len(self.ends) - 1
        fits = 0 <= start <= end <= size and (end - start) % itemsize == 0
        return self.content[start:end] if fits and not (last and end != size) else None

    def right(self, itemsize: int) -> bool:
        """Whether all ends are as the format's page wants them."""
        return all(self.document(k, itemsize) is not None for k in range(len(self.ends)))


def feed(data: bytes) -> None:
    taking = Taking(data)
    dtype, storage_format = FORMATS[taking.below(2)]
    itemsize = np.dtype(dtype).itemsize
    parts = [take_part(taking, itemsize) for _ in range(1 + taking.below(3))]
    files = {"guideloom.json": header_of("document", dtype, storage_format)}
    for k, part in enumerate(parts):
        ends = np.array(part.ends, dtype="<i8").tobytes()
        contents = {"documents": part.content, "ends": ends}
        files |= part_files(k, 0, len(part.ends), contents)
    io = MemoryIO(files)
    report = verify(DIRECTORY, io)
    right = all(part.right(itemsize) for part in parts)
    assert report.clean == right, report
    assert all(fault.file.endswith(".ends") and fault.stop for fault in report.faults)
    storage = guideloom.open(DIRECTORY, read_interface=io)
    documents = [part.document(k, itemsize) for part in parts for k in range(len(part.ends))]
    with storage.sync_reader() as reader:
        assert isinstance(reader, DocumentReader)
        read_all(reader, documents)


def take_part(taking: Taking, itemsize: int) -> Part:
    ends, at = list[int](), 0
    kind = taking.below(4)
    for _ in range(taking.below(8)):
        if kind:
            at += itemsize * taking.below(6)
            ends.append(at)
        else:
            ends.append(taking.number(24))
    size = taking.below(24) // itemsize * itemsize if kind <= 1 else at
    return Part(ends, taking.take(size) if ends else b"")


def read_all(reader: DocumentReader, documents: list[bytes | None]) -> None:
    """One document at a time, then all that can be, in every way."""
    for k, document in enumerate(documents):
        found = attempt(partial(reader.read, k), DamagedFileError, names=".ends")
        assert (found is None) == (document is None)
        assert found is None or bytes(found) == document
    whole = attempt(lambda: reader.read_many(range(len(documents))), DamagedFileError)
    assert (whole is None) == (None in documents)
    ids = [k for k, document in enumerate(documents) if document is not None]
    known = [document for document in documents if document is not None]
    assert reader.gather(ids).values.tobytes() == b"".join(known)
    padded = reader.gather_padded(ids)
    for k, document in enumerate(known):
        assert padded.values[k, : padded.lengths[k]].tobytes() == document


def seeds() -> list[bytes]:
    return [
        bytes([0, 1, 2, 4, 3, 0, 5, 2]) + b"0123456789" + bytes([2, 1, 4]) + b"abcd",
        bytes([1, 0, 3, 3, 2, 0, 1]) + bytes(range(20)),
        bytes([0, 0, 0, 3, 2, 5, 9, 9]) + b"012345678",
        bytes([0, 2, 0, 2, 250, 255, 255, 255, 255, 255, 255, 255, 255, 230, 20]) + b"x" * 30,
    ]


TARGET = Target("document_dataset", feed, mutate_plain, seeds)

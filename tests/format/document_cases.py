"""Documents written with a storage format and read back in every way that there is."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from guideloom_format import DocumentStorage, DocumentStorageFormat
from guideloom_write import DocumentWriter
from write.faulty_files import Watched


def without_address(value: object) -> str:
    """The same text for the same value in every process, for the name of a test."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


class Plain:
    """A custom format that keeps bytes and says which shard they came from."""

    def pack(self, data: Any) -> Any:
        return data

    def unpack(self, buffer: memoryview, shard: int) -> tuple[bytes, int]:
        return bytes(buffer), shard


class Typed(Plain):
    """The same with a type of values."""

    def __init__(self, dtype: Any = "<u4") -> None:
        self.document_dtype = np.dtype(dtype)


class Kept:
    """A custom format whose documents are the very buffers that `unpack` is given."""

    def pack(self, data: Any) -> Any:
        return data

    def unpack(self, buffer: memoryview, shard: int) -> memoryview:
        del shard
        return buffer


def is_document_format(storage_format: DocumentStorageFormat) -> DocumentStorageFormat:
    """Checked by mypy: what is above fits the protocol without inheriting from it."""
    return storage_format


def writer_at(directory: Path, storage_format: Any) -> DocumentWriter:
    return DocumentWriter(DocumentStorage(directory, storage_format), files=Watched())


def write(directory: Path, storage_format: Any, documents: Sequence[Any], shard: int = 3) -> None:
    """Half of the documents one by one, the others together."""
    half = len(documents) // 2
    with writer_at(directory, storage_format) as writer:
        for document in documents[:half]:
            writer.append(shard, document)
        writer.extend(shard, documents[half:])
        assert writer.length(shard) == len(documents)


def stored(directory: Path, storage_format: Any) -> list[bytes]:
    """The bytes of each document."""
    with DocumentStorage(directory, storage_format).sync_reader() as reader:
        ragged = reader.gather(np.arange(len(reader)))
        assert ragged.values.dtype == getattr(storage_format, "document_dtype", np.uint8)
        return [array.tobytes() for array in ragged.arrays()]


def round_trip(directory: Path, storage_format: Any, documents: Sequence[Any]) -> list[Any]:
    """What comes back; `unpack`, which is for a single document, gives the same."""
    write(directory, storage_format, documents)
    with DocumentStorage(directory, storage_format).sync_reader() as reader:
        found = reader.read_many(range(len(reader)))
        for k, document in enumerate(found):
            assert repr(reader.read(k)) == repr(document)
    for content, document in zip(stored(directory, storage_format), found, strict=True):
        single = storage_format.unpack(memoryview(bytearray(content)), 3)
        assert repr(single) == repr(document)
    return found


class Level(enum.IntEnum):
    HIGH = 3


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def circular() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = [value]
    return value

"""The three kinds of data as lists of items, each different from all others.

An item of a stream is a number, one of a document dataset a string of bytes, one of a stream with
metadata a number with the payload of its span. `sizes` says how items are cut: into documents of
these sizes, into spans of these lengths; a stream has their sum.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from guideloom_format import (
    DocumentBytesFormat,
    DocumentStorage,
    StreamNumpyFormat,
    StreamSpansFormat,
    StreamStorage,
    StreamWithMetaStorage,
)
from guideloom_format._storage import Storage
from guideloom_read import DocumentDataset, StreamDataset
from guideloom_write import DocumentWriter, StreamWithMetaWriter, StreamWriter
from guideloom_write._files import PosixFiles
from guideloom_write._shard_writer import ShardWriter

RECORD = np.dtype([("n", "<u4"), ("rest", "u1")])
LENGTH = 3
"""Elements in a sample of a stream."""


@dataclass
class Batch:
    """What one append gives to a shard.

    Attributes:
        items: that a reader finds.
        spans: how many spans they are in, those without elements too.
        data: for `append`.
    """

    items: list[Any]
    spans: int = 0
    data: Any = None


@dataclass
class KnownKind(ABC):
    """One kind of data, of which no item comes twice."""

    next: int = field(default=0, init=False)

    @property
    @abstractmethod
    def name(self) -> str:
        """Of the kind."""

    @abstractmethod
    def storage(self, directory: Path, version: int | None = None) -> Any:
        """The dataset's storage."""

    @abstractmethod
    def writer(self, storage: Storage, files: PosixFiles, *, take_over: bool) -> ShardWriter:
        """A writer, not open yet."""

    @abstractmethod
    def make(self, sizes: Sequence[int]) -> Batch:
        """New items."""

    def append(self, writer: Any, shard: int, batch: Batch, *, together: bool) -> None:
        """Give the batch to a writer; `together` where there are two ways."""
        del together
        writer.append(shard, batch.data)

    @abstractmethod
    def read(self, reader: Any, start: int, stop: int) -> list[Any]:
        """The items from `start` to `stop`, in one read."""

    @abstractmethod
    def read_many(self, reader: Any, starts: list[int], length: int) -> list[list[Any]]:
        """The runs of `length` items from these starts."""

    def check_spans(self, reader: Any, spans: int) -> None:
        """Whether the reader counts so many spans, if the kind has any."""
        del reader
        assert spans == 0

    @abstractmethod
    def samples(self, items: Sequence[Any]) -> list[Any]:
        """What a loader delivers of these items, in the order of the dataset."""

    @abstractmethod
    def sample(self, found: Any) -> Any:
        """What a loader delivered, as in `samples`."""

    def dataset(self, storage: Any) -> Any:
        """The samples of a storage."""
        return StreamDataset(storage, LENGTH)

    def _numbers(self, count: int) -> list[int]:
        first, self.next = self.next, self.next + count
        return list(range(first, first + count))


@dataclass
class Elements(KnownKind):
    """A stream of records."""

    name = "stream"

    def storage(self, directory: Path, version: int | None = None) -> StreamStorage:
        return StreamStorage(directory, StreamNumpyFormat(RECORD), version=version)

    def writer(self, storage: Any, files: PosixFiles, *, take_over: bool) -> StreamWriter:
        return StreamWriter(storage, files=files, take_over=take_over)

    def make(self, sizes: Sequence[int]) -> Batch:
        items = self._numbers(sum(sizes))
        numbers = np.array(items, dtype=np.uint32)
        return Batch(items, 0, {"n": numbers, "rest": (numbers % 251).astype(np.uint8)})

    def read(self, reader: Any, start: int, stop: int) -> list[int]:
        return self.sample(reader.read(start, stop - start))

    def read_many(self, reader: Any, starts: list[int], length: int) -> list[list[int]]:
        return [self.sample(window) for window in reader.read_many(starts, length)]

    def samples(self, items: Sequence[Any]) -> list[list[int]]:
        return [list(items[k : k + LENGTH]) for k in range(0, len(items) - LENGTH + 1, LENGTH)]

    def sample(self, found: Any) -> list[int]:
        numbers: list[int] = found["n"].tolist()
        assert found["rest"].tolist() == [n % 251 for n in numbers]
        return numbers


@dataclass
class Documents(KnownKind):
    """Documents that each begin with their number."""

    name = "document"

    def storage(self, directory: Path, version: int | None = None) -> DocumentStorage:
        return DocumentStorage(directory, DocumentBytesFormat(), version=version)

    def writer(self, storage: Any, files: PosixFiles, *, take_over: bool) -> DocumentWriter:
        return DocumentWriter(storage, files=files, take_over=take_over)

    def make(self, sizes: Sequence[int]) -> Batch:
        items = [
            b"%d;" % n * size for n, size in zip(self._numbers(len(sizes)), sizes, strict=True)
        ]
        return Batch(items, 0, items)

    def append(self, writer: Any, shard: int, batch: Batch, *, together: bool) -> None:
        if together:
            writer.extend(shard, iter(batch.data))
        else:
            for document in batch.data:
                writer.append(shard, document)

    def read(self, reader: Any, start: int, stop: int) -> list[bytes]:
        found: list[bytes] = reader[start:stop]
        return found

    def read_many(self, reader: Any, starts: list[int], length: int) -> list[list[bytes]]:
        found = reader.read_many([start + k for start in starts for k in range(length)])
        return [found[k * length : (k + 1) * length] for k in range(len(starts))]

    def samples(self, items: Sequence[Any]) -> list[Any]:
        return list(items)

    def sample(self, found: Any) -> Any:
        return found

    def dataset(self, storage: Any) -> DocumentDataset:
        return DocumentDataset(storage)


@dataclass
class Spans(KnownKind):
    """A stream whose spans have the number of their first element and their length as payload."""

    name = "stream-with-meta"

    def storage(self, directory: Path, version: int | None = None) -> StreamWithMetaStorage:
        form = StreamSpansFormat("<u4", DocumentBytesFormat())
        return StreamWithMetaStorage(directory, form, version=version)

    def writer(self, storage: Any, files: PosixFiles, *, take_over: bool) -> StreamWithMetaWriter:
        return StreamWithMetaWriter(storage, files=files, take_over=take_over)

    def make(self, sizes: Sequence[int]) -> Batch:
        items, payloads = list[tuple[int, bytes]](), []
        for size in sizes:
            numbers = self._numbers(size)
            payloads.append(b"%d+%d" % (self.next - size, size))
            items += [(n, payloads[-1]) for n in numbers]
        elements = np.array([n for n, _ in items], dtype=np.uint32)
        return Batch(items, len(sizes), (elements, list(sizes), payloads))

    def read(self, reader: Any, start: int, stop: int) -> list[Any]:
        return self.sample(reader.read(start, stop - start))

    def read_many(self, reader: Any, starts: list[int], length: int) -> list[list[Any]]:
        return [self.sample(window) for window in reader.read_many(starts, length)]

    def check_spans(self, reader: Any, spans: int) -> None:
        assert reader.span_count == spans

    def samples(self, items: Sequence[Any]) -> list[list[Any]]:
        return [list(items[k : k + LENGTH]) for k in range(0, len(items) - LENGTH + 1, LENGTH)]

    def sample(self, found: Any) -> list[Any]:
        payloads = [found.payloads[k] for k in found.span_index.tolist()]
        assert len(found.payloads) == len(list(itertools.groupby(payloads)))
        return list(zip(found.stream.tolist(), payloads, strict=True))


KINDS = (Elements, Documents, Spans)

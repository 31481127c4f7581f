"""`StreamReader`: any window of a stream, one or many at a time.

The way of a window: `StreamIndex.plan` computes the byte ranges (no I/O), the backend's `fill`
reads them into one array of elements, the storage format makes the sample. One window is a batch
of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from guideloom_format import (
    Header,
    IOFiles,
    IOSession,
    PartTable,
    StreamIndex,
    StreamStorage,
)
from guideloom_format._index import MAX_ELEMENTS
from guideloom_format._integers import as_index, as_integer, index_array, shown
from guideloom_format._parts import ELEMENTS
from guideloom_read._contents import Contents, read_contents, read_header
from guideloom_read._file_names import FileNames
from guideloom_read.io import PosixPreadIO


@dataclass(frozen=True, slots=True)
class _Opened:
    """A dataset as it was when the reader was opened, and the means to read it."""

    session: IOSession
    files: IOFiles
    index: StreamIndex
    contents: Contents


class StreamReader:
    """Reads windows of a stream; a context manager, or `open()` and `close()`.

    It shows the dataset as it was when it was opened. Reads may run in several threads at once.
    What is returned stays valid after the reader is closed.

    Args:
        storage: the description of the dataset.

    Raises:
        DatasetNotFoundError, MismatchError, DatasetError: by `open`.
    """

    def __init__(self, storage: StreamStorage) -> None:
        self._storage = storage
        self._dtype = storage.element_type
        self._now: _Opened | None = None  # replaced as one: other threads may be reading

    def open(self) -> Self:
        """Read header and table of parts. Data files are opened when they are first read."""
        if self._now is not None:
            return self
        storage = self._storage
        directory = str(storage.directory)
        session = (storage.read_interface or PosixPreadIO()).open(directory)
        try:
            header = read_header(session, directory)
            header.check_opened_as(storage.kind, storage.element_type, directory)
            contents = read_contents(session, directory, header)
        except BaseException:
            session.close()
            raise
        files = session.open_files(
            FileNames(contents.table, ELEMENTS), contents.table.nbytes[ELEMENTS]
        )
        index = StreamIndex(contents.table.length)
        self._now = _Opened(session, files, index, contents)
        return self

    def close(self) -> None:
        """Give back files and maps. Arrays that were returned stay valid."""
        now, self._now = self._now, None
        if now is not None:
            now.files.close()
            now.session.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the description; the copy is not open."""
        return (StreamReader, (self._storage,))

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def storage(self) -> StreamStorage:
        """The description that the reader was made from."""
        return self._storage

    @property
    def header(self) -> Header:
        """What the dataset says of itself, with the writer's `user` object."""
        return self._opened().contents.header

    @property
    def fingerprint(self) -> str:
        """SHA-256 over identity and content of all parts, as they were opened."""
        return self._opened().contents.fingerprint

    def __repr__(self) -> str:
        now = self._now
        state = f"{len(now.index)} elements" if now is not None else "not open"
        return f"StreamReader({self._storage!r}), {state}"

    def __len__(self) -> int:
        """Elements over all shards."""
        return len(self._opened().index)

    def read(self, start: int, length: int) -> Any:
        """The decoded window of the elements `start` to ``start + length``; it may cross shards.

        Raises:
            IndexError: it does not lie within the stream.
        """
        start = as_integer("start", start)
        if not -(2**63) <= start < 2**63:
            raise IndexError(f"start is {shown(start)}; the stream has {len(self)} elements")
        return self.read_many([start], length)[0]

    def read_many(self, starts: ArrayLike, length: int) -> list[Any]:
        """The decoded windows of `length` elements at these starts, in the order asked.

        Raises:
            IndexError: one of them does not lie within the stream.
        """
        length = as_index("length", length, 0, MAX_ELEMENTS)
        return self.samples(index_array("starts", starts), length, stride=1)

    def windows(self, length: int, stride: int) -> int:
        """Number of windows of `length` elements that start at multiples of `stride`."""
        return self._opened().index.count(length, stride)

    def samples(self, ids: NDArray[np.int64], length: int, stride: int) -> list[Any]:
        """The decoded windows that start at ``ids * stride``."""
        now = self._opened()
        plan = now.index.plan(ids, length, self._dtype.itemsize, stride)
        elements = np.empty((ids.size, length), dtype=self._dtype)
        now.files.fill(plan, elements)
        unpack = self._storage.storage_format.unpack
        origins = self._origins(now.contents.table, plan, ids.size, length)
        return [
            unpack(window, lengths, shards)
            for window, (lengths, shards) in zip(elements, origins, strict=True)
        ]

    def elements(
        self,
        ids: NDArray[np.int64] | Sequence[int],
        length: int,
        stride: int,
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """The stored elements of many windows: (windows, length), of the storage's element type.

        Args:
            ids: windows start at ``ids * stride``.
            length: elements per window.
            stride: elements between the starts of neighbouring windows.
            out: where to put them: C-contiguous and writable, of exactly the right size.
        """
        now = self._now
        if now is None:
            now = self._opened()
        if type(ids) is not np.ndarray:
            ids = index_array("ids", ids)
        plan = now.index.plan(ids, length, self._dtype.itemsize, stride)
        if out is None:
            out = np.empty((ids.size, length), dtype=self._dtype)
        now.files.fill(plan, out)
        return out

    def _opened(self) -> _Opened:
        if self._now is None:
            raise ValueError("the reader is not open; use it in a with block, or call open() first")
        return self._now

    def _origins(
        self, table: PartTable, plan: NDArray[np.int64], count: int, length: int
    ) -> Iterator[tuple[list[int], list[int]]]:
        """For each window, how many elements came from which shards."""
        rows = iter(plan[:, [0, 2]].tolist())
        for _ in range(count):
            lengths: list[int] = []
            shards: list[int] = []
            missing = length
            while missing:
                part, nbytes = next(rows)
                taken = nbytes // self._dtype.itemsize
                missing -= taken
                shard = int(table.shard[part])
                if shards and shards[-1] == shard:
                    lengths[-1] += taken
                else:
                    lengths.append(taken)
                    shards.append(shard)
            yield lengths, shards

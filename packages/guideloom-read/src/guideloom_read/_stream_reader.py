"""`StreamReader`: any window of a stream, one or many at a time.

The way of a window: `StreamIndex.plan` computes the byte ranges (no I/O), the backend's `fill`
reads them into one array of elements, the storage format makes the sample. One window is a batch
of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from guideloom_format import (
    Header,
    IOFiles,
    IOSession,
    StreamIndex,
    StreamStorage,
)
from guideloom_format._index import MAX_ELEMENTS
from guideloom_format._integers import as_index, as_integer, index_array
from guideloom_format._parts import ELEMENTS
from guideloom_read._contents import read_contents, read_header
from guideloom_read._file_names import FileNames
from guideloom_read.io import PosixPreadIO


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
        self._session: IOSession | None = None
        self._files: IOFiles | None = None

    def open(self) -> Self:
        """Read header and table of parts. Data files are opened when they are first read."""
        if self._files is not None:
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
        self._header = header
        self._table = contents.table
        self._fingerprint = contents.fingerprint
        self._index = StreamIndex(contents.table.length)
        self._dtype = storage.element_type
        self._session = session
        self._files = session.open_files(
            FileNames(contents.table, ELEMENTS), contents.table.nbytes[ELEMENTS]
        )
        return self

    def close(self) -> None:
        """Give back files and maps. Arrays that were returned stay valid."""
        files, session = self._files, self._session
        self._files = self._session = None
        if files is not None:
            files.close()
        if session is not None:
            session.close()

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
        self._opened()
        return self._header

    @property
    def fingerprint(self) -> str:
        """SHA-256 over identity and content of all parts, as they were opened."""
        self._opened()
        return self._fingerprint

    def __repr__(self) -> str:
        state = f"{len(self._index)} elements" if self._files is not None else "not open"
        return f"StreamReader({self._storage!r}), {state}"

    def __len__(self) -> int:
        """Elements over all shards."""
        self._opened()
        return len(self._index)

    def read(self, start: int, length: int) -> Any:
        """The decoded window of the elements `start` to ``start + length``; it may cross shards.

        Raises:
            IndexError: it does not lie within the stream.
        """
        start = as_integer("start", start)
        if not -(2**63) <= start < 2**63:
            raise IndexError(f"start is {start}; the stream has {len(self)} elements")
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
        self._opened()
        return self._index.count(length, stride)

    def samples(self, ids: NDArray[np.int64], length: int, stride: int) -> list[Any]:
        """The decoded windows that start at ``ids * stride``."""
        files = self._opened()
        plan = self._index.plan(ids, length, self._dtype.itemsize, stride)
        elements = np.empty((ids.size, length), dtype=self._dtype)
        files.fill(plan, elements)
        unpack = self._storage.storage_format.unpack
        origins = self._origins(plan, ids.size, length)
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
        files = self._files
        if files is None:
            files = self._opened()
        plan = self._index.plan(ids, length, self._dtype.itemsize, stride)
        if out is None:
            out = np.empty((len(ids), length), dtype=self._dtype)
        files.fill(plan, out)
        return out

    def _opened(self) -> IOFiles:
        if self._files is None:
            raise ValueError("the reader is not open; use it in a with block, or call open() first")
        return self._files

    def _origins(
        self, plan: NDArray[np.int64], count: int, length: int
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
                shard = int(self._table.shard[part])
                if shards and shards[-1] == shard:
                    lengths[-1] += taken
                else:
                    lengths.append(taken)
                    shards.append(shard)
            yield lengths, shards

"""`StreamReader`: any window of a stream, one or many at a time.

The way of a window: `StreamIndex.plan` computes the byte ranges (no I/O), the backend's `fill`
reads them into one array of elements, the storage format makes the sample. One window is a batch
of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from guideloom_format import PartTable, StreamIndex, StreamStorage
from guideloom_format._index import MAX_ELEMENTS
from guideloom_format._integers import as_index, as_integer, index_array, shown
from guideloom_format._storage import Storage
from guideloom_read._reader import MUCH_MEMORY, OpenDataset, Reader


@dataclass(frozen=True, slots=True)
class OpenStream(OpenDataset):
    """A stream as it was when it was opened."""

    index: StreamIndex


Opened = TypeVar("Opened", bound=OpenStream)


class WindowReader(Reader[Opened]):
    """What the readers of both kinds of streams share: windows, and their elements."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._dtype = storage.element_type

    def __repr__(self) -> str:
        now = self._now
        state = f"{len(now.index)} elements" if now is not None else "not open"
        return f"{type(self).__name__}({self._storage!r}), {state}"

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
        raise NotImplementedError

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
        return self.read_windows(ids, length, stride, out)[2]

    def read_windows(
        self,
        ids: NDArray[np.int64] | Sequence[int],
        length: int,
        stride: int,
        out: NDArray[Any] | None = None,
    ) -> tuple[Opened, NDArray[np.int64], NDArray[Any]]:
        """The elements, with the dataset and the plan that they were read by; see `elements`."""
        now = self._now
        if now is None:
            now = self._opened()
        if type(ids) is not np.ndarray:
            ids = index_array("ids", ids)
        plan = now.index.plan(ids, length, self._dtype.itemsize, stride)
        if out is None:
            nbytes = ids.size * length * self._dtype.itemsize
            if nbytes >= MUCH_MEMORY:
                now.look_at(plan, nbytes)
            out = np.empty((ids.size, length), dtype=self._dtype)
        now.files.fill(plan, out)
        return now, plan, out

    def announce_windows(
        self,
        ids: NDArray[np.int64] | Sequence[int],
        length: int,
        stride: int,
        then: NDArray[np.int64] | Sequence[int] | None = None,
        *,
        payloads: bool = True,
    ) -> None:
        """Tell the backend that these windows will be read soon; see `StreamDatasetReader`."""
        del then, payloads  # of streams with metadata
        now = self._opened()
        if now.announces:
            now.announce(now.index.plan(ids, length, self._dtype.itemsize, stride))


class StreamReader(WindowReader[OpenStream]):
    """Reads windows of a stream; a context manager, or `open()` and `close()`.

    It shows the dataset as it was when it was opened. Reads may run in several threads at once.
    What is returned stays valid after the reader is closed.

    Args:
        storage: the description of the dataset.

    Raises:
        DatasetNotFoundError, MismatchError, DatasetError: by `open`.
    """

    def _prepare(self, dataset: OpenDataset) -> OpenStream:
        return OpenStream(
            dataset.directory,
            dataset.session,
            dataset.files,
            dataset.contents,
            StreamIndex(dataset.table.length),
        )

    @property
    def storage(self) -> StreamStorage:
        """The description that the reader was made from."""
        storage: StreamStorage = self._storage
        return storage

    def samples(self, ids: NDArray[np.int64], length: int, stride: int) -> list[Any]:
        """The decoded windows that start at ``ids * stride``."""
        now, plan, elements = self.read_windows(ids, length, stride)
        unpack = self._storage.storage_format.unpack
        origins = self._origins(now.table, plan, ids.size, length)
        return [
            unpack(window, lengths, shards)
            for window, (lengths, shards) in zip(elements, origins, strict=True)
        ]

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

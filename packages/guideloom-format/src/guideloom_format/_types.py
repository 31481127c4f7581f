"""The structural types that users implement; nothing to inherit from."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class StreamStorageFormat(Protocol):
    """Encoder and decoder of a stream: what `StreamStorage` needs.

    Optional: ``unpack_batch(stream)``, which takes the elements of many windows as an array of
    shape (batch, sequence_length) and returns the batch. With it, `gather` and a loader without
    `collate_fn` run no Python code per sample.
    """

    @property
    def stream_dtype(self) -> np.dtype[Any]:
        """The type of one element."""

    def pack(self, data: Any) -> NDArray[Any]:
        """The elements of `data`, 1-d, of `stream_dtype`."""

    def unpack(
        self, stream: NDArray[Any], shard_lengths: Sequence[int], shards: Sequence[int]
    ) -> Any:
        """The sample for a window.

        Args:
            stream: the window's elements, 1-d, of `stream_dtype`.
            shard_lengths: ``shard_lengths[i]`` elements came from ``shards[i]``, in order.
            shards: shard numbers.
        """


@runtime_checkable
class DocumentStorageFormat(Protocol):
    """Encoder and decoder of documents: what `DocumentStorage` needs.

    Optional: ``document_dtype``, the type of the values that documents are arrays of, which
    `gather` then returns (uint8 when left out); and ``unpack_batch(values, offsets)``, which takes
    many documents one behind the other, document k being ``values[offsets[k]:offsets[k + 1]]``,
    and returns a list.
    """

    def pack(self, data: Any) -> Any:
        """The document's bytes: any contiguous buffer of bytes."""

    def unpack(self, buffer: memoryview, shard: int) -> Any:
        """The document.

        Args:
            buffer: its bytes, writable, in memory that is this batch's own.
            shard: the shard that it lies in.
        """


SpanRuns = tuple[NDArray[Any], Iterable[int], Iterable[Any]]
SpanPairs = Generator[tuple[Hashable, Any], None, NDArray[Any]]


@runtime_checkable
class StreamWithMetaStorageFormat(Protocol):
    """Encoder and decoder of a stream with metadata: what `StreamWithMetaStorage` needs.

    Optional: ``unpack_batch(stream)`` as for streams; and ``size(data)``, the number of elements,
    which is needed if `pack` is a generator.
    """

    @property
    def stream_dtype(self) -> np.dtype[Any]:
        """The type of one element."""

    def pack(self, data: Any) -> SpanRuns | SpanPairs:
        """Elements and spans, in one of two forms.

        *Runs*: a tuple of the elements, 1-d, of `stream_dtype`; the lengths of the runs, which
        add up to the number of elements; and for each run the payload, a buffer of bytes.

        *Pairs*: a generator that yields for each element a pair (key, payload or None) and returns
        the elements. A run of equal keys is one span; its first pair has the payload, the others
        None. Then ``size(data)`` says how many pairs there will be.
        """

    def unpack(
        self,
        stream: NDArray[Any],
        document_shard: Sequence[int],
        document_index: NDArray[np.int64],
        document_data: Sequence[bytes],
    ) -> Any:
        """The sample for a window.

        Args:
            stream: the window's elements, 1-d, of `stream_dtype`.
            document_shard: for each payload, the shard that it lies in.
            document_index: for each element, the number of its span's payload.
            document_data: the payloads of the spans that have an element in the window, each once.
        """


class IOFiles(Protocol):
    """A fixed list of files, as a backend reads them.

    Optional: ``announce(rows)``: these byte ranges, given as to `fill` and with anything in the
    last column, will be read soon. It begins to fetch what it can, and returns without waiting for
    data. It raises nothing about files or storage: who reads them gets the error. May be called by
    several threads at once, beside `fill`, and once more after `close`.

    Optional: ``fill_watched(rows, out, progress)``: as `fill`; meanwhile others see how far it is.
    `progress` is an int64 array of four zeros. ``progress[0]`` becomes the number of rows filled,
    after every row; ``progress[1]`` the row that has taken longest so far, as far as is known; the
    other two are the backend's own.
    """

    def fill(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Read many byte ranges. May be called by several threads at once.

        Args:
            rows: shape (ranges, 4). The columns are the number of the file in the list, the byte
                offset in it, the number of bytes, and the byte offset in `out`.
            out: the array to fill, writable and C-contiguous, of any dtype and shape;
                ``out.reshape(-1).view(np.uint8)`` are its bytes.

        Raises:
            ReadError: a file could not be read; the message names it and the offset.
            MissingFileError: a file is not there.
            DamagedFileError: a file has not the size that was stated.
        """

    def close(self) -> None:
        """Give back what is held; `fill` is not called any more."""


class IOSession(Protocol):
    """One dataset directory, opened by a backend."""

    def list_names(self, folder: str) -> list[str] | None:
        """Names of the files and folders in a folder.

        Empty if the folder is absent, None if the storage cannot list.
        """

    def read_file(self, name: str, limit: int) -> bytes:
        """A whole small file.

        Raises:
            FileNotFoundError: it is not there.
            DamagedFileError: it has more than `limit` bytes.
            ReadError: it could not be read.
        """

    def file_size(self, name: str) -> int:
        """Size in bytes; FileNotFoundError if the file is not there."""

    def open_files(self, names: Sequence[str], sizes: NDArray[np.int64]) -> IOFiles:
        """The files with these names, which must have these sizes; opened when first needed."""

    def close(self) -> None:
        """Give back what is held."""


@runtime_checkable
class IOReader(Protocol):
    """A backend: how the files of a dataset are read. Cheap to make, safe to pickle."""

    def open(self, directory: str) -> IOSession:
        """Begin to read the dataset in `directory`."""

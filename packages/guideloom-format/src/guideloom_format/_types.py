"""The structural types that users implement; nothing to inherit from."""

from __future__ import annotations

from collections.abc import Sequence
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


class IOFiles(Protocol):
    """A fixed list of files, as a backend reads them."""

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
        """Names of the files in a folder; empty if it is absent, None if storage cannot list."""

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

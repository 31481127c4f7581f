"""`StreamDataset`: a stream cut into windows at read time, as a sequence of samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from guideloom_format import StreamNumpyFormat, StreamStorage
from guideloom_format._integers import as_index, as_integer, index_array, shown
from guideloom_read._stream_reader import StreamReader


class StreamDataset:
    """The windows of a stream, each a sample.

    ::

        stride 3, sequence_length 4:   sample 0 = elements 0 1 2 3, sample 1 = elements 3 4 5 6, …

    With ``sequence_length=L + 1, stride=L`` a sample has L inputs and, shifted by one, L labels.
    Elements behind the last whole window belong to no sample.

    Args:
        storage: the stream.
        sequence_length: elements per sample, at least 1.
        stride: elements between the starts of neighbouring samples, at least 1; `sequence_length`
            when left out, so that samples do not overlap.

    Raises:
        TypeError, ValueError: a number outside its interval, named.
    """

    def __init__(
        self, storage: StreamStorage, sequence_length: int, stride: int | None = None
    ) -> None:
        if not hasattr(storage, "storage_format"):
            raise TypeError(f"storage is {type(storage).__name__}; expected a StreamStorage")
        self.storage = storage
        self.sequence_length = as_index("sequence_length", sequence_length, 1, 2**31)
        self.stride = (
            self.sequence_length if stride is None else as_index("stride", stride, 1, 2**62)
        )

    def sync_reader(self) -> StreamDatasetReader:
        """A reader of the samples, to be used as a context manager."""
        return StreamDatasetReader(self)

    def __repr__(self) -> str:
        return (
            f"StreamDataset({self.storage!r}, sequence_length={self.sequence_length}, "
            f"stride={self.stride})"
        )


class StreamDatasetReader(Sequence[Any]):
    """The samples of a `StreamDataset`: a sequence, and `gather` for whole batches.

    A context manager, or `open()` and `close()`. Reads may run in several threads at once.
    """

    def __init__(self, dataset: StreamDataset) -> None:
        self.dataset = dataset
        self.stream = StreamReader(dataset.storage)
        self._length = dataset.sequence_length
        self._stride = dataset.stride
        self._unpack_batch = getattr(dataset.storage.storage_format, "unpack_batch", None)
        self._fields: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        if isinstance(dataset.storage.storage_format, StreamNumpyFormat):
            self._fields = dataset.storage.storage_format.fields()
        # One field that is the whole element: a batch is read straight into its array.
        self._only: str | None = None
        self._only_dtype: np.dtype[Any] | None = None
        self._only_shape: tuple[int, ...] = ()
        if len(self._fields) == 1:
            name, (base, shape) = next(iter(self._fields.items()))
            if base.itemsize * math.prod(shape) == dataset.storage.element_type.itemsize:
                self._only, self._only_dtype = name, np.empty(0, base.str).dtype
                self._only_shape = (self._length, *shape)

    def open(self) -> Self:
        """Open the stream; see `StreamReader.open`."""
        self.stream.open()
        return self

    def close(self) -> None:
        """Give back files and maps. Samples and batches that were returned stay valid."""
        self.stream.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def identity(self) -> dict[str, int | str]:
        """What determines the samples: the dataset's fingerprint and how it is cut."""
        return {
            "dataset": self.stream.fingerprint,
            "sequence_length": self._length,
            "stride": self._stride,
        }

    @property
    def gathers(self) -> bool:
        """Whether the storage format can make a batch without Python code per sample."""
        return self._unpack_batch is not None

    def __repr__(self) -> str:
        return f"StreamDatasetReader({self.dataset!r}) over {self.stream!r}"

    def __len__(self) -> int:
        """Samples."""
        return self.stream.windows(self._length, self._stride)

    def __iter__(self) -> Iterator[Any]:
        """All samples in order. An IndexError on the way is an error, and not the end."""
        return map(self.__getitem__, range(len(self)))

    def __reversed__(self) -> Iterator[Any]:
        return map(self.__getitem__, reversed(range(len(self))))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the dataset; the copy is not open."""
        return (StreamDatasetReader, (self.dataset,))

    def __getitem__(self, index: Any) -> Any:
        """A sample for an int, negative ones counted from the end; a list of samples otherwise.

        Args:
            index: an int, a slice, or a 1-d array or list of integers.

        Raises:
            IndexError: outside ``[-len, len)``.
            TypeError: not an integer, slice or array of integers.
        """
        count = len(self)
        if isinstance(index, slice):
            ids = np.arange(*index.indices(count), dtype=np.int64)
            return self.stream.samples(ids, self._length, self._stride)
        if hasattr(index, "__index__") and np.ndim(index) == 0:  # arrays have it, too
            number = as_integer("index", index)
            if not -count <= number < count:
                raise IndexError(f"sample {shown(number)} is outside [{-count}, {count})")
            ids = np.array([number % count], dtype=np.int64)
            return self.stream.samples(ids, self._length, self._stride)[0]
        ids = index_array("index", index)
        if ids.ndim != 1:
            raise TypeError(f"the index array has {ids.ndim} dimensions; expected 1")
        bad = np.flatnonzero((ids < -count) | (ids >= count))
        if bad.size:
            raise IndexError(
                f"sample {ids[bad[0]]} at position {bad[0]} is outside [{-count}, {count})"
            )
        return self.stream.samples(np.where(ids < 0, ids + count, ids), self._length, self._stride)

    def gather(
        self, ids: NDArray[np.int64] | Sequence[int], out: Mapping[str, NDArray[Any]] | None = None
    ) -> Any:
        """A batch: the samples with these ids, stacked, without Python code per sample.

        Args:
            ids: 1-d integers in ``[0, len)``, in any order, repeated or not.
            out: with `StreamNumpyFormat`, arrays to fill, one per field: C-contiguous, writable,
                of shape (len(ids), sequence_length) and the field's dtype.

        Returns:
            with `StreamNumpyFormat`, a mapping of field to array of shape
            (len(ids), sequence_length), contiguous; with another storage format, what its
            `unpack_batch` makes of the elements.

        Raises:
            IndexError: an id outside its interval.
            TypeError: the storage format has no `unpack_batch`, or `out` does not fit.
        """
        if type(ids) is not np.ndarray:
            ids = index_array("ids", ids)
        if out is not None:
            if not self._fits(out, ids.size):
                self._check_out(out, ids.size)
            if self._only is not None:
                self.stream.elements(ids, self._length, self._stride, out[self._only])
                return out
        elements = self.stream.elements(ids, self._length, self._stride)
        if self._only is not None:
            return {self._only: elements[self._only]}
        if self._unpack_batch is None:
            raise TypeError(
                f"{type(self.dataset.storage.storage_format).__name__} has no unpack_batch, which "
                "gather needs; define it, or read samples with reader[ids]"
            )
        batch = self._unpack_batch(elements)
        if out is None:
            return batch
        for name, values in batch.items():
            np.copyto(out[name], values)
        return out

    def _fits(self, out: Mapping[str, NDArray[Any]], count: int) -> bool:
        """Whether `out` is what is usually given; if not, `_check_out` looks at all of it."""
        if self._only is None or type(out) is not dict or len(out) != 1:
            return False
        array = out.get(self._only)
        return (
            type(array) is np.ndarray
            and array.dtype is self._only_dtype
            and array.shape == (count, *self._only_shape)
            and array.flags.carray
        )

    def _check_out(self, out: Mapping[str, NDArray[Any]], count: int) -> None:
        if not self._fields:
            raise TypeError("gather takes `out` with StreamNumpyFormat only")
        if not isinstance(out, Mapping):
            raise TypeError(f"out is {type(out).__name__}; expected a mapping of field to array")
        if len(out) != len(self._fields):
            raise TypeError(f"out has the fields {sorted(out)}; expected {sorted(self._fields)}")
        for name, (base, shape) in self._fields.items():
            array = out.get(name)
            if (
                not isinstance(array, np.ndarray)
                or isinstance(array, np.ma.MaskedArray)
                or array.shape != (count, self._length, *shape)
                or array.dtype != base
                or not array.flags.carray
            ):
                raise TypeError(
                    f"out[{name!r}] is {_describe(array)}; expected a writable C-contiguous array "
                    f"of shape {(count, self._length, *shape)} and dtype {base}"
                )


def _describe(array: object) -> str:
    if not isinstance(array, np.ndarray):
        return type(array).__name__
    text = f"an array of shape {array.shape} and dtype {array.dtype}"
    if isinstance(array, np.ma.MaskedArray):
        text += ", masked"
    if not array.flags.writeable:
        text += ", read-only"
    return text if array.flags.c_contiguous else text + ", not C-contiguous"

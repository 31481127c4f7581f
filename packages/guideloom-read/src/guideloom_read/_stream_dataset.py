"""`StreamDataset`: a stream cut into windows at read time, as a sequence of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from guideloom_format import Header, IOReader, StreamStorage, StreamWithMetaStorage
from guideloom_format._integers import as_index, index_array, type_shown
from guideloom_format._parts import STREAM, STREAM_WITH_META
from guideloom_read._batches import Ragged, SpanBatch
from guideloom_read._element_batch import ElementBatch
from guideloom_read._reader import with_backend
from guideloom_read._sample_sequence import SampleSequence
from guideloom_read._spans_reader import StreamWithMetaReader
from guideloom_read._stream_reader import StreamReader


class StreamDataset:
    """The windows of a stream, each a sample.

    ::

        stride 3, sequence_length 4:   sample 0 = elements 0 1 2 3, sample 1 = elements 3 4 5 6, …

    With ``sequence_length=L + 1, stride=L`` a sample has L inputs and, shifted by one, L labels.
    Elements behind the last whole window belong to no sample.

    Args:
        storage: the stream, with or without metadata.
        sequence_length: elements per sample, at least 1.
        stride: elements between the starts of neighbouring samples, at least 1; `sequence_length`
            when left out, so that samples do not overlap.

    Raises:
        TypeError, ValueError: a number outside its interval, named.
    """

    def __init__(
        self,
        storage: StreamStorage | StreamWithMetaStorage,
        sequence_length: int,
        stride: int | None = None,
    ) -> None:
        if isinstance(storage, type) or getattr(storage, "kind", None) not in (
            STREAM,
            STREAM_WITH_META,
        ):
            raise TypeError(
                f"storage is {type_shown(storage)}; expected a StreamStorage or a "
                "StreamWithMetaStorage. For documents use DocumentDataset"
            )
        self.storage = storage
        self.sequence_length = as_index("sequence_length", sequence_length, 1, 2**31)
        self.stride = (
            self.sequence_length if stride is None else as_index("stride", stride, 1, 2**62)
        )

    def sync_reader(self) -> StreamDatasetReader:
        """A reader of the samples, to be used as a context manager."""
        return StreamDatasetReader(self)

    def at_version(self, version: int | None) -> StreamDataset:
        """The same samples of a manifest version, see `Storage.at_version`."""
        return StreamDataset(self.storage.at_version(version), self.sequence_length, self.stride)

    def with_backend(self, read_interface: IOReader | None) -> StreamDataset:
        """The same samples, read through another backend; None for the default one."""
        storage = with_backend(self.storage, read_interface)
        return StreamDataset(storage, self.sequence_length, self.stride)

    def __repr__(self) -> str:
        return (
            f"StreamDataset({self.storage!r}, sequence_length={self.sequence_length}, "
            f"stride={self.stride})"
        )


class StreamDatasetReader(SampleSequence):
    """The samples of a `StreamDataset`: a sequence, and `gather` for whole batches.

    A context manager, or `open()` and `close()`. Reads may run in several threads at once.
    """

    def __init__(self, dataset: StreamDataset) -> None:
        self.dataset = dataset
        self.stream: StreamReader | StreamWithMetaReader = dataset.storage.sync_reader()
        self._length = dataset.sequence_length
        self._stride = dataset.stride
        self._elements = ElementBatch(dataset.storage.storage_format, self._length)

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

    @property
    def header(self) -> Header:
        """What the dataset says of itself, with the writer's `user` object."""
        return self.stream.header

    def identity(self) -> dict[str, int | str]:
        """What determines the samples: the dataset's fingerprint and how it is cut."""
        return {
            "dataset": self.stream.fingerprint,
            "sequence_length": self._length,
            "stride": self._stride,
        }

    @property
    def version(self) -> int | None:
        """The manifest version that shows what this reader shows; None if there is none yet."""
        return self.stream.version

    @property
    def gathers(self) -> bool:
        """Whether the storage format can make a batch without Python code per sample."""
        return self._elements.unpack_batch is not None

    def __repr__(self) -> str:
        return f"StreamDatasetReader({self.dataset!r}) over {self.stream!r}"

    def __len__(self) -> int:
        """Samples."""
        return self.stream.windows(self._length, self._stride)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the dataset; the copy is not open."""
        return (StreamDatasetReader, (self.dataset,))

    def _samples(self, ids: NDArray[np.int64]) -> list[Any]:
        return self.stream.samples(ids, self._length, self._stride)

    def announce(
        self,
        ids: NDArray[np.int64] | Sequence[int],
        then: NDArray[np.int64] | Sequence[int] | None = None,
        *,
        payloads: bool = True,
    ) -> None:
        """Say that these samples will be read soon, so that the storage can begin now.

        It changes no data and holds nothing. A backend that cannot be told is not told. For a
        plain stream, and without payloads, nothing is read here. To find payloads, the spans of
        the samples are read: announced before, as `then`, they are mostly there already; if not,
        this waits for them, a round of the search at a time. An error of the data is left to
        whoever reads the samples.

        Args:
            ids: 1-d integers in ``[0, len)``.
            then: ids that will be announced next; the spans that their search will look at first
                are announced now. A plain stream has no use for it.
            payloads: for a stream with metadata, whether the payloads will be read.

        Raises:
            IndexError: an id outside its interval.
        """
        self.stream.announce_windows(ids, self._length, self._stride, then, payloads=payloads)

    def gather(
        self,
        ids: NDArray[np.int64] | Sequence[int],
        out: Mapping[str, NDArray[Any]] | None = None,
        *,
        payloads: bool = True,
    ) -> Any:
        """A batch: the samples with these ids, stacked, without Python code per sample.

        Args:
            ids: 1-d integers in ``[0, len)``, in any order, repeated or not.
            out: for elements with fields, arrays to fill, one per field: C-contiguous, writable,
                of shape (len(ids), sequence_length) and the field's dtype.
            payloads: for a stream with metadata, whether to read the payloads of the spans.

        Returns:
            for a stream with `StreamNumpyFormat`, a mapping of field to array of shape
            (len(ids), sequence_length), contiguous; with another storage format, what its
            `unpack_batch` makes of the elements; for a stream with metadata a `SpanBatch` with
            that as its `stream`.

        Raises:
            IndexError: an id outside its interval.
            TypeError: the storage format has no `unpack_batch`, or `out` does not fit.
            DamagedFileError: what was read is not what was committed.
        """
        if type(ids) is not np.ndarray:
            ids = index_array("ids", ids)
        target = self._elements.target(out, ids.size)
        stream = self.stream
        if isinstance(stream, StreamReader):
            return self._elements.batch(
                stream.read_windows(ids, self._length, self._stride, target)[2], out
            )
        now, plan, elements = stream.read_windows(ids, self._length, self._stride, target)
        found = stream.find_pieces(now, plan, ids.size, self._length, unique=True)
        data = Ragged(stream.read_payloads(now, found), found.payload_offsets) if payloads else None
        batch = self._elements.batch(elements, out)
        starts, lengths, spans, index = found.columns
        return SpanBatch(batch, found.offsets, starts, lengths, spans, index, data, self._length)

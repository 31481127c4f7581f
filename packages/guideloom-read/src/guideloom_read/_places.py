"""`places`: where samples lie: shard, position in it, data file and bytes.

For the samples of a stream this is arithmetic on the table of parts, which a reader holds from the
moment it is opened: no I/O, whatever the size. The bytes of documents follow from their ends, and
the payloads of spans are stored; these are read, when they are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guideloom_format import DocumentIndex, PartTable, StreamIndex
from guideloom_format._integers import index_array
from guideloom_format._parts import DOCUMENTS, ELEMENTS
from guideloom_read._batches import Ragged, SpanBatch
from guideloom_read._document_reader import DocumentReader
from guideloom_read._spans_reader import StreamWithMetaReader
from guideloom_read._stream_dataset import StreamDatasetReader

SampleReader = StreamDatasetReader | DocumentReader


class Piece(NamedTuple):
    """What one data file has of one sample.

    Attributes:
        shard: number of the shard.
        start, stop: the elements ``[start, stop)`` of the shard; for a document, its number in the
            shard and the next one.
        file: name of the data file, relative to the dataset's directory.
        byte_start, byte_stop: the bytes ``[byte_start, byte_stop)`` of the file; -1 if they are
            not known, for a document whose ends were not read.
    """

    shard: int
    start: int
    stop: int
    file: str
    byte_start: int
    byte_stop: int


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where samples lie, as columns. A piece is what one data file has of one sample.

    ::

        shard 4:  part 0 = elements 0 1 2 3 4,  part 1 = 5 6 7        shard 6:  part 0 = 0 1 2 3
        sample 0 = 0 1 2 3,   sample 1 = 4 | 5 6 7,   sample 2 = 0 1 2 3

        samples  0   1   2          offsets  0   1     3   4
        shard    4   4 4   6
        part     0   0 1   0
        start    0   4 5   0        length   4   1 3   4

    Attributes:
        samples: the ids that were asked for: int64 (samples,).
        offsets: int64 (samples + 1,): sample k has the pieces ``offsets[k]`` to
            ``offsets[k + 1]``, one behind the other; a document is one piece.
        shard: int64 (pieces,): number of the shard.
        part: int64 (pieces,): number of the part in its shard.
        start: int64 (pieces,): first element in the shard; for a document, its number there.
        length: int64 (pieces,): elements; 1 for a document.
        byte_start: int64 (pieces,): first byte in the part's data file, see `file`.
        nbytes: int64 (pieces,): number of bytes. Both are -1 for documents whose ends were not
            read.
        directory: of the dataset.
        spans: for a stream with metadata, if payloads were asked for: what `gather` returns of the
            spans; its `stream` is None. None otherwise.
    """

    samples: NDArray[np.int64]
    offsets: NDArray[np.int64]
    shard: NDArray[np.int64]
    part: NDArray[np.int64]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    byte_start: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    directory: str
    spans: SpanBatch | None = field(default=None, repr=False)
    _rows: NDArray[np.int64] = field(kw_only=True, repr=False)  # of the table
    _table: PartTable = field(kw_only=True, repr=False)
    _role: str = field(kw_only=True, repr=False)

    def __len__(self) -> int:
        """Samples."""
        return int(self.samples.size)

    def file(self, piece: int) -> str:
        """Name of the data file of a piece, relative to the dataset's directory."""
        return self._table.file_name(int(self._rows[piece]), self._role)

    def pieces(self, k: int, most: int | None = None) -> tuple[Piece, ...]:
        """The pieces of the sample ``samples[k]``, in order; at most so many."""
        first, behind = int(self.offsets[k]), int(self.offsets[k + 1])
        if most is not None:
            behind = min(behind, first + most)
        columns = (self.shard, self.start, self.length, self.byte_start, self.nbytes)
        found = []
        for number in range(first, behind):
            shard, start, length, byte_start, nbytes = (int(column[number]) for column in columns)
            byte_stop = byte_start + nbytes if nbytes >= 0 else -1
            found.append(
                Piece(shard, start, start + length, self.file(number), byte_start, byte_stop)
            )
        return tuple(found)


def places(
    reader: SampleReader,
    ids: NDArray[np.int64] | Sequence[int],
    *,
    read_ends: bool = True,
    payloads: bool = False,
) -> Places:
    """Where samples lie.

    Args:
        reader: an open reader of samples: of `StreamDataset`, or of documents.
        ids: 1-d integers in ``[0, len(reader))``, in any order, repeated or not.
        read_ends: for documents, whether to read their ends, 16 bytes each, from which their
            bytes follow. Without, as for streams, nothing is read.
        payloads: for a stream with metadata, whether to read the payloads of the spans.

    Raises:
        IndexError: an id outside its interval.
        TypeError: another kind of reader, or ids that are not integers.
        ValueError: the reader is not open, ids are not 1-d, or `payloads` where there are no spans.
        DamagedFileError: what was read is not what was committed.
    """
    layout = layout_of(reader)
    ids = index_array("ids", ids).copy()
    if payloads and not (
        isinstance(reader, StreamDatasetReader) and isinstance(reader.stream, StreamWithMetaReader)
    ):
        raise ValueError(
            "payloads were asked for, and only a stream with metadata has spans; leave payloads out"
        )
    found = layout.places(ids)
    if isinstance(reader, DocumentReader):
        return _with_bytes(reader, found) if read_ends else found
    return replace(found, spans=_spans(reader, ids)) if payloads else found


@dataclass(frozen=True, slots=True)
class WindowLayout:
    """Where the windows of a stream lie, also when the reader is closed."""

    table: PartTable
    index: StreamIndex
    directory: str
    itemsize: int
    length: int
    stride: int

    def places(self, ids: NDArray[np.int64]) -> Places:
        """The places of these samples, by arithmetic alone."""
        rows = self.index.plan(ids, self.length, self.itemsize, self.stride)
        part, byte_start, nbytes = (np.ascontiguousarray(rows[:, k]) for k in range(3))
        window_bytes = self.length * self.itemsize
        bounds = np.arange(ids.size + 1, dtype=np.int64) * window_bytes
        shard, start = _in_shard(self.table, self.index.ends, part, byte_start // self.itemsize)
        return Places(
            samples=ids,
            offsets=np.searchsorted(rows[:, 3], bounds).astype(np.int64),
            shard=shard,
            part=self.table.part[part],
            start=start,
            length=nbytes // self.itemsize,
            byte_start=byte_start,
            nbytes=nbytes,
            directory=self.directory,
            _rows=part,
            _table=self.table,
            _role=ELEMENTS,
        )


@dataclass(frozen=True, slots=True)
class DocumentLayout:
    """Where documents lie, but for their bytes, also when the reader is closed."""

    table: PartTable
    index: DocumentIndex
    ends: NDArray[np.int64]
    directory: str

    def places(self, ids: NDArray[np.int64]) -> Places:
        """The places of these documents, by arithmetic alone; their bytes are not known."""
        rows = self.index.plan_ends(ids)
        part = rows[:, 0] - len(self.table)
        within = (rows[:, 1] + rows[:, 2]) // 8 - 1
        shard, start = _in_shard(self.table, self.ends, part, within)
        unknown = np.full(ids.size, -1, dtype=np.int64)
        return Places(
            samples=ids,
            offsets=np.arange(ids.size + 1, dtype=np.int64),
            shard=shard,
            part=self.table.part[part],
            start=start,
            length=np.ones(ids.size, dtype=np.int64),
            byte_start=unknown,
            nbytes=unknown,
            directory=self.directory,
            _rows=part,
            _table=self.table,
            _role=DOCUMENTS,
        )


def layout_of(reader: SampleReader) -> WindowLayout | DocumentLayout:
    """Where the samples of an open reader lie.

    Raises:
        TypeError: another kind of reader.
        ValueError: the reader is not open.
    """
    if isinstance(reader, DocumentReader):
        documents = reader._opened()
        table = documents.table
        ends = np.cumsum(table.length, dtype=np.int64)
        return DocumentLayout(table, documents.index, ends, documents.directory)
    if isinstance(reader, StreamDatasetReader):
        stream = reader.stream._opened()
        dataset = reader.dataset
        itemsize = dataset.storage.element_type.itemsize
        return WindowLayout(
            stream.table,
            stream.index,
            stream.directory,
            itemsize,
            dataset.sequence_length,
            dataset.stride,
        )
    raise TypeError(
        f"reader is {type(reader).__name__}; expected a reader of samples: sync_reader() of a "
        "StreamDataset or DocumentDataset"
    )


def _in_shard(
    table: PartTable,
    ends: NDArray[np.int64],
    part: NDArray[np.int64],
    within: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Shard, and position in it, of what lies at `within` of the parts in these rows."""
    shard = table.shard[part]
    first = np.searchsorted(table.shard, shard)
    of_shard = ends[first] - table.length[first]
    of_part = ends[part] - table.length[part]
    return shard, of_part - of_shard + within


def _with_bytes(reader: DocumentReader, found: Places) -> Places:
    """The same places, with the bytes of the documents, whose ends are read."""
    located = reader._locate(found.samples)
    nbytes = np.diff(located.offsets) * located.now.index.itemsize
    return replace(found, byte_start=located.bounds[:, 1] - nbytes, nbytes=nbytes)


def _spans(reader: StreamDatasetReader, ids: NDArray[np.int64]) -> SpanBatch:
    """The spans in these windows, and their payloads, which are read."""
    stream = reader.stream
    if not isinstance(stream, StreamWithMetaReader):
        raise TypeError(f"{type(stream).__name__} has no spans")
    now = stream._opened()
    dataset = reader.dataset
    length = dataset.sequence_length
    plan = now.index.plan(ids, length, dataset.storage.element_type.itemsize, dataset.stride)
    found = stream.find_pieces(now, plan, ids.size, length, unique=True)
    data = Ragged(stream.read_payloads(now, found), found.payload_offsets)
    starts, lengths, spans, index = found.columns
    return SpanBatch(None, found.offsets, starts, lengths, spans, index, data, length)

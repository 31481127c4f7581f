"""`DocumentReader`: whole documents by number, one or many at a time.

The way of a batch: `DocumentIndex` plans which ends to read, the backend reads them, the index
checks them and plans which bytes to read, the backend reads those into one array. So a document
takes two reads, wherever it lies. One document is a batch of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from guideloom_format import DamagedFileError, DatasetError, DocumentIndex, DocumentStorage
from guideloom_format._documents import WrongEndsError
from guideloom_format._integers import as_index, as_integer, index_array, shown
from guideloom_format._parts import DOCUMENTS, ENDS
from guideloom_read._batches import Padded, Ragged
from guideloom_read._byte_order import native
from guideloom_read._padding import padding
from guideloom_read._reader import OpenDataset, Reader
from guideloom_read._sample_sequence import SampleSequence

MOST_WIDTH = 1 << 40


@dataclass(frozen=True, slots=True)
class OpenDocuments(OpenDataset):
    """Documents as they were when they were opened."""

    index: DocumentIndex


class _Located(NamedTuple):
    """Where the documents of a batch lie."""

    now: OpenDocuments
    end_rows: NDArray[np.int64]
    bounds: NDArray[np.int64]
    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]


class DocumentReader(Reader[OpenDocuments], SampleSequence):
    """Reads documents; a sequence of them, and `gather` for whole batches.

    A context manager, or `open()` and `close()`. It shows the dataset as it was when it was
    opened. Reads may run in several threads at once. What is returned stays valid after the reader
    is closed.

    Args:
        storage: the description of the dataset.

    Raises:
        DatasetNotFoundError, MismatchError, DatasetError: by `open`.
    """

    def __init__(self, storage: DocumentStorage) -> None:
        super().__init__(storage)
        self._dtype = storage.element_type
        self._unpack_batch = getattr(storage.storage_format, "unpack_batch", None)

    def _prepare(self, dataset: OpenDataset) -> OpenDocuments:
        table = dataset.table
        index = DocumentIndex(table.length, table.nbytes[DOCUMENTS], self._dtype.itemsize)
        return OpenDocuments(
            dataset.directory, dataset.session, dataset.files, dataset.contents, index
        )

    @property
    def storage(self) -> DocumentStorage:
        """The description that the reader was made from."""
        storage: DocumentStorage = self._storage
        return storage

    def identity(self) -> dict[str, int | str]:
        """What determines the samples: the dataset's fingerprint."""
        return {"dataset": self.fingerprint}

    def __repr__(self) -> str:
        now = self._now
        state = f"{len(now.index)} documents" if now is not None else "not open"
        return f"DocumentReader({self._storage!r}), {state}"

    def __len__(self) -> int:
        """Documents over all shards."""
        return len(self._opened().index)

    def read(self, index: int) -> Any:
        """A decoded document.

        Raises:
            IndexError: outside ``[0, len)``.
            DamagedFileError: its ends or bytes are not what was committed.
        """
        number = as_integer("index", index)
        if not 0 <= number < len(self):
            raise IndexError(f"document {shown(number)} is outside [0, {len(self)})")
        return self._samples(np.array([number], dtype=np.int64))[0]

    def read_many(self, indexes: ArrayLike) -> list[Any]:
        """Decoded documents, in the order asked, as often as asked.

        Args:
            indexes: 1-d integers in ``[0, len)``.

        Raises:
            IndexError: one of them is outside.
        """
        ids = index_array("indexes", indexes)
        if ids.ndim != 1:
            raise ValueError(f"indexes has {ids.ndim} dimensions; expected 1")
        return self._samples(ids)

    def gather(self, ids: NDArray[np.int64] | Sequence[int]) -> Ragged:
        """The stored documents with these ids, as one array and offsets; no object per document.

        Args:
            ids: 1-d integers in ``[0, len)``, in any order, repeated or not.

        Returns:
            `Ragged`: values of the storage's element type, uint8 for bytes and JSON.

        Raises:
            IndexError: an id outside its interval.
        """
        located = self._locate(ids)
        return Ragged(self._values(located), located.offsets)

    def gather_padded(
        self,
        ids: NDArray[np.int64] | Sequence[int],
        pad_to: int | None = None,
        pad_value: float = 0,
    ) -> Padded:
        """The stored documents with these ids as the rows of one array, read straight into it.

        Args:
            ids: 1-d integers in ``[0, len)``, in any order, repeated or not.
            pad_to: values in a row; as many as the longest document of the batch when left out.
            pad_value: what stands behind a document.

        Raises:
            IndexError: an id outside its interval.
            ValueError: a document is longer than `pad_to`, or `pad_value` does not fit the type.
        """
        located = self._locate(ids)
        lengths = np.diff(located.offsets)
        longest = int(lengths.max()) if lengths.size else 0
        width = longest if pad_to is None else as_index("pad_to", pad_to, 0, MOST_WIDTH)
        if longest > width:
            bad = int(lengths.argmax())
            raise ValueError(
                f"document {int(index_array('ids', ids)[bad])} has {longest} values; pad_to is "
                f"{width}. Raise pad_to, or leave it out to pad to the longest of each batch (in a "
                'loader: pad_to="longest")'
            )
        located.now.look_at(located.rows, lengths.size * width * self._dtype.itemsize)
        values = np.empty((lengths.size, width), dtype=self._dtype)
        values[...] = padding(pad_value, self._dtype)
        if width:
            rows, _ = located.now.index.plan(
                located.end_rows, located.bounds, width * self._dtype.itemsize
            )
            located.now.files.fill(rows, values)
        return Padded(values, lengths)

    def announce(
        self,
        ids: NDArray[np.int64] | Sequence[int],
        then: NDArray[np.int64] | Sequence[int] | None = None,
    ) -> None:
        """Say that these documents will be read soon, so that the storage can begin now.

        It changes no data and holds nothing. A backend that cannot be told is not told. The ends
        of the documents, 16 bytes of each, are read here: announced before, as `then`, they are
        there already; if not, this waits for them, all at once. An error of the data is left to
        whoever reads the documents.

        Args:
            ids: 1-d integers in ``[0, len)``.
            then: ids that will be announced next; their ends are announced now.

        Raises:
            IndexError: an id outside its interval.
        """
        now = self._opened()
        if not now.announces:
            return
        if then is not None:
            now.announce(now.index.plan_ends(then))
        try:
            located = self._locate(ids, announced=True)
        except DatasetError:
            return
        located.now.announce(located.rows)

    def _samples(self, ids: NDArray[np.int64]) -> list[Any]:
        located = self._locate(ids)
        values = self._values(located)
        if self._unpack_batch is not None:
            batch = self._unpack_batch(values, located.offsets)
            if not isinstance(batch, list) or len(batch) != ids.size:
                count = f" of {len(batch)}" if isinstance(batch, list | tuple) else ""
                raise TypeError(
                    f"{type(self._storage.storage_format).__name__}.unpack_batch returned "
                    f"{type(batch).__name__}{count}; expected a list of {ids.size} documents"
                )
            return batch
        table = located.now.table
        shards = table.shard[located.end_rows[:, 0] - len(table)].tolist()
        bounds = (located.offsets * self._dtype.itemsize).tolist()
        view = values.view(np.uint8).data
        unpack = self._storage.storage_format.unpack
        k = 0
        documents = []
        try:
            for k, shard in enumerate(shards):  # k is for the note
                documents.append(unpack(view[bounds[k] : bounds[k + 1]], shard))
        except Exception as error:
            error.add_note(f"while unpacking document {ids[k]} of {located.now.directory}")
            raise
        return documents

    def _locate(
        self, ids: NDArray[np.int64] | Sequence[int], *, announced: bool = False
    ) -> _Located:
        """Read the ends of documents; announced before, so that the storage has all at once."""
        now = self._now
        if now is None:
            now = self._opened()
        end_rows = now.index.plan_ends(ids)
        if announced:
            now.announce(end_rows)
        bounds = np.empty((end_rows.shape[0], 2), dtype=np.int64)
        if end_rows.shape[0]:
            now.files.fill(end_rows, bounds)
        try:
            rows, offsets = now.index.plan(end_rows, native(bounds))
        except WrongEndsError as wrong:
            raise self._damaged(now, end_rows[wrong.position], bounds[wrong.position]) from None
        return _Located(now, end_rows, bounds, rows, offsets)

    def _values(self, located: _Located) -> NDArray[Any]:
        """Read the documents, one behind the other."""
        located.now.look_at(located.rows, int(located.offsets[-1]) * self._dtype.itemsize)
        values = np.empty(int(located.offsets[-1]), dtype=self._dtype)
        if located.rows.shape[0]:
            located.now.files.fill(located.rows, values)
        return values

    def _damaged(
        self, now: OpenDocuments, row: NDArray[np.int64], bounds: NDArray[np.int64]
    ) -> DamagedFileError:
        table = now.table
        file, offset, nbytes, _ = row.tolist()
        part = file - len(table)
        begin, end = (np.uint64(bound) for bound in bounds.view(np.uint64))
        begin = begin if nbytes > 8 else np.uint64(0)
        return DamagedFileError(
            f"{table.file_name(part, ENDS)}, bytes {offset} to {offset + nbytes}: document "
            f"{(offset + nbytes) // 8 - 1} of the part is said to have the bytes {begin} to {end} "
            f"of a file of {int(table.nbytes[DOCUMENTS][part])} bytes; expected ends that grow to "
            f"that size in steps of {self._dtype.itemsize}. The file is damaged: restore it from a "
            "copy"
        )

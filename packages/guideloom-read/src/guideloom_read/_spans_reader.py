"""`StreamWithMetaReader`: windows of a stream, and the spans that they touch.

The way of a window: its elements as in every stream; then rounds of `SpanSearch`, each a plan
and a read, find the spans of all windows together; `pieces` says what of them lies in which
window and which payloads to read; one more read gets those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guideloom_format import (
    DamagedFileError,
    DatasetError,
    SpanIndex,
    SpanSearch,
    StreamIndex,
    StreamWithMetaStorage,
    pieces,
)
from guideloom_format._documents import split
from guideloom_format._parts import ELEMENTS, PAYLOADS, SPAN_BYTES, SPANS
from guideloom_format._spans import WrongSpansError
from guideloom_read._byte_order import native
from guideloom_read._reader import OpenDataset
from guideloom_read._stream_reader import OpenStream, WindowReader


@dataclass(frozen=True, slots=True)
class OpenSpans(OpenStream):
    """A stream with metadata as it was when it was opened."""

    spans: SpanIndex


class Pieces(NamedTuple):
    """The pieces of spans in windows; see `guideloom_format.pieces`."""

    offsets: NDArray[np.int64]
    columns: NDArray[np.int64]
    payload_offsets: NDArray[np.int64]
    payload_parts: NDArray[np.int64]
    payload_rows: NDArray[np.int64]


class StreamWithMetaReader(WindowReader[OpenSpans]):
    """Reads windows of a stream with the metadata of the spans that they touch.

    A context manager, or `open()` and `close()`. It shows the dataset as it was when it was
    opened. Reads may run in several threads at once.

    Args:
        storage: the description of the dataset.

    Raises:
        DatasetNotFoundError, MismatchError, DatasetError: by `open`.
    """

    def _prepare(self, dataset: OpenDataset) -> OpenSpans:
        table = dataset.table
        return OpenSpans(
            dataset.directory,
            dataset.session,
            dataset.files,
            dataset.contents,
            StreamIndex(table.length),
            SpanIndex(table.nbytes[SPANS] // SPAN_BYTES, table.length, table.nbytes[PAYLOADS]),
        )

    @property
    def storage(self) -> StreamWithMetaStorage:
        """The description that the reader was made from."""
        storage: StreamWithMetaStorage = self._storage
        return storage

    @property
    def span_count(self) -> int:
        """Spans over all shards."""
        return len(self._opened().spans)

    def samples(self, ids: NDArray[np.int64], length: int, stride: int) -> list[Any]:
        """The decoded windows that start at ``ids * stride``."""
        now, plan, elements = self.read_windows(ids, length, stride)
        found = self.find_pieces(now, plan, ids.size, length, unique=False)
        payloads = split(self.read_payloads(now, found), found.payload_offsets)
        shards = now.table.shard[found.payload_parts].tolist()
        first = np.repeat(found.offsets[:-1], np.diff(found.offsets))
        numbers = np.arange(first.size, dtype=np.int64) - first
        index = np.repeat(numbers, found.columns[1]).reshape(ids.size, length)
        bounds = found.offsets.tolist()
        unpack = self._storage.storage_format.unpack
        return [
            unpack(
                elements[k],
                shards[bounds[k] : bounds[k + 1]],
                index[k],
                payloads[bounds[k] : bounds[k + 1]],
            )
            for k in range(ids.size)
        ]

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
        now = self._opened()
        if not now.announces:
            return
        if then is not None:
            self._announce_guess(now, self._plan(now, then, length, stride), len(then), length)
        plan = self._plan(now, ids, length, stride)
        now.announce(plan)
        if not payloads:
            self._announce_guess(now, plan, len(ids), length)
            return
        try:
            found = self.find_pieces(now, plan, len(ids), length, unique=True, announced=True)
        except DatasetError:
            return  # it comes when the windows are read
        now.announce(found.payload_rows)

    def _plan(
        self, now: OpenSpans, ids: NDArray[np.int64] | Sequence[int], length: int, stride: int
    ) -> NDArray[np.int64]:
        return now.index.plan(ids, length, self._dtype.itemsize, stride)

    def _announce_guess(
        self, now: OpenSpans, plan: NDArray[np.int64], windows: int, length: int
    ) -> None:
        """Announce the spans that a search looks at first, which takes no reading."""
        rows = self._search(now, plan, windows, length).probes()
        if rows is not None:
            now.announce(rows)

    def _search(
        self, now: OpenSpans, plan: NDArray[np.int64], windows: int, length: int
    ) -> SpanSearch:
        itemsize = self._dtype.itemsize
        return SpanSearch(now.spans, plan, itemsize, max(length, 1) * itemsize, windows)

    def find_pieces(
        self,
        now: OpenSpans,
        plan: NDArray[np.int64],
        windows: int,
        length: int,
        *,
        unique: bool,
        announced: bool = False,
    ) -> Pieces:
        """The pieces of the spans in the windows of a plan.

        Args:
            now: the dataset, from `read_windows`.
            plan: from the same.
            windows: how many there are.
            length: elements per window.
            unique: whether a payload that several windows touch comes once.
            announced: whether to announce the spans before they are read, so that the storage has
                all of a round to do at once.

        Raises:
            DamagedFileError: the spans that were read cannot be; the message says where.
        """
        search = self._search(now, plan, windows, length)
        try:
            while (rows := search.probes()) is not None:
                if announced:
                    now.announce(rows)
                now.look_at(rows, SPAN_BYTES * search.asked)
                chunk = np.empty((search.asked, 2), dtype=np.int64)
                now.files.fill(rows, chunk)
                search.take(native(chunk))
        except WrongSpansError as wrong:
            raise _damaged(now, wrong) from None
        return Pieces(*pieces(search, unique))

    def read_payloads(self, now: OpenSpans, found: Pieces) -> NDArray[np.uint8]:
        """The payloads' bytes, one behind the other."""
        now.look_at(found.payload_rows, int(found.payload_offsets[-1]))
        payloads = np.empty(int(found.payload_offsets[-1]), dtype=np.uint8)
        if found.payload_rows.shape[0]:
            now.files.fill(found.payload_rows, payloads)
        return payloads


def _damaged(now: OpenSpans, wrong: WrongSpansError) -> DamagedFileError:
    table = now.table
    part = wrong.part
    return DamagedFileError(
        f"{table.file_name(part, SPANS)}, bytes {SPAN_BYTES * wrong.first} to "
        f"{SPAN_BYTES * (wrong.last + 1)}: the ends of spans {wrong.first} to {wrong.last} do not "
        f"grow from 0 to {int(table.length[part])} elements and "
        f"{int(table.nbytes[PAYLOADS][part])} bytes of payloads, the sizes of {ELEMENTS} and "
        f"{PAYLOADS}. The file is damaged: restore it from a copy"
    )

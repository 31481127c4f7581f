"""A stream whose every span says where it belongs, and what a writer does with it.

Element i of shard s is ``(s + 1) << 32 | i``. The payload of a span is the text ``s/i+n;`` for n
elements from i on, again and again, cut to a size of at least one text. So a reader checks every
span without a second copy, whatever the cut into appends. Some spans have no elements.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from guideloom_format import DatasetNotFoundError, StreamWithMetaStorage
from guideloom_write import StreamWithMetaWriter
from guideloom_write._files import PosixFiles
from write.faulty_files import Watched
from write.known_content import Known
from write.span_formats import Runs

ELEMENT = np.dtype("<u8")


def storage(directory: Path) -> StreamWithMetaStorage:
    return StreamWithMetaStorage(directory, Runs(ELEMENT))


def writer_at(directory: Path) -> StreamWithMetaWriter:
    return StreamWithMetaWriter(storage(directory), files=Watched())


def elements(shard: int, start: int, stop: int) -> NDArray[np.uint64]:
    return np.arange(start, stop, dtype=np.uint64) | np.uint64((shard + 1) << 32)


@dataclass(frozen=True)
class KnownSpans(Known[StreamWithMetaWriter]):
    """Spans of these lengths in turn, with payloads of at least these sizes in turn."""

    lengths: Sequence[int] = (3, 0, 1, 40, 0, 7)
    sizes: Sequence[int] = (0, 50, 9)

    roles = ("elements", "spans", "payloads")

    def writer(self, directory: Path, files: PosixFiles) -> StreamWithMetaWriter:
        return StreamWithMetaWriter(storage(directory), files=files)

    def payload(self, shard: int, first: int, count: int) -> bytes:
        text = b"%d/%d+%d;" % (shard, first, count)
        size = max(len(text), self.sizes[(shard + first) % len(self.sizes)])
        return (text * (size // len(text) + 1))[:size]

    def spans(self, shard: int, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        """Spans for the elements from `start` to `stop`."""
        at, turn = start, start + shard
        while at < stop:
            count = min(self.lengths[turn % len(self.lengths)], stop - at)
            yield count, self.payload(shard, at, count)
            at += count
            turn += 1

    def append(self, writer: StreamWithMetaWriter, shard: int, start: int, stop: int) -> None:
        """Append the elements of the shard from `start` to `stop`, with their spans."""
        spans = list(self.spans(shard, start, stop))
        counts, payloads = [count for count, _ in spans], [payload for _, payload in spans]
        writer.append(shard, (elements(shard, start, stop), counts, payloads))

    def visible(self, directory: Path) -> dict[int, int] | None:
        """Elements that a reader finds in each shard; all of them and all spans are checked."""
        try:
            with storage(directory).sync_reader() as reader:
                stream, shards, index, payloads = reader.read(0, len(reader))
                count = reader.span_count
        except DatasetNotFoundError:
            return None
        of_elements = (stream >> np.uint64(32)).astype(np.int64) - 1
        assert np.all(np.diff(of_elements) >= 0), "shards out of order"
        lengths = {}
        for shard in np.unique(of_elements).tolist():
            mine = stream[of_elements == shard]
            assert np.array_equal(mine, elements(shard, 0, mine.size)), f"shard {shard} is wrong"
            lengths[shard] = int(mine.size)
        borders = np.searchsorted(index, np.arange(len(payloads) + 1)).tolist()
        place = np.uint64(2**32 - 1)
        for k, (shard, payload) in enumerate(zip(shards, payloads, strict=True)):
            first = int(stream[borders[k]] & place)
            assert of_elements[borders[k]] == of_elements[borders[k + 1] - 1] == shard
            assert payload == self.payload(shard, first, borders[k + 1] - borders[k])
        assert self._spans_on_disk(directory) == count
        return lengths

    def _spans_on_disk(self, directory: Path) -> int:
        """The number of spans of all parts, each read from the files and checked."""
        total, ends = 0, dict[int, int]()
        for path in sorted((directory / "commits").glob("*.json")):
            record = json.loads(path.read_text(encoding="ascii"))
            shard, stem = record["shard"], directory / "data" / record["stem"]
            rows = np.fromfile(f"{stem}.spans", "<u8").reshape(-1, 2).tolist()
            payloads = Path(f"{stem}.payloads").read_bytes()
            base, at, payload_at = ends.get(shard, 0), 0, 0
            for end, payload_end in rows:
                found = payloads[payload_at:payload_end]
                assert found == self.payload(shard, base + at, end - at)
                at, payload_at = end, payload_end
            assert (at, payload_at) == (record["length"], len(payloads))
            ends[shard] = base + at
            total += len(rows)
        return total

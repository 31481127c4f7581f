"""What other processes do in the tests of streams with metadata; importable anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from guideloom import StreamDataset
from guideloom_format import DocumentBytesFormat, StreamSpansFormat, StreamWithMetaStorage

SPANS_PER_APPEND = 1000
SPAN_LENGTH = 7
PAYLOAD_BYTES = 16


def resident_bytes() -> int:
    """Memory of this process that is its own: without pages of files."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return 1024 * int(line.split()[1])
    raise OSError("the kernel does not say")


def write_many(directory: Path, spans: int) -> tuple[int, int]:
    """Write so many spans in three shards; memory after a tenth of them, and at the end."""
    storage = StreamWithMetaStorage(directory, StreamSpansFormat("<u2", DocumentBytesFormat()))
    lengths = [SPAN_LENGTH] * SPANS_PER_APPEND
    warm = 0
    with storage.sync_writer() as writer:
        for number in range(spans // SPANS_PER_APPEND):
            first = number * SPANS_PER_APPEND
            elements = np.repeat(np.arange(first, first + SPANS_PER_APPEND) % 65536, SPAN_LENGTH)
            payloads = [b"%0*d" % (PAYLOAD_BYTES, first + k) for k in range(SPANS_PER_APPEND)]
            writer.append(3 * number * SPANS_PER_APPEND // spans, (elements, lengths, payloads))
            if number == spans // SPANS_PER_APPEND // 10:
                warm = resident_bytes()
        writer.commit()
        return warm, resident_bytes()


def read_many(directory: Path, batches: int, batch_size: int) -> tuple[int, int, int]:
    """Read batches at random; memory after a tenth of them and at the end, and spans seen."""
    storage = StreamWithMetaStorage(directory, StreamSpansFormat("<u2", DocumentBytesFormat()))
    rng = np.random.default_rng(5)
    warm = seen = 0
    with StreamDataset(storage, 64, 32).sync_reader() as reader:
        for number in range(batches):
            ids = rng.integers(0, len(reader), batch_size)
            batch = reader.gather(ids)
            payloads = batch.payloads.values.reshape(-1, PAYLOAD_BYTES).tobytes()
            spans = [
                int(payloads[at : at + PAYLOAD_BYTES])
                for at in range(0, len(payloads), PAYLOAD_BYTES)
            ]
            assert np.array_equal(np.array(spans)[batch.payload_index], batch.spans)
            assert np.array_equal(batch.document_ids() % 65536, batch.stream)
            sample = reader[int(ids[0])]
            assert sample.payloads == [
                b"%0*d" % (PAYLOAD_BYTES, k) for k in batch.spans[: batch.offsets[1]]
            ]
            seen += batch.spans.size
            if number == batches // 10:
                warm = resident_bytes()
        return warm, resident_bytes(), seen

"""Windows of a stream with spans, against the same windows of a plain stream.

One thread, tokens in the page cache, 8 shards, spans of 1,000 tokens on average (log-normal) with
payloads of 16 bytes, windows of 2,048 tokens, batches of 32 in random order. The contestants of a
pair read the same tokens; the one with spans finds out which spans a window has, and reads their
payloads. A ratio of 0.6 means: 60 % of the windows per second.

`gather` gives one array and the spans' places as columns; `reader[ids]` decodes window by window;
the loader makes tensors of what `gather` gives.

The figures in bytes say what metadata costs on disk, per token; with checksums of blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annotated_stream import BATCH, WINDOW, AnnotatedStream, prepare_annotated
from guideloom import StatefulDataLoader, StreamDataset
from guideloom.io import MmapIO, PosixPreadIO
from loader import loader_rounds
from side_by_side import Prepare, Report, argument_parser, race, work_folder

Ids = NDArray[np.int64]

TARGET = 0.6
BACKENDS = {"pread": PosixPreadIO, "mmap": MmapIO}
# The first one has a target, the second is for information.
TYPES: tuple[np.dtype[Any], ...] = (np.dtype("<i4"), np.dtype("<u2"))


def read_rounds(method: Callable[[Ids], Any], windows: int, batches: int) -> Prepare:
    """Batches of random windows through a reader's method."""
    rng = np.random.default_rng(2)

    def prepare(number: int) -> Callable[[], Any]:
        del number
        ids = list(rng.integers(0, windows, (batches, BATCH)))

        def run() -> Any:
            for some in ids:
                batch = method(some)
            return batch

        return run

    return prepare


def make_loader(dataset: StreamDataset) -> StatefulDataLoader:
    return StatefulDataLoader(dataset, local_batch_size=BATCH, shuffle=True)


def check(stream: AnnotatedStream, annotated: Any, plain: Any) -> None:
    """All windows, so that every page is mapped; the last batch has the right tokens and spans."""
    count = stream.tokens // WINDOW
    shuffled = np.random.default_rng(3).permutation(count)[: count // BATCH * BATCH]
    for ids in shuffled.reshape(-1, BATCH):
        expected = plain.gather(ids)["tokens"]
        batch = annotated.gather(ids)
    if not np.array_equal(batch.stream, expected):
        raise RuntimeError("the stream with spans has other tokens")
    ends = np.cumsum(np.concatenate(stream.runs))
    places = ids[:, None] * WINDOW + np.arange(WINDOW)
    if not np.array_equal(batch.document_ids(), np.searchsorted(ends, places, side="right")):
        raise RuntimeError("the batch has other spans")


def compare(
    stream: AnnotatedStream, rounds: int, batches: int, report: Report, target: float | None
) -> None:
    """One type of token: all contestants, and what the metadata takes on disk."""
    count = stream.tokens // WINDOW
    batches = min(batches, count // BATCH - 2)
    contestants: dict[str, Prepare] = {}
    with ExitStack() as opened:
        for backend, make in BACKENDS.items():
            readers = {
                name: opened.enter_context(dataset.sync_reader())
                for name, dataset in (
                    ("plain", stream.plain(make())),
                    ("spans", stream.annotated(make())),
                )
            }
            check(stream, readers["spans"], readers["plain"])
            for name, reader in readers.items():
                gather = read_rounds(reader.gather, count, batches)
                contestants[f"gather, {backend}, {name}"] = gather
            for name, reader in readers.items():
                decode = read_rounds(reader.__getitem__, count, batches)
                contestants[f"reader[ids], {backend}, {name}"] = decode
        for name, dataset in (("plain", stream.plain()), ("spans", stream.annotated())):
            loader = opened.enter_context(make_loader(dataset))
            contestants[f"loader, pread, {name}"] = loader_rounds(loader, batches)
        taken = race(contestants, rounds)
    kind = stream.dtype.name
    seconds = {f"{name}, {kind}": values for name, values in taken.items()}
    report.rates(seconds, batches * BATCH, "windows/s")
    for name in seconds:
        if ", spans" in name:
            plain = name.replace(", spans", ", plain")
            label = name.replace(", spans", ", spans / plain")
            report.ratio(seconds, name, plain, target, label)
    for role, limit in (("spans", 0.1), ("payloads", None)):
        nbytes = stream.bytes_of(role) + stream.bytes_of(f"{role}.crc")
        report.figure(f"{role}, {kind}", "B/token", [nbytes / stream.tokens], limit)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--tokens", type=int, metavar="N", help="default: 256 Mi, 1 GiB, twice")
    parser.add_argument("--batches", type=int, default=200, metavar="N", help="of a round")
    arguments = parser.parse_args()
    tokens = arguments.tokens or (32 << 20 if arguments.quick else 256 << 20)
    rounds = arguments.rounds or (5 if arguments.quick else 20)
    with work_folder(arguments) as work:
        report = Report("annotated", arguments, work)
        for number, dtype in enumerate(TYPES):
            stream = prepare_annotated(work, tokens if number == 0 else tokens // 2, dtype)
            report.setting(f"{dtype.name} tokens", f"{stream.tokens:,}")
            report.setting(f"{dtype.name} spans", f"{stream.spans:,}")
            compare(stream, rounds, arguments.batches, report, TARGET if number == 0 else None)
        report.setting("rounds", f"{rounds} of {arguments.batches} batches")
        report.finish()


if __name__ == "__main__":
    main()

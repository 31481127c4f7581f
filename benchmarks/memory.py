"""Memory of a loader that runs for long, of a shuffler of enormous length, of many documents.

Resident memory of the process, sampled every 10,000 batches after a warm-up of as many. `growth`
is the last sample minus the first, `peak` the largest minus the first. A few hundred KiB once are
the allocator's; what counts is that growth does not follow the number of batches. Small windows:
it is the batches that are many.

The rows of documents and spans: a million of them written in one go, and all of them read in
random order, sampled every tenth; see many_items.py.
"""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import numpy as np

from guideloom import StatefulDataLoader, StreamDataset, StreamNumpyFormat, StreamStorage
from guideloom.shuffle import FeistelShuffler
from machine import resident
from many_items import document_samples, span_samples
from side_by_side import Report, argument_parser, work_folder

SEQUENCE_LENGTH = 16
LOCAL_BATCH_SIZE = 4
SAMPLES = 1 << 16


def write(folder: Path) -> StreamDataset:
    """A small dataset, which the loader runs through again and again."""
    format_ = StreamNumpyFormat(np.dtype([("tokens", "<u2")]))
    storage = StreamStorage(folder / "dataset", format_)
    tokens = np.arange(SAMPLES * SEQUENCE_LENGTH).astype(np.uint16)
    with storage.sync_writer() as writer:
        for shard, part in enumerate(np.split(tokens, 8)):
            writer.append(shard, {"tokens": part})
    return StreamDataset(storage, SEQUENCE_LENGTH)


def run(dataset: StreamDataset, batches: int, every: int, num_workers: int) -> list[int]:
    """Resident memory every so many batches, after the first so many."""
    samples = []
    done = 0
    with StatefulDataLoader(
        dataset,
        local_batch_size=LOCAL_BATCH_SIZE,
        shuffle=True,
        num_workers=num_workers,
        prefetch=2 * num_workers,
    ) as loader:
        while done < batches:
            for batch in loader:
                if batch["tokens"].shape != (LOCAL_BATCH_SIZE, SEQUENCE_LENGTH):
                    raise RuntimeError(f"a batch has the shape {batch['tokens'].shape}")
                done += 1
                if done % every == 0:
                    samples.append(resident())
                if done == batches:
                    break
    return samples


def shuffler_growth(length: int) -> int:
    """KiB that a shuffler of this length takes, with some shuffled indexes."""
    positions = np.linspace(0, length - 1, 1000).astype(np.int64) % length
    FeistelShuffler.from_seed(1000, 0).shuffle(positions % 1000)
    gc.collect()
    before = resident()
    shuffler = FeistelShuffler.from_seed(length, 0)
    values = shuffler.shuffle(positions)
    if not np.array_equal(shuffler.unshuffle(values), positions):
        raise RuntimeError("unshuffle is not the inverse")
    return resident() - before


def show(report: Report, name: str, samples: list[int]) -> None:
    """The rows of one run."""
    report.figure(f"{name}: first", "KiB", [samples[0]])
    report.figure(f"{name}: last", "KiB", [samples[-1]])
    report.figure(f"{name}: growth", "KiB", [samples[-1] - samples[0]])
    report.figure(f"{name}: peak", "KiB", [max(samples) - samples[0]])


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--batches", type=int, metavar="N", help="default: 10**6")
    arguments = parser.parse_args()
    batches = arguments.batches or (10**5 if arguments.quick else 10**6)
    with work_folder(arguments) as work:
        report = Report("memory", arguments, work)
        lengths = {"10**10": 10**10, "2**62": 2**62}
        for name, length in lengths.items():
            report.figure(f"shuffler of {name}: growth", "KiB", [shuffler_growth(length)])
        with tempfile.TemporaryDirectory(prefix="guideloom-memory-", dir=work) as folder:
            dataset = write(Path(folder))
            for num_workers, count in ((0, batches), (2, batches // 10)):
                every = max(1, min(10_000, count // 10))
                samples = run(dataset, count, every, num_workers)
                show(report, f"{num_workers} workers, {count:,} batches", samples)
            items = 10**5 if arguments.quick else 10**6
            for name, samples in {
                **document_samples(Path(folder), items),
                **span_samples(Path(folder), items),
            }.items():
                show(report, name, samples)
        report.setting("epoch", f"{SAMPLES // LOCAL_BATCH_SIZE:,} batches")
        report.finish()


if __name__ == "__main__":
    main()

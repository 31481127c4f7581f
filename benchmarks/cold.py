"""Batches of shuffled samples that are not in memory, with and without announcing.

One thread, batches of 32: windows of 4 KiB of a stream in 8 shards; documents with a median of
1.2 kB; and windows with the spans that lie in them, of 1,000 tokens on average, each with a payload
of 16 bytes. Before every round the page cache forgets the data files, and every round has samples
that no other one has. *Announced* means that `reader.announce` is called some batches ahead, as a
loader does that knows the order; the rest of the loop is the same. The first batches are announced
within the time that is measured.

fio is a program for measuring storage: it reads blocks of the size of a window at random places of
the same files, past the page cache, with as many reads in flight as the announced loop has. It is
what the device gives. It takes part if it is installed. Documents and spans have no such yardstick:
a sample lies on several pages of several files.

A ratio of 3 means: three times as many samples per second. Figures of rotating disks, solid-state
disks and virtual ones differ by orders of magnitude; so does what announcing gains on them.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from mmap import ACCESS_READ, PAGESIZE, mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annotated_stream import prepare_annotated
from document_set import prepare_documents
from guideloom import DocumentDataset, StreamDataset
from guideloom.io import MmapIO, PosixPreadIO
from side_by_side import Prepare, Report, argument_parser, race, work_folder
from token_stream import BATCH, WINDOW, prepare_stream

Dataset = StreamDataset | DocumentDataset
FIO = "fio"
NBYTES = 2 * WINDOW
MOST_CACHED = 0.01


def forget(files: Sequence[Path]) -> None:
    """Have the kernel drop the pages of files that nobody maps."""
    gc.collect()
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def cached(files: Sequence[Path]) -> float:
    """The part of the files' pages that is in the page cache."""
    pages = there = 0
    for path in files:
        with path.open("rb", buffering=0) as file:
            mapped = np.frombuffer(mmap(file.fileno(), 0, access=ACCESS_READ), np.uint8)
        found = np.zeros(-(-mapped.size // PAGESIZE), np.uint8)
        address, length = ctypes.c_void_p(mapped.ctypes.data), ctypes.c_size_t(mapped.size)
        if ctypes.CDLL(None).mincore(address, length, ctypes.c_void_p(found.ctypes.data)):
            raise RuntimeError("mincore failed")
        pages += found.size
        there += int((found & 1).sum())
    return there / pages


class FreshSamples:
    """Batches of sample ids, no id twice before all had their turn."""

    def __init__(self, count: int, batches: int) -> None:
        self._rng = np.random.default_rng(5)
        self._count = count
        self._shape = (min(batches, count // BATCH), BATCH)
        self._ids: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    @property
    def samples(self) -> int:
        """In a round."""
        return self._shape[0] * BATCH

    def take(self) -> list[NDArray[np.int64]]:
        """The batches of a round."""
        if self._ids.size < self.samples:
            self._ids = self._rng.permutation(self._count)
        taken, self._ids = self._ids[: self.samples], self._ids[self.samples :]
        return list(taken.reshape(self._shape))


def read_all(reader: Any, batches: Sequence[NDArray[np.int64]], ahead: int) -> None:
    """Every batch; each is announced so many batches before, none if that is 0."""
    if not ahead:
        for ids in batches:
            reader.gather(ids)
        return
    coming: Iterator[Any] = zip(batches, [*batches[1:], None], strict=True)
    for _ in range(min(ahead, len(batches))):
        reader.announce(*next(coming))
    for ids in batches:
        for further in coming:
            reader.announce(*further)
            break
        reader.gather(ids)


def contestant(dataset: Dataset, files: Sequence[Path], fresh: FreshSamples, ahead: int) -> Prepare:
    """A round: a reader that was just opened, over files that were just forgotten."""

    def prepare(_: int) -> Callable[[], None]:
        reader = dataset.sync_reader().open()
        batches = fresh.take()
        forget(files)
        share = cached(files)
        if share > MOST_CACHED:
            raise RuntimeError(
                f"{share:.0%} of the data stay in the page cache; choose a folder on a file "
                "system that can forget, with --work"
            )

        def run() -> None:
            read_all(reader, batches, ahead)
            reader.close()

        return run

    return prepare


def fio_seconds(files: Sequence[Path], reads: int, depth: int) -> float:
    """How long fio reads so many windows, past the page cache; without its start."""
    forget(files)
    command = [
        FIO,
        "--name=cold",
        "--output-format=json",
        f"--filename={':'.join(map(str, files))}",
        "--file_service_type=random",
        "--rw=randread",
        f"--bs={NBYTES}",
        f"--io_size={reads * NBYTES}",
        f"--iodepth={depth}",
        "--ioengine=libaio",
        "--direct=1",
        "--readonly",
        "--randrepeat=0",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rate: float = json.loads(done.stdout)["jobs"][0]["read"]["iops"]
    return reads / rate


def check(dataset: Dataset, files: Sequence[Path], fresh: FreshSamples) -> None:
    """What is read after it was announced is what is read without."""
    batches = fresh.take()[:20]
    for io in (PosixPreadIO(), MmapIO()):
        forget(files)
        with dataset.with_backend(io).sync_reader() as reader:
            for ids in batches:
                reader.announce(ids)
            announced = [reader.gather(ids) for ids in batches]
        with dataset.sync_reader() as reader:
            for ids, batch in zip(batches, announced, strict=True):
                if not same(batch, reader.gather(ids)):
                    raise RuntimeError("announcing has changed what is read")


def same(one: Any, other: Any) -> bool:
    """Whether two batches hold the same values."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, tuple):
        return all(map(same, one, other))
    return bool(np.array_equal(one, other))


class Fio:
    """fio among the contestants: it works while a round is prepared, and has its own clock."""

    def __init__(self, files: Sequence[Path], depth: int) -> None:
        self._files = files
        self._depth = depth
        self.seconds: list[float] = []

    def contestant(self, reads: int) -> Prepare:
        """Takes its turn in each round; what is timed of it is nothing."""

        def prepare(number: int) -> Callable[[], None]:
            seconds = fio_seconds(self._files, reads, self._depth)
            if number:
                self.seconds.append(seconds)
            return lambda: None

        return prepare


def compare(
    report: Report,
    what: str,
    dataset: Dataset,
    files: Sequence[Path],
    arguments: Any,
    fio: Fio | None = None,
    target: float | None = 3.0,
) -> None:
    """Samples per second through each backend, with and without announcing."""
    with dataset.sync_reader() as reader:
        fresh = FreshSamples(len(reader), arguments.batches)
    check(dataset, files, fresh)
    contestants: dict[str, Prepare] = {}
    for name, io in (("pread", PosixPreadIO()), ("mmap", MmapIO())):
        over = dataset.with_backend(io)
        contestants[f"{what}, {name}"] = contestant(over, files, fresh, 0)
        contestants[f"{what}, {name}, announced"] = contestant(over, files, fresh, arguments.ahead)
    if fio is not None:
        contestants[FIO] = fio.contestant(fresh.samples)
    seconds = race(contestants, arguments.rounds)
    if fio is not None:
        seconds[FIO] = fio.seconds
    report.rates(seconds, fresh.samples, "samples/s")
    for name in ("pread", "mmap"):
        announced = f"{what}, {name}, announced"
        report.ratio(seconds, announced, f"{what}, {name}", target)
        if fio is not None:
            report.ratio(seconds, announced, FIO, 0.8)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--tokens", type=int, metavar="N", help="default: 1 Gi, 2 GiB")
    parser.add_argument("--documents", type=int, metavar="N", help="default: 1,000,000, 2 GB")
    parser.add_argument("--batches", type=int, metavar="N", help="of a round, default: 200")
    parser.add_argument("--ahead", type=int, default=4, metavar="N", help="batches announced")
    arguments = parser.parse_args()
    quick = arguments.quick
    arguments.rounds = arguments.rounds or (3 if quick else 9)
    arguments.batches = arguments.batches or (50 if quick else 200)
    tokens = arguments.tokens or (64 << 20 if quick else 1 << 30)
    count = arguments.documents or (100_000 if quick else 1_000_000)
    depth = arguments.ahead * BATCH
    with work_folder(arguments) as work:
        report = Report("cold", arguments, work)
        report.setting("rounds", f"{arguments.rounds} of {arguments.batches} batches")
        report.setting("announced", f"{arguments.ahead} batches ahead, {depth} samples")
        stream = prepare_stream(work, tokens)
        report.setting("tokens", f"{stream.tokens:,}")
        if not shutil.which(FIO):
            report.note("fio is not installed and did not take part")
        fio = Fio(stream.files(), depth) if shutil.which(FIO) else None
        compare(report, "windows", stream.dataset(), stream.files(), arguments, fio)
        documents = prepare_documents(work, count, 8)
        report.setting("documents", f"{documents.count:,}")
        files = documents.files("documents") + documents.files("ends")
        compare(report, "documents", DocumentDataset(documents.storage()), files, arguments)
        annotated = prepare_annotated(work, tokens // 4, np.dtype("<u2"))
        report.setting("tokens with spans", f"{annotated.tokens:,}")
        files = sorted(annotated.directory.glob("annotated/data/*/*"))
        spans = annotated.annotated()
        compare(report, "windows with spans", spans, files, arguments, target=None)
        report.finish()


if __name__ == "__main__":
    main()

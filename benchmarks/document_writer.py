"""Writing documents and streams with spans, against what they are made of.

Documents: a million, log-normal lengths with a median of 1.2 kB, given to `append` one by one and
to `extend` as a whole, with checksums and everything made durable, against a Python loop of
buffered writes of the same bytes to one plain file, flush and `fsync`. Spans: a stream in appends
of 64 spans of 1,000 uint16 tokens, and of one span, with payloads of 16 bytes, against the writer
of plain streams with the same tokens in the same appends. A ratio of 0.4 means: 40 % of the bytes
per second. Creating the dataset and committing are within the measured time, deleting is not.

On a disk this measures the disk. The rows in a folder in memory, where `fsync` does nothing, show
what the writer costs the CPU.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from document_set import FORMAT, document_bytes, document_lengths
from guideloom import (
    DocumentBytesFormat,
    DocumentStorage,
    StreamNumpyFormat,
    StreamSpansFormat,
    StreamStorage,
    StreamWithMetaStorage,
)
from machine import file_system
from side_by_side import Prepare, Report, argument_parser, race, work_folder
from writer import clear, touch_free_memory

Run = Callable[[Path], None]

SPAN = 1000  # tokens
TOKEN = np.dtype("<u2")
DOCUMENT_POOL = 1 << 16  # documents in memory, written in turn
TOKEN_POOL = 32 << 20


@dataclass(frozen=True)
class Case:
    """The same bytes, written in several ways; the first is what the others are measured by."""

    name: str
    nbytes: int
    runs: dict[str, Run]
    targets: dict[str, float]
    count: int
    unit: str  # of what there are `count`


def document_case(count: int) -> Case:
    """So many documents."""
    pool = list(document_bytes(document_lengths(min(count, DOCUMENT_POOL))))
    documents = pool * (count // len(pool)) + pool[: count % len(pool)]

    def plain(folder: Path) -> None:
        with open(folder / "plain", "wb") as file:
            for document in documents:  # noqa: FURB122  one call each is the yardstick
                file.write(document)
            file.flush()
            os.fsync(file.fileno())

    def append(folder: Path) -> None:
        with DocumentStorage(folder / "dataset", FORMAT).sync_writer() as writer:
            for document in documents:
                writer.append(0, document)

    def extend(folder: Path) -> None:
        with DocumentStorage(folder / "dataset", FORMAT).sync_writer() as writer:
            writer.extend(0, documents)

    return Case(
        f"{count:,} documents",
        sum(map(len, documents)),
        {"plain file": plain, "append": append, "extend": extend},
        {"append": 0.4, "extend": 0.4},
        count,
        "documents/s",
    )


def span_case(spans: int, tokens: int) -> Case:
    """A stream of so many tokens, in appends of so many spans."""
    size = spans * SPAN
    total = tokens // size
    pool = np.random.default_rng(4).integers(0, 1 << 16, min(TOKEN_POOL, total * size), TOKEN)
    arrays = [pool[k * size : (k + 1) * size] for k in range(len(pool) // size)]
    runs = np.full(spans, SPAN)
    payloads = [f"{k:016}".encode() for k in range(spans)]

    def plain(folder: Path) -> None:
        format_ = StreamNumpyFormat(np.dtype([("tokens", TOKEN)]))
        with StreamStorage(folder / "plain-dataset", format_).sync_writer() as writer:
            for k in range(total):
                writer.append(0, {"tokens": arrays[k % len(arrays)]})

    def annotated(folder: Path) -> None:
        format_ = StreamSpansFormat(TOKEN, DocumentBytesFormat())
        with StreamWithMetaStorage(folder / "dataset", format_).sync_writer() as writer:
            for k in range(total):
                writer.append(0, (arrays[k % len(arrays)], runs, payloads))

    return Case(
        f"appends of {spans} spans" if spans > 1 else "appends of one span",
        total * size * TOKEN.itemsize,
        {"plain stream": plain, "with spans": annotated},
        {"with spans": 0.5},
        total,
        "appends/s",
    )


def check(folder: Path, case: Case) -> None:
    """What was written in every way is the same."""
    found = []
    for name, run in case.runs.items():
        remove(folder)
        run(folder)
        plain = folder / "plain"
        roles = ("elements", "documents")
        paths = [path for role in roles for path in folder.glob(f"*/data/*/*.{role}")]
        (path,) = [plain] if plain.exists() else paths
        found.append((name, path.read_bytes()))
    for name, data in found:
        if data != found[0][1] or len(data) != case.nbytes:
            raise RuntimeError(f"{name} wrote other bytes")


def remove(folder: Path) -> None:
    """Remove what was written, in whatever way."""
    clear(folder)
    shutil.rmtree(folder / "plain-dataset", ignore_errors=True)


def compare(folder: Path, case: Case, rounds: int) -> dict[str, list[float]]:
    """Seconds of every way to write."""

    def turn(run: Run) -> Prepare:
        def prepare(number: int) -> Callable[[], None]:
            del number
            remove(folder)
            os.sync()
            touch_free_memory(case.nbytes)
            return lambda: run(folder)

        return prepare

    return race({name: turn(run) for name, run in case.runs.items()}, rounds)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--documents", type=int, metavar="N", help="default: 10**6, about 2 GB")
    parser.add_argument(
        "--memory", type=Path, default=Path("/dev/shm"), metavar="DIR", help="a folder in memory"
    )
    arguments = parser.parse_args()
    count = arguments.documents or (50_000 if arguments.quick else 10**6)
    rounds = arguments.rounds or 3
    tokens = (16 if arguments.quick else 128) << 20
    with work_folder(arguments) as work:
        report = Report("document_writer", arguments, work)
        report.setting("rounds", rounds)
        places = [("disk", work, count, True)]
        memory: Path = arguments.memory
        if memory.is_dir() and file_system(memory) == "tmpfs":
            places.append(("memory", memory, count // 5, False))
        for place, folder, some, aimed in places:
            check_small(folder)
            for case in (document_case(some), span_case(64, tokens), span_case(1, tokens)):
                if shutil.disk_usage(folder).free < 2 * case.nbytes:
                    print(f"{folder} has too little free space, left out", file=sys.stderr)
                    continue
                with tempfile.TemporaryDirectory(prefix="guideloom-write-", dir=folder) as here:
                    taken = compare(Path(here), case, rounds)
                show(report, case, taken, place, aimed)
        report.finish()


def check_small(folder: Path) -> None:
    """Every way to write, once with little, compared."""
    with tempfile.TemporaryDirectory(prefix="guideloom-write-", dir=folder) as here:
        for case in (document_case(5000), span_case(64, 1 << 20), span_case(1, 1 << 20)):
            check(Path(here), case)


def show(
    report: Report, case: Case, taken: dict[str, list[float]], place: str, aimed: bool
) -> None:
    """The figures of a case."""
    named = {f"{name}, {case.name}, {place}": values for name, values in taken.items()}
    base = next(iter(named))
    report.rates(named, case.nbytes, "GB/s", 1e9)
    report.rates(named, case.count, case.unit)
    for name in list(taken)[1:]:
        target = case.targets.get(name) if aimed else None
        label = f"{name} / {next(iter(taken))}, {case.name}, {place}"
        report.ratio(named, f"{name}, {case.name}, {place}", base, target, label)


if __name__ == "__main__":
    main()

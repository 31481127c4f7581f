"""`verify` of everything, against the rate of the checksum library itself, on one core.

The base is google_crc32c over 256 MiB in memory, which no cache of a core holds; `verify` reads the
files from the page cache, computes every checksum, compares, checks all ends. Bytes per second of
data files, those of checksums not counted. Few big files: two shards of one part each; many small
ones: shards of 1 MiB. Files of 64 KiB show what a file costs: they have no target. Documents have
1,200 bytes each, spans 1,000 tokens and a payload of 16 bytes.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

import guideloom
from document_set import read_through
from guideloom import (
    DocumentBytesFormat,
    DocumentStorage,
    StreamNumpyFormat,
    StreamSpansFormat,
    StreamStorage,
    StreamWithMetaStorage,
)
from guideloom_write._files import PosixFiles
from side_by_side import Prepare, Report, argument_parser, race, work_folder

BIG, MEDIUM, SMALL = "few big files", "files of 1 MiB", "files of 64 KiB"
TARGET = 0.3
KINDS = ("stream", "documents", "stream with metadata")
DOCUMENT, SPAN = 1200, 1000
APPEND = 8 << 20  # bytes
BUFFER = np.random.default_rng(5).bytes(256 << 20)


class Unsynced(PosixFiles):
    """File operations of a writer that leaves everything to the page cache."""

    def sync(self, descriptor: int) -> None:
        """Not needed: the data lives as long as this benchmark."""

    def sync_folder(self, path: str) -> None:
        """The same."""


def storage_of(kind: str, folder: Path) -> Any:
    """A dataset of this kind."""
    if kind == "stream":
        return StreamStorage(folder, StreamNumpyFormat(np.dtype([("tokens", "<u2")])))
    if kind == "documents":
        return DocumentStorage(folder, DocumentBytesFormat())
    return StreamWithMetaStorage(folder, StreamSpansFormat("<u2", DocumentBytesFormat()))


def append(kind: str, writer: Any, shard: int, data: bytes) -> None:
    """These bytes as elements, or cut into documents, or as elements in spans."""
    if kind == "stream":
        writer.append(shard, {"tokens": np.frombuffer(data, "<u2")})
    elif kind == "documents":
        writer.extend(shard, [data[k : k + DOCUMENT] for k in range(0, len(data), DOCUMENT)])
    else:
        elements = np.frombuffer(data, "<u2")
        lengths = [min(SPAN, elements.size - k) for k in range(0, elements.size, SPAN)]
        writer.append(shard, (elements, lengths, [b"%016d" % k for k in range(len(lengths))]))


def write(kind: str, folder: Path, part: int, parts: int) -> None:
    """So many shards with one part of so many bytes each, all in the page cache."""
    storage = storage_of(kind, folder)
    writer_class = type(storage.sync_writer())
    with writer_class(storage, files=Unsynced()) as writer:
        for shard in range(parts):
            for start in range(0, part, APPEND):
                append(kind, writer, shard, BUFFER[: min(APPEND, part - start)])
            writer.commit()
    for path in folder.rglob("*"):
        if path.is_file():
            read_through(path)


def verifying(folder: Path) -> Prepare:
    """The contestant that verifies a dataset."""

    def call() -> None:
        report = guideloom.verify(folder)
        if not report.clean:
            raise RuntimeError(str(report))

    return lambda _: call


def checksum(buffer: bytes) -> Prepare:
    """The contestant that computes the checksum of bytes in memory."""
    return lambda _: lambda: google_crc32c.value(buffer)


def measure(
    report: Report, kind: str, name: str, folder: Path, size: tuple[int, int], rounds: int
) -> None:
    """The figures of one dataset: so many bytes per part, so many parts."""
    write(kind, folder, *size)
    seconds = race({"checksum": checksum(BUFFER), "verify": verifying(folder)}, rounds)
    nbytes = guideloom.verify(folder).nbytes
    rates = [nbytes / value for value in seconds["verify"]]
    base = [len(BUFFER) / value for value in seconds["checksum"]]
    ratios = [mine / other for mine, other in zip(rates, base, strict=True)]
    label = f"{kind}, {name}"
    report.figure(f"checksum library, {label}", "GB/s", [value / 1e9 for value in base])
    report.figure(f"verify, {label}", "GB/s", [value / 1e9 for value in rates])
    goal = None if name == SMALL else TARGET
    report.figure(f"verify / checksum library, {label}", "ratio", ratios, goal)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--bytes", type=int, metavar="N", help="of each dataset; default: 1 GiB")
    arguments = parser.parse_args()
    wanted = arguments.bytes or (64 << 20 if arguments.quick else 1 << 30)
    total = max(1, wanted // (2 << 20)) * (2 << 20)
    rounds = arguments.rounds or (3 if arguments.quick else 7)
    sizes = {
        BIG: (total // 2, 2),
        MEDIUM: (1 << 20, total >> 20),
        SMALL: (1 << 16, min(total >> 16, 4096)),
    }
    with work_folder(arguments) as work:
        report = Report("verify", arguments, work)
        report.setting("rounds", rounds)
        report.setting("cores", 1)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        for name, (part, parts) in sizes.items():
            report.setting(name, f"{parts:,} parts of {part:,} bytes")
        for kind in KINDS:
            for name, size in sizes.items():
                if shutil.disk_usage(work).free < 2 * total:
                    print(f"{work} has too little free space, left out", file=sys.stderr)
                    continue
                with tempfile.TemporaryDirectory(prefix="guideloom-verify-", dir=work) as folder:
                    measure(report, kind, name, Path(folder), size, rounds)
        report.finish()


if __name__ == "__main__":
    main()

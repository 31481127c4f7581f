"""Appending and committing, against writing the same bytes to one plain file.

Large: appends of 1 Mi uint16 tokens, with checksums and everything made durable, against `write`
of the same arrays to an unbuffered file and `fsync`. Small: appends of 1,000 tokens, against
buffered `write` of the same arrays, flush and `fsync`. A ratio of 0.8 means: 80 % of the bytes per
second. Creating the dataset and committing are within the measured time, deleting is not.

On a disk this measures the disk. The second pair of rows, in a folder in memory, where `fsync`
does nothing, shows what the writer costs the CPU.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom import StreamNumpyFormat, StreamStorage
from machine import file_system
from side_by_side import Prepare, Report, argument_parser, race, work_folder

Arrays = list[NDArray[np.uint16]]
FORMAT = StreamNumpyFormat(np.dtype([("tokens", "<u2")]))
LARGE, SMALL = 1 << 20, 1000
POOL = 32 << 20  # tokens in memory, appended in turn


def append(folder: Path, arrays: Arrays, total: int) -> None:
    """`total` arrays through the writer, in turn; committed."""
    count = len(arrays)
    with StreamStorage(folder / "dataset", FORMAT).sync_writer() as writer:
        for k in range(total):
            writer.append(0, {"tokens": arrays[k % count]})


def plain(folder: Path, arrays: Sequence[Any], total: int, buffering: int) -> None:
    """The same bytes to a plain file; `buffering` as for `open`."""
    count = len(arrays)
    with open(folder / "plain", "wb", buffering) as file:
        file.writelines(arrays[k % count] for k in range(total))
        file.flush()
        os.fsync(file.fileno())


def check(folder: Path) -> None:
    """Both files hold the same bytes."""
    element_files = list(folder.glob("dataset/data/*/*.elements"))
    if len(element_files) != 1:
        raise RuntimeError(f"expected one data file, found {len(element_files)}")
    with element_files[0].open("rb") as mine, (folder / "plain").open("rb") as base:
        while block := base.read(1 << 24):
            if mine.read(len(block)) != block:
                raise RuntimeError("the data file differs from the plain file")
        if mine.read(1):
            raise RuntimeError("the data file is longer than the plain file")


def clear(folder: Path) -> None:
    """Remove both."""
    shutil.rmtree(folder / "dataset", ignore_errors=True)
    (folder / "plain").unlink(missing_ok=True)


def touch_free_memory(nbytes: int) -> None:
    """Take memory and give it back, so that both contestants find pages that are ready.

    A virtual machine may have to ask its host for a page at first use, which takes longer than
    writing it and would hit whoever writes to a page that was not used for a while.
    """
    np.ones(nbytes + nbytes // 4, dtype=np.uint8)


def compare(here: Path, size: int, nbytes: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of the plain file and of the writer, in appends of `size` tokens."""
    rng = np.random.default_rng(4)
    pool = rng.integers(0, 1 << 16, min(POOL, nbytes // 2), dtype=np.uint16)
    arrays = [pool[k * size : (k + 1) * size] for k in range(len(pool) // size)]
    total = nbytes // (2 * size)
    buffering = 0 if size == LARGE else -1

    def turn(run: Callable[[], None]) -> Prepare:
        def prepare(number: int) -> Callable[[], None]:
            del number
            clear(here)
            os.sync()
            touch_free_memory(nbytes)
            return run

        return prepare

    some = min(total, 2 * len(arrays))
    plain(here, arrays, some, buffering)
    append(here, arrays, some)
    check(here)
    contestants = {
        "plain file": turn(lambda: plain(here, arrays, total, buffering)),
        "writer": turn(lambda: append(here, arrays, total)),
    }
    return race(contestants, rounds)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--bytes", type=int, metavar="N", help="of the large one; default: 1 GiB")
    parser.add_argument(
        "--memory", type=Path, default=Path("/dev/shm"), metavar="DIR", help="a folder in memory"
    )
    arguments = parser.parse_args()
    nbytes = max(arguments.bytes or (64 << 20 if arguments.quick else 1 << 30), 4 * 2 * LARGE)
    rounds = arguments.rounds or (3 if arguments.quick else 5)
    cases = (("large appends", LARGE, nbytes, 0.8), ("small appends", SMALL, nbytes // 4, 0.4))
    with work_folder(arguments) as work:
        report = Report("writer", arguments, work)
        report.setting("rounds", rounds)
        for name, size, amount, _ in cases:
            report.setting(name, f"{size:,} tokens each, {amount >> 20} MiB")
        places = [("disk", work, True)]
        memory: Path = arguments.memory
        if memory.is_dir() and file_system(memory) == "tmpfs":
            places.append(("memory", memory, False))
        for place, folder, aimed in places:
            for name, size, amount, target in cases:
                if shutil.disk_usage(folder).free < 3 * amount:
                    print(f"{folder} has too little free space, left out", file=sys.stderr)
                    continue
                with tempfile.TemporaryDirectory(prefix="guideloom-write-", dir=folder) as here:
                    seconds = compare(Path(here), size, amount, rounds)
                named = {f"{who}, {name}, {place}": taken for who, taken in seconds.items()}
                base, writer = named
                report.rates(named, amount, "GB/s", 1e9)
                goal = target if aimed else None
                report.ratio(named, writer, base, goal, f"writer / plain, {name}, {place}")
        report.finish()


if __name__ == "__main__":
    main()

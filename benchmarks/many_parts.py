"""A dataset of 100,000 parts: consolidating, opening, memory, open files.

Consolidating, against a plain loop that opens every commit record, reads it and parses it with
json.loads; opening with a reader, against json.loads of the manifest's bytes in memory. The targets
are in times of the base: at most twice, at most three times. Opening also lists the commit records,
for what was committed since; `os.listdir` has a row of its own, and so has a reader that is pinned
to the manifest version, which lists nothing.

Memory is the peak of a fresh process that opens the dataset and reads a little, less that of one
that does the same to 10 parts. Open files: the most that a process with at most 256 descriptors has
open while it reads from every part, in order and in any order.

The parts lie in one shard each, which makes for the most names; `--per-shard` changes it.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from guideloom import StreamStorage
from part_set import FORMAT, LENGTH, forget_manifests, prepare_parts, tokens
from side_by_side import Prepare, Report, argument_parser, race, work_folder

MEMORY = "memory"
FILES = "files"
DESCRIPTORS = 256
MOST_MEGABYTES = 60.0


def fixed(call: Callable[[], object]) -> Prepare:
    """A contestant that needs no preparation."""
    return lambda _: call


def consolidating(storage: StreamStorage) -> dict[str, Prepare]:
    """Consolidation of everything, and the plain loop."""
    commits = str(storage.directory / "commits")

    def plain() -> list[object]:
        records = []
        for name in os.listdir(commits):
            with open(f"{commits}/{name}", "rb") as file:
                records.append(json.loads(file.read()))
        return records

    def afresh(number: int) -> Callable[[], object]:
        del number
        forget_manifests(storage)
        return storage.consolidate

    return {"plain loop": fixed(plain), "consolidate": afresh}


def opening(storage: StreamStorage, version: int) -> dict[str, Prepare]:
    """A reader's open, of everything and of a version, and what it is made of."""
    manifest = (storage.directory / "manifest.json").read_bytes()
    commits = storage.directory / "commits"
    pinned = StreamStorage(storage.directory, FORMAT, version=version)
    return {
        "json.loads": fixed(lambda: json.loads(manifest)),
        "open": fixed(lambda: storage.sync_reader().open()),
        "open, pinned": fixed(lambda: pinned.sync_reader().open()),
        "os.listdir": fixed(lambda: os.listdir(commits)),
    }


def times(
    report: Report, seconds: dict[str, list[float]], name: str, base: str, target: float | None
) -> None:
    """How many times as long as the base, round by round."""
    ratios = [mine / other for mine, other in zip(seconds[name], seconds[base], strict=True)]
    report.figure(f"{name}, in times of {base}", "times", ratios, target)


def of_new_process(what: str, directory: Path) -> float:
    """What this script finds out in a process of its own."""
    command = [sys.executable, __file__, "--in-process", what, "--work", str(directory)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


def peak_of_opening(directory: Path) -> int:
    """Bytes: the most memory that this process had, when the dataset is open and was read from."""
    with StreamStorage(directory, FORMAT).sync_reader() as reader:
        reader.read(len(reader) - 4, 4)
        status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def most_open_files(directory: Path) -> int:
    """The most descriptors at once while every part is read, with a low limit for the process."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    most = 0
    with StreamStorage(directory, FORMAT).sync_reader() as reader:
        parts = len(reader) // LENGTH
        every = np.arange(parts)
        for order in (every, np.random.default_rng(8).permutation(every)):
            for batch in np.array_split(order, -(-parts // 512)):
                reader.read_many(batch * LENGTH, LENGTH)
                most = max(most, len(os.listdir("/proc/self/fd")) - 1)
    return most


def check(storage: StreamStorage, count: int, per_shard: int) -> None:
    """The parts are what a writer would have written."""
    with storage.sync_reader() as reader:
        if len(reader) != count * LENGTH:
            raise RuntimeError(f"{len(reader)} elements, expected {count * LENGTH}")
        for k in range(0, count, max(1, count // 100)):
            found = reader.read(k * LENGTH, LENGTH)["tokens"]
            if not np.array_equal(found, tokens(*divmod(k, per_shard))):
                raise RuntimeError(f"part {k} holds {found}")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--parts", type=int, metavar="N", help="default: 100,000")
    parser.add_argument("--per-shard", type=int, default=1, metavar="N", help="parts of a shard")
    parser.add_argument("--in-process", choices=(MEMORY, FILES), help="for this script's own use")
    arguments = parser.parse_args()
    if arguments.in_process:
        measure = {MEMORY: peak_of_opening, FILES: most_open_files}[arguments.in_process]
        print(measure(arguments.work))
        return
    count = arguments.parts or (5_000 if arguments.quick else 100_000)
    per_shard = arguments.per_shard
    rounds = arguments.rounds or (3 if arguments.quick else 5)
    with work_folder(arguments) as work:
        report = Report("many_parts", arguments, work)
        report.setting("rounds", rounds)
        report.setting("parts", f"{count:,} in shards of {per_shard}")
        storage = prepare_parts(work, count, per_shard)
        check(storage, count, per_shard)
        seconds = race(consolidating(storage), rounds)
        for name, values in seconds.items():
            report.figure(name, "s", values)
        times(report, seconds, "consolidate", "plain loop", 2)
        version = storage.consolidate().version
        seconds = race(opening(storage, version), 4 * rounds)
        for name, values in seconds.items():
            report.figure(name, "ms", [1000 * value for value in values])
        for name, target in (("open", 3.0), ("open, pinned", 3.0), ("os.listdir", None)):
            times(report, seconds, name, "json.loads", target)
        few = prepare_parts(work, 10, 1)
        few.consolidate()
        growth = [
            (of_new_process(MEMORY, storage.directory) - of_new_process(MEMORY, few.directory))
            / 1e6
            for _ in range(3)
        ]
        report.figure("memory of opening", "MB", growth, MOST_MEGABYTES)
        size = (storage.directory / "manifest.json").stat().st_size
        report.figure("manifest", "MB", [size / 1e6])
        files = of_new_process(FILES, storage.directory)
        report.figure(f"open files, at most {DESCRIPTORS}", "files", [files])
        report.finish()


if __name__ == "__main__":
    main()

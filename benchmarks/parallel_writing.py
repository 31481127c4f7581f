"""Writing with `write_shards`: two processes against one, and one against the bare writers.

Two against one: tasks that tokenize, which cost CPU before anything is written, and tasks that
only copy arrays from memory into shards, as fast as they can be written. Copying to a disk has the
disk as its limit, whatever the number of processes: the rows in a folder in memory show what
processes add, where there is no such limit.

One against the bare writers: the same tasks by ``write_shards(workers=1)`` and by a loop over the
tasks in this process, with the same writer, `extend` or `append`, and `finish`. A ratio of 0.95
means: 95 % of the bytes per second. Starting the process, creating the dataset and making all
durable are within the measured time, deleting is not.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from document_set import FORMAT, document_bytes, document_lengths
from guideloom import DocumentStorage, StreamNumpyFormat, StreamStorage
from guideloom_write import write_shards
from machine import file_system
from side_by_side import Prepare, Report, argument_parser, race, work_folder
from writer import touch_free_memory

SHARDS = 8
TOKENS = StreamNumpyFormat(np.dtype([("tokens", "<u2")]))
POOL = 1 << 11  # documents in memory, written in turn
WORDS = ("the", "a", "of", "stream", "shard", "token", "writer", "loom", "guide", "thread")


@dataclass(frozen=True)
class Case:
    """Tasks, each a number of items.

    Attributes:
        name: what they do.
        storage: of a dataset in a folder.
        produce: what a task yields.
        task: the number of items of each of the shards.
    """

    name: str
    storage: Callable[[Path], Any]
    produce: Callable[[int], Iterator[Any]]
    task: int

    def by_processes(self, folder: Path, workers: int) -> None:
        """With `write_shards`."""
        storage = self.storage(folder / "dataset")
        write_shards(storage, [self.task] * SHARDS, self.produce, workers=workers, progress=False)

    def by_a_loop(self, folder: Path) -> None:
        """With the writer alone."""
        with self.storage(folder / "dataset").sync_writer() as writer:
            for shard in range(SHARDS):
                if hasattr(writer, "extend"):
                    writer.extend(shard, self.produce(self.task))
                else:
                    for item in self.produce(self.task):
                        writer.append(shard, item)
                writer.finish(shard)


def tokenizing(texts: int) -> Case:
    """Each text is split into words, and each word looked up: about what tokenizers cost."""
    rng = np.random.default_rng(8)
    some = [" ".join(WORDS[k] for k in rng.integers(0, len(WORDS), 400)) for _ in range(256)]
    vocabulary = {word: number for number, word in enumerate(WORDS)}

    def produce(task: int) -> Iterator[dict[str, Any]]:
        for number in range(task):
            tokens = [vocabulary[word] for word in some[number % len(some)].split()]
            yield {"tokens": np.array(tokens, dtype=np.uint16)}

    return Case("tokenizing", lambda place: StreamStorage(place, TOKENS), produce, texts)


def copying(arrays: int, size: int) -> Case:
    """Arrays of so many tokens, from memory."""
    rng = np.random.default_rng(9)
    pool = [{"tokens": rng.integers(0, 1 << 16, size, np.uint16)} for _ in range(16)]

    def produce(task: int) -> Iterator[dict[str, Any]]:
        for number in range(task):
            yield pool[number % len(pool)]

    name = f"arrays of {size:,} tokens"
    return Case(name, lambda place: StreamStorage(place, TOKENS), produce, arrays)


def documents(count: int) -> Case:
    """Documents with a median of 1.2 kB, from memory."""
    pool = list(document_bytes(document_lengths(min(count, POOL))))

    def produce(task: int) -> Iterator[bytes]:
        for number in range(task):
            yield pool[number % len(pool)]

    return Case("documents", lambda place: DocumentStorage(place, FORMAT), produce, count)


def written(folder: Path) -> dict[str, int]:
    """Sizes of the data files, by shard, part and role."""
    found = {}
    for path in folder.glob("dataset/data/*/*"):
        stem, _, role = path.name.partition(".")
        found[f"{stem.rpartition('-')[0]}.{role}"] = path.stat().st_size
    return found


def clear(folder: Path) -> None:
    shutil.rmtree(folder / "dataset", ignore_errors=True)


def compare(folder: Path, case: Case, rounds: int) -> tuple[dict[str, list[float]], int]:
    """Seconds in every way, and the bytes that were written."""
    ways: dict[str, Callable[[], None]] = {
        "loop": lambda: case.by_a_loop(folder),
        "1 process": lambda: case.by_processes(folder, 1),
        "2 processes": lambda: case.by_processes(folder, 2),
    }
    found = []
    for way in ways.values():
        clear(folder)
        way()
        found.append(written(folder))
    if not found[0] or any(sizes != found[0] for sizes in found):
        raise RuntimeError(f"{case.name}: the ways to write differ in what they wrote")
    nbytes = sum(found[0].values())

    def turn(way: Callable[[], None]) -> Prepare:
        def prepare(number: int) -> Callable[[], None]:
            del number
            clear(folder)
            os.sync()
            touch_free_memory(nbytes)
            return way

        return prepare

    return race({name: turn(way) for name, way in ways.items()}, rounds), nbytes


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument(
        "--memory", type=Path, default=Path("/dev/shm"), metavar="DIR", help="a folder in memory"
    )
    arguments = parser.parse_args()
    scale = 1 if arguments.quick else 8
    rounds = arguments.rounds or (3 if arguments.quick else 7)
    cases = (
        tokenizing(1500 * scale),
        copying(8 * scale, 1 << 20),
        copying(3000 * scale, 1000),
        documents(6000 * scale),
    )
    with work_folder(arguments) as work:
        report = Report("parallel_writing", arguments, work)
        report.setting("rounds", rounds)
        report.setting("shards", SHARDS)
        places = [("disk", work)]
        memory: Path = arguments.memory
        if memory.is_dir() and file_system(memory) == "tmpfs":
            places.append(("memory", memory))
        if len(os.sched_getaffinity(0)) < 2:
            report.note("this process may use one CPU only: two processes cannot be faster")
        for place, folder in places:
            for case in cases:
                with tempfile.TemporaryDirectory(prefix="guideloom-parallel-", dir=folder) as here:
                    seconds, nbytes = compare(Path(here), case, rounds)
                if shutil.disk_usage(folder).free < 3 * nbytes:
                    print(f"{folder} has little free space", file=sys.stderr)
                show(report, case, place, seconds, nbytes)
        report.finish()


def show(
    report: Report, case: Case, place: str, seconds: dict[str, list[float]], nbytes: int
) -> None:
    """The figures of a case in a place."""
    what = f"{case.name}, {place}"
    named = {f"{way}, {what}": values for way, values in seconds.items()}
    loop, one, two = named
    report.rates(named, nbytes, "MB/s", 1e6)
    disk_is_the_limit = place == "disk" and case.name != "tokenizing"
    target = None if disk_is_the_limit else 1.7
    report.ratio(named, two, one, target, f"2 processes / 1, {what}")
    report.ratio(named, one, loop, 0.95, f"1 process / loop, {what}")


if __name__ == "__main__":
    main()

"""Jobs of `write_shards` over data of which every byte is known, for tests and their processes.

A task is a tuple (shard, total, chunk): the shard gets `total` elements or documents, `chunk` of
them in an item of `produce` (documents are always one).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from guideloom_format import (
    DocumentBytesFormat,
    DocumentStorage,
    StreamStorage,
    StreamWithMetaStorage,
)
from guideloom_write import ShardOptions, WriteReport, write_shards
from guideloom_write._files import PosixFiles
from write import known_content, known_spans
from write.known_content import KnownElements
from write.known_documents import KnownDocuments
from write.known_spans import KnownSpans

METHODS = ("fork", "forkserver", "spawn")

NO_SYNC = "GUIDELOOM_TESTS_DO_NOT_SYNC"
if NO_SYNC in os.environ:  # in a process that a test started: what dies here is no machine
    PosixFiles.sync = PosixFiles.sync_folder = lambda *_: None  # type: ignore[method-assign, assignment]


class Task(NamedTuple):
    """What a shard is made from."""

    shard: int
    total: int
    chunk: int = 7


class Kind(NamedTuple):
    """A kind of data: how tests know it, where it lies, what a task yields."""

    known: Any
    storage: Callable[[Path], Any]
    item: Callable[[int, int, int], Any]

    def items(self, task: Task, length: int = 0) -> Iterator[Any]:
        """What `produce` yields from `length` on."""
        shard, total, chunk = task
        chunk = 1 if isinstance(self.known, KnownDocuments) else chunk
        assert length % chunk == 0 or length == total, "not where an item ends"
        for start in range(length, total, chunk):
            yield self.item(shard, start, min(start + chunk, total))


def _spans(shard: int, start: int, stop: int) -> Any:
    spans = list(KnownSpans().spans(shard, start, stop))
    counts, payloads = [count for count, _ in spans], [payload for _, payload in spans]
    return known_spans.elements(shard, start, stop), counts, payloads


def _document(shard: int, start: int, stop: int) -> bytes:
    del stop
    return KnownDocuments().document(shard, start)


STREAM = Kind(KnownElements(), known_content.storage, known_content.elements)
DOCUMENTS = Kind(
    KnownDocuments(), lambda place: DocumentStorage(place, DocumentBytesFormat()), _document
)
SPANS = Kind(KnownSpans(), known_spans.storage, _spans)
KINDS = {"stream": STREAM, "documents": DOCUMENTS, "spans": SPANS}

AnyStorage = StreamStorage | DocumentStorage | StreamWithMetaStorage


def run(kind: str, place: Path, tasks: Any, *, resume: bool = False, **given: Any) -> WriteReport:
    """The job over data of this kind, silent; options of `ShardOptions` are taken out."""
    options = {name: given.pop(name) for name in ("start_method", "commit_bytes") if name in given}
    data = KINDS[kind]
    return write_shards(
        data.storage(place),
        tasks,
        data.items,
        resume=resume,
        progress=False,
        options=ShardOptions(**options),
        **given,
    )


def statuses(report: WriteReport) -> list[str]:
    return [result.status for result in report]


def sizes(*totals: int) -> list[Task]:
    """Tasks with so many elements or documents for shard 0, 1, …"""
    return [Task(shard, total) for shard, total in enumerate(totals)]


def wanted(tasks: Sequence[Task]) -> dict[int, int]:
    """What a reader finds when all is done: `Known.visible`."""
    return {task.shard: task.total for task in tasks if task.total}


def parts(directory: Path) -> dict[str, dict[str, bytes]]:
    """All bytes of the data files of all parts, by the names of their records and their roles."""
    found = {}
    for path in sorted((directory / "commits").glob("*.json")):
        record = json.loads(path.read_text(encoding="ascii"))
        stem = record["stem"]
        found[path.name] = {
            role: (directory / "data" / f"{stem}.{role}").read_bytes()
            for role in record["files"]
            if not role.endswith(".crc")
        }
    return found


def finished_shards(directory: Path) -> set[int]:
    """Shards whose last record has the mark."""
    marks: dict[int, bool] = {}
    for path in sorted((directory / "commits").glob("*.json")):
        record = json.loads(path.read_text(encoding="ascii"))
        marks[record["shard"]] = record.get("finished", False)
    return {shard for shard, mark in marks.items() if mark}


TESTS = Path(__file__).parents[1]
SLOW_TASKS = [Task(shard, 40 + 10 * shard, 1) for shard in range(4)]
SLOW_COMMIT = 100


def slow_job(directory: Path, kind: str, resume: bool, method: Any) -> None:
    """The job that is killed: says when it begins, then writes slowly, four shards by two.

    It adds a byte to the file `items` for each item, so that whoever kills it can choose when.
    """
    data = KINDS[kind]
    items = os.open(directory.parent / "items", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def produce(task: Task, length: int = 0) -> Iterator[Any]:
        for item in data.items(task, length):
            os.write(items, b".")
            time.sleep(0.001)
            yield item

    print("begin", flush=True)
    report = write_shards(
        data.storage(directory),
        SLOW_TASKS,
        produce,
        workers=2,
        resume=resume,
        on_error="continue",
        progress=False,
        options=ShardOptions(start_method=method, commit_bytes=SLOW_COMMIT),
    )
    print(*statuses(report), sep=",", flush=True)


def group_members(group: int) -> list[int]:
    """Processes of a process group that run."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group and fields[0] not in "ZX":
                    members.append(int(entry.name))
    return members


def children(pid: int) -> list[int]:
    """Processes that a process has started and that run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid and fields[0] not in "ZX":
                    found.append(int(entry.name))
    return found


if __name__ == "__main__":
    slow_job(Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "resume", sys.argv[4])

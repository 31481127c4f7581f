"""Memory of `write_shards` over much data and many tasks; several jobs over one dataset."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from guideloom_format import DocumentBytesFormat, DocumentStorage, StreamNumpyFormat, StreamStorage
from guideloom_read import verify
from guideloom_write import ShardOptions, write_shards
from write import not_synced
from write.known_content import garbage
from write.shard_jobs import DOCUMENTS, KINDS, Task, run, sizes, statuses, wanted
from write.writer_processes import in_new_process, peak_kib

no_sync = not_synced.no_sync


def note_peak(folder: Path, name: str) -> None:
    """Write down how much memory this process has had at most."""
    (folder / f"{name}-{os.getpid()}").write_text(str(peak_kib()))


def growth(folder: Path, before: str, after: str) -> int:
    """By how many KiB the peak of the only process grew that wrote these down."""
    (first,), (last,) = folder.glob(f"{before}-*"), folder.glob(f"{after}-*")
    assert first.name.split("-")[1] == last.name.split("-")[1]
    return int(last.read_text()) - int(first.read_text())


def much_data(folder: Path, resume: bool) -> int:
    """KiB by which the parent grew; its worker writes two shards of 96 MiB, in small items."""
    storage = StreamStorage(folder / "stream", StreamNumpyFormat([("token", "<u4")]))
    tokens = {"token": np.arange(1 << 12, dtype="<u4")}

    def produce(task: int, length: int = 0) -> Iterator[object]:
        assert length == 0
        for number in range(task):
            if number == 1000:
                note_peak(folder, "before")
            yield tokens
        note_peak(folder, "after")

    options = ShardOptions(commit_bytes=8 << 20)
    before = peak_kib()
    write_shards(
        storage, [6000], produce, workers=1, resume=resume, progress=False, options=options
    )
    return peak_kib() - before


def many_documents(folder: Path, resume: bool) -> int:
    storage = DocumentStorage(folder / "documents", DocumentBytesFormat())

    def produce(task: int, length: int = 0) -> Iterator[bytes]:
        assert length == 0
        for number in range(task):
            if number == 50_000:
                note_peak(folder, "before")
            yield b"%0100d" % number
        note_peak(folder, "after")

    options = ShardOptions(commit_bytes=8 << 20)
    before = peak_kib()
    write_shards(
        storage, [500_000], produce, workers=1, resume=resume, progress=False, options=options
    )
    return peak_kib() - before


def many_tasks(folder: Path, resume: bool) -> int:
    storage = DocumentStorage(folder / "documents", DocumentBytesFormat())

    def produce(task: int, length: int = 0) -> Iterator[bytes]:
        del length
        if task == 50:
            note_peak(folder, "before")
        if task == 299:
            note_peak(folder, "after")
        yield b"x" * 100_000

    before = peak_kib()
    write_shards(storage, range(300), produce, workers=1, resume=resume, progress=False)
    return peak_kib() - before


@pytest.mark.parametrize(
    "job, resume",
    [*itertools.product((much_data, many_documents), (False, True)), (many_tasks, False)],
)
def test_memory_stays_flat(job: object, resume: bool, tmp_path: Path) -> None:
    """Of the worker and of the parent."""
    assert callable(job)
    parent = in_new_process(job, tmp_path, resume)
    assert growth(tmp_path, "before", "after") < 2 * 1024
    assert parent < 8 * 1024


def gathers(folder: Path) -> None:
    """A job that keeps all that it makes."""
    gathered = []

    def produce(task: int) -> Iterator[bytes]:
        note_peak(folder, "before")
        for number in range(task):
            gathered.append(b"%0100d" % number)
            yield gathered[-1]
        note_peak(folder, "after")

    write_shards(DOCUMENTS.storage(folder / "x"), [50_000], produce, workers=1, progress=False)


def test_a_task_that_gathers_everything_is_seen_by_this_test(tmp_path: Path) -> None:
    """The figure is worth something: it grows where memory does."""
    in_new_process(gathers, tmp_path)  # this one may have had more memory before
    assert growth(tmp_path, "before", "after") > 4 * 1024


@pytest.mark.parametrize("kind", KINDS)
def test_jobs_over_one_dataset_at_the_same_time(kind: str, tmp_path: Path) -> None:
    """Each task is done once; to whom a shard is lost is told so, and another call is content."""
    place = tmp_path / "x"
    tasks = [Task(shard, 200, 1) for shard in range(6)]
    found = []

    def work() -> None:
        found.append(run(kind, place, tasks, workers=2, on_error="continue"))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 2
    ends = list(zip(*map(statuses, found), strict=True))
    assert all(pair.count("written") <= 1 for pair in ends)
    for result in itertools.chain(*found):
        if result.status == "failed":
            assert (result.error or "").startswith("ShardConflictError: ")
    assert set(statuses(run(kind, place, tasks))) <= {"written", "skipped"}
    assert KINDS[kind].known.visible(place) == wanted(tasks)
    assert garbage(place) == set()
    assert verify(place).clean


def test_jobs_over_parts_of_the_tasks(tmp_path: Path) -> None:
    """As on several machines: each has its share, and a last one finds nothing to do."""
    tasks = sizes(*range(9))
    for rank in range(3):
        share = {task.shard: task for task in tasks[rank::3]}
        assert set(statuses(run("spans", tmp_path / "x", share, workers=2))) == {"written"}
    assert set(statuses(run("spans", tmp_path / "x", tasks))) == {"skipped"}
    assert KINDS["spans"].known.visible(tmp_path / "x") == wanted(tasks)

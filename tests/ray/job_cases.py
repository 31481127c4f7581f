"""A job over data of which every byte is known: what its tasks and its driver do, without Ray."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from guideloom_format import Header
from guideloom_format._job import Job
from guideloom_read import verify
from guideloom_write._consolidate import consolidate
from guideloom_write._files import PosixFiles
from guideloom_write._job import RunningNote, finish_job, job_path, read_job
from write.faulty_files import Crash, CrashAt, Watched
from write.known_content import KNOWN_ELEMENTS, Known
from write.known_documents import KnownDocuments
from write.known_spans import KnownSpans

JOB = "books.2024-05"
BEFORE = {3: 25, 4: 6}
"""Lengths of the shards that are there before the job."""

SHARDS = {3: 40, 7: 30, 8: 5, 1001: 12}
"""How much the job writes to which shards: one gets its second part, the others are new."""

AFTER = {3: 65, 4: 6, 7: 30, 8: 5, 1001: 12}
KINDS: Mapping[str, Known[Any]] = {
    "elements": KNOWN_ELEMENTS,
    "documents": KnownDocuments(),
    "spans": KnownSpans(),
}


def begin(known: Known[Any], directory: Path, *, consolidated: bool = False) -> None:
    """The dataset before the job."""
    known.play(directory, Watched(), list(BEFORE.items()))
    if consolidated:
        consolidate(storage_of(known, directory), Watched())


def storage_of(known: Known[Any], directory: Path) -> Any:
    return known.writer(directory, Watched())._storage


def header_of(directory: Path, files: PosixFiles) -> Header:
    path = f"{directory}/guideloom.json"
    return Header.decode(files.read(path, 1 << 20), path)


def prepare(
    known: Known[Any], directory: Path, files: PosixFiles, shards: Mapping[int, int] = SHARDS
) -> list[bytes]:
    """What the tasks do: each makes a part durable. None of it is visible."""
    records = []
    for shard, count in shards.items():
        writer = known.writer(directory, files)
        writer.open()
        try:
            at = BEFORE.get(shard, 0)
            known.append(writer, shard, at, at + count)
            record = writer.prepare(shard)
            assert record is not None
            records.append(record)
        finally:
            writer.close()
    return records


def run(
    known: Known[Any],
    directory: Path,
    files: PosixFiles,
    job: str = JOB,
    tasks: PosixFiles | None = None,
) -> Job:
    """What the same command does every time that it is given; the tasks may have other files."""
    header = header_of(directory, files)
    note = RunningNote(files, str(directory), job)
    records: list[bytes] = []
    if read_job(files, str(directory), header, job) is None:
        note.begin()
        records = prepare(known, directory, tasks or files)
        note.sign_of_life()
    done = finish_job(files, str(directory), header, job, records)
    consolidate(storage_of(known, directory), files)
    note.end()
    return done


def is_decided(directory: Path) -> bool:
    return Path(job_path(str(directory), JOB)).exists()


def check_complete(known: Known[Any], directory: Path) -> None:
    """Everything is there, once, and right."""
    assert known.visible(directory) == AFTER
    names = sorted(path.name for path in (directory / "commits").glob("*.json"))
    assert len(names) == len(BEFORE) + len(SHARDS)
    report = verify(directory)
    assert report.clean, report.faults
    assert not list((directory / "jobs").glob("*.running"))


def check_between(known: Known[Any], directory: Path) -> None:
    """A reader sees what was there before, and whole parts of the job if it is decided."""
    found = known.visible(directory)
    assert found is not None
    if not is_decided(directory):
        assert found == BEFORE
    for shard, length in found.items():
        assert length in {BEFORE.get(shard, 0), AFTER[shard]}
    assert set(found) >= set(BEFORE)


def undisturbed(known: Known[Any], directory: Path, *, tasks: PosixFiles | None = None) -> Watched:
    begin(known, directory)
    files = Watched()
    run(known, directory, files, tasks=tasks)
    check_complete(known, directory)
    assert files.open_count() == 0
    return files


def crash(
    known: Known[Any], directory: Path, files: CrashAt, *, tasks: PosixFiles | None = None
) -> bool:
    """Run the job until it dies, if it does."""
    try:
        run(known, directory, files, tasks=tasks)
    except Crash:
        return True
    finally:
        files.bury()
    return False

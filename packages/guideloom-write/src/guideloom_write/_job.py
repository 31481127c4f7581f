"""A job: parts that many processes made durable, published together by one decision.

::

    parts made durable, by anybody, anywhere         invisible: no record names them
    check that their files are there, their places free
    write jobs/NAME.json: the records of all parts   the decision: exclusive, durable
    link each record to commits/SSSSSSS-PPPP.json    as often as it takes; what is there stays

Killed before the decision, a job has published nothing and is written anew; killed after it, the
next run links what is missing. A reader may see some of the parts before it sees all.

While a job runs, ``jobs/NAME.running`` says so: advice for `clean`, as no record names its parts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from guideloom_format import (
    CommitRecord,
    DatasetError,
    Header,
    Part,
    ShardConflictError,
    WriteError,
    _names,
)
from guideloom_format._job import MAX_JOB_BYTES, Job
from guideloom_format._members import Members
from guideloom_format._record import MAX_RECORD_BYTES
from guideloom_format._sealed import FORMAT, seal, unseal
from guideloom_write._dataset import consolidated, errors_named
from guideloom_write._files import PosixFiles
from guideloom_write._process import this_process
from guideloom_write._publish import durable_file, link_exclusively, publish_once

_RUNNING = ".running"
_MAX_NOTE_BYTES = 1 << 14
_SHOWN = 5
_logger = logging.getLogger("guideloom_write")


def check_job_name(name: object) -> str:
    """The name of a job, which becomes a file name.

    Raises:
        TypeError, ValueError: it is none.
    """
    if not isinstance(name, str):
        raise TypeError(f"job is {type(name).__name__}; expected a string that names the job")
    if not _names.is_job_name(name):
        raise ValueError(
            f"job is {name[:80]!r}; expected 1 to 200 of the characters A-Z a-z 0-9 . _ - without "
            "a leading dot, since jobs/NAME.json is named after it"
        )
    return name


def job_path(directory: str, name: str) -> str:
    """Where a job's decision is."""
    return os.path.join(directory, _names.JOBS, _names.job_name(name))


def read_job(files: PosixFiles, directory: str, header: Header, name: str) -> Job | None:
    """The decision about a job; None if there is none yet.

    Raises:
        DamagedFileError: it is damaged.
    """
    path = job_path(directory, name)
    try:
        data = files.read(path, MAX_JOB_BYTES)
    except FileNotFoundError:
        return None
    return Job.decode(data, dataset_id=header.dataset_id, name=name, where=path)


def decided_records(files: PosixFiles, directory: str, header: Header) -> Iterator[CommitRecord]:
    """The records of all decided jobs: data files that they name are referenced.

    Raises:
        DamagedFileError: a decision is damaged, so that nobody can say what it names.
    """
    for entry in sorted(files.list_names(os.path.join(directory, _names.JOBS))):
        name = _names.parse_job_name(entry)
        if name is not None:
            job = read_job(files, directory, header, name)
            for record, _ in job.parts(header) if job is not None else ():
                yield record


class RunningNote:
    """The note that a job runs.

    Args:
        files: the file operations.
        directory: of the dataset.
        name: of the job.
    """

    def __init__(self, files: PosixFiles, directory: str, name: str) -> None:
        self._files = files
        self._directory = directory
        self._path = os.path.join(directory, _names.JOBS, name + _RUNNING)

    def begin(self) -> None:
        """Write the note, also over that of an earlier run.

        Raises:
            OSError: it cannot be written.
        """
        files = self._files
        files.make_folder(os.path.join(self._directory, _names.JOBS))
        temporary = _names.temporary_name(self._path, secrets.token_hex(8))
        descriptor = files.create(temporary)
        try:
            try:
                began = files.modified(temporary)  # by the clock that the files of parts have
                members = {"format": FORMAT, "type": "running", "began": int(began)}
                files.write(descriptor, seal({**members, **asdict(this_process())}))
            finally:
                files.close(descriptor)
            files.replace(temporary, self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                files.remove(temporary)
            raise

    def sign_of_life(self) -> None:
        """The job still runs: the time of the note."""
        with contextlib.suppress(OSError):
            self._files.touch(self._path)

    def end(self) -> None:
        """The job runs no more."""
        with contextlib.suppress(OSError):
            self._files.remove(self._path)


def running_since(files: PosixFiles, directory: str) -> list[tuple[str, float, float]]:
    """(name, last sign of life, begin) of the jobs whose note is there, by the files' clock."""
    folder = os.path.join(directory, _names.JOBS)
    found = []
    for entry in files.list_names(folder):
        name = entry.removesuffix(_RUNNING)
        if name != entry and _names.is_job_name(name):
            path = os.path.join(folder, entry)
            began = 0  # what cannot be read says that all may be wanted
            with contextlib.suppress(FileNotFoundError):
                touched = files.modified(path)
                with contextlib.suppress(DatasetError):
                    note = Members(unseal(files.read(path, _MAX_NOTE_BYTES), path), path)
                    began = note.integer("began")
                found.append((name, touched, float(began)))
    return found


def finish_job(
    files: PosixFiles, directory: str, header: Header, name: str, records: Iterable[bytes]
) -> Job:
    """Decide a job and publish it; what an earlier run has done of that is left as it is.

    Args:
        files: the file operations.
        directory: of the dataset.
        header: of the dataset.
        name: of the job.
        records: commit records of durable parts, in any order. If the job was decided before,
            their parts stay garbage.

    Returns:
        the job as it was decided, with all its records published.

    Raises:
        ShardConflictError: another writer has committed one of the parts. Before the decision,
            nothing was published; after it, all other parts were.
        WriteError: a step failed; the same call goes on from there.
        DatasetError: a file that is there is damaged.
    """
    again = "run the same command again: what was decided is completed, nothing is written twice"
    with errors_named(f"{directory}: job {name!r} was not published to its end; {again}"):
        job = read_job(files, directory, header, name)
        if job is None:
            job = _decide(files, directory, header, name, records)
        files.sync_folder(os.path.join(directory, _names.JOBS))  # whoever decided may have died
        _publish(files, directory, header, job)
    return job


def _decide(
    files: PosixFiles, directory: str, header: Header, name: str, records: Iterable[bytes]
) -> Job:
    parts = Job(header.dataset_id, name, tuple(records)).parts(header)
    parts.sort(key=lambda pair: (pair[0].part.shard, pair[0].part.part))
    job = Job(header.dataset_id, name, tuple(data for _, data in parts))
    encoded = job.encode()
    if len(encoded) > MAX_JOB_BYTES:
        raise WriteError(
            f"{directory}: job {name!r} has {len(parts)} parts, whose records take {len(encoded)} "
            f"bytes together; expected at most {MAX_JOB_BYTES}. Nothing was published: write fewer "
            "and larger parts, for example of a repartitioned dataset"
        )
    try:
        _check_places(files, directory, header, name, [record for record, _ in parts])
    except ShardConflictError:
        decided = read_job(files, directory, header, name)
        if decided is None:
            raise
    else:
        files.make_folder(os.path.join(directory, _names.JOBS))
        files.sync_folder(directory)
        path = job_path(directory, name)
        found = publish_once(files, path, encoded, secrets.token_hex(8), MAX_JOB_BYTES)
        decided = Job.decode(found, dataset_id=header.dataset_id, name=name, where=path)
    if decided != job:
        _logger.warning(
            "job %s was decided by another run of it at the same time; what this one wrote is not "
            "published",
            name,
        )
    return decided


def _check_places(
    files: PosixFiles, directory: str, header: Header, name: str, records: list[CommitRecord]
) -> None:
    """Before the decision: every part is whole, and nothing stands where it will."""
    taken = _Published(files, directory, header)
    places = set()
    for record in records:
        part = record.part
        if (part.shard, part.part) in places:
            raise WriteError(
                f"{directory}: job {name!r} has two parts for shard {part.shard}, part "
                f"{part.part}; nothing was published"
            )
        places.add((part.shard, part.part))
        _check_files(files, directory, name, part)
        other = taken.at(part.shard, part.part)
        if other is not None:
            raise ShardConflictError(
                f"shard {part.shard}, part {part.part} was committed by another writer while job "
                f"{name!r} ran: {_who(other, header, part.shard, part.part)}. Nothing of the job "
                "was published. Give each job shards of its own (first_shard), and run the same "
                "command again: the job is written anew, behind what is committed"
            )


def _check_files(files: PosixFiles, directory: str, name: str, part: Part) -> None:
    for role, facts in part.files.items():
        path = os.path.join(directory, _names.data_name(part.stem, role))
        size = None
        with contextlib.suppress(FileNotFoundError):
            size = files.size(path)
        if size != facts.nbytes:
            found = "is not there" if size is None else f"has {size} bytes"
            raise WriteError(
                f"{path} {found}; expected the {facts.nbytes} bytes that a task of job {name!r} "
                "wrote. Nothing was published. All machines must see one file system; then run the "
                "same command again"
            )


def _publish(files: PosixFiles, directory: str, header: Header, job: Job) -> None:
    """Link the records that are not there yet."""
    commits = os.path.join(directory, _names.COMMITS)
    published = _Published(files, directory, header)
    token = secrets.token_hex(8)
    lost = []
    for record, data in job.parts(header):
        part = record.part
        found = published.at(part.shard, part.part)
        if found is None:
            target = os.path.join(commits, _names.commit_name(part.shard, part.part))
            temporary = _names.temporary_name(target, token)
            with durable_file(files, temporary, data):
                link_exclusively(files, temporary, target)
            found = published.record(part.shard, part.part)
            if found is None:
                raise WriteError(
                    f"{target} is not there after it was published; the file system lost it"
                )
        if found not in (data, part.token):
            who = _who(found, header, part.shard, part.part)
            lost.append(f"shard {part.shard}, part {part.part}: {who}")
    files.sync_folder(commits)
    if lost:
        more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        raise ShardConflictError(
            f"{len(lost)} of the {len(job.records)} parts of job {job.name!r} lost their place to "
            f"other writers after the job was decided: {'; '.join(lost[:_SHOWN])}{more}. All other "
            "parts are published. Write what is missing with a job of another name, and give each "
            "job shards of its own (first_shard)"
        )


class _Published:
    """What is committed at a place: its record, or, where the manifest has it, its token."""

    def __init__(self, files: PosixFiles, directory: str, header: Header) -> None:
        self._files = files
        self._commits = os.path.join(directory, _names.COMMITS)
        table = consolidated(files, directory, header)
        self._tokens: dict[tuple[int, int], str] = {}
        if table is not None:
            places = zip(table.shard.tolist(), table.part.tolist(), strict=True)
            tokens = (f"{token:016x}" for token in table.token.tolist())
            self._tokens = dict(zip(places, tokens, strict=True))

    def at(self, shard: int, part: int) -> bytes | str | None:
        token = self._tokens.get((shard, part))
        return self.record(shard, part) if token is None else token

    def record(self, shard: int, part: int) -> bytes | None:
        path = os.path.join(self._commits, _names.commit_name(shard, part))
        with contextlib.suppress(FileNotFoundError):
            return self._files.read(path, MAX_RECORD_BYTES)
        return None


def _who(found: bytes | str, header: Header, shard: int, part: int) -> str:
    if isinstance(found, str):
        return f"the manifest has it with the token {found}"
    record = CommitRecord.decode(
        found, dataset_id=header.dataset_id, kind=header.kind, shard=shard, part=part
    )
    return str(record.owner)

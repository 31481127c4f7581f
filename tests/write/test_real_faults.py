"""What operating systems refuse in earnest: full disks, limits, rights, and signals all the time.

Each job is done by a real process. Whatever it meets: the error names the dataset and the errno,
a reader sees whole parts, those at least that the process knew to be committed, and the same job
again, when the trouble is over, ends with all of the content.
"""

from __future__ import annotations

import errno
import itertools
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from guideloom_format import _names
from guideloom_read import verify
from write.crash_cases import Scenario, check_state
from write.known_content import COMMIT, Script, lengths_of, parts_of, rounds
from write.mounts import enlarge, memory_disk, read_only
from write.strace_cases import Outcome, Writers, each_kind, job_in, place_in_memory
from write.strace_steps import go_on
from write.traced_writer import Job

PAGE = 4096
NOBODY = 65534


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    with Writers() as running:
        yield running


@pytest.fixture
def place() -> Iterator[Path]:
    with place_in_memory() as folder:
        folder.chmod(0o755)  # others may look
        yield folder


def check(job: Job, outcome: Outcome, number: int) -> None:
    """The job failed with this error, and only whole parts are visible."""
    assert outcome.status == 0, "not an error of GuideLoom"
    assert outcome.error is not None
    assert job.directory in outcome.error, outcome.error
    assert outcome.number == number, outcome.error
    assert f"errno {number}" in outcome.error, outcome.error
    directory = Path(job.directory)
    names = (_names.parse_commit_name(path.name) for path in (directory / "commits").glob("*"))
    there = {name for name in names if name is not None}
    check_state(directory, Scenario(job.known, job.script), there, outcome.committed)
    if (directory / "guideloom.json").exists():
        report = verify(directory)
        assert report.clean, report.faults


def check_done(job: Job, outcome: Outcome) -> None:
    assert (outcome.status, outcome.error) == (0, None)
    assert outcome.committed == lengths_of(parts_of(job.script))


def more_and_more(
    writers: Writers, number: int, trial: Callable[[int], tuple[Job, Job]], first: int, step: int
) -> int:
    """Do a job with more and more of something until it is enough; how often it was not.

    Args:
        writers: who does it.
        number: the errno where there is not enough.
        trial: from an amount to the job with no more of it, and to the same without the limit.
        first: the least amount.
        step: between two amounts.
    """
    for amount in itertools.count(first, step):
        job, again = trial(amount)
        outcome = writers.run(job)
        try:
            if outcome.error is None:
                check_done(job, outcome)
                return (amount - first) // step
            check(job, outcome, number)
            go_on(writers, again)
        except Exception as error:
            error.add_note(f"{job.kind} with {amount}")
            raise
        shutil.rmtree(job.directory, ignore_errors=True)
    raise AssertionError


@each_kind
@pytest.mark.parametrize("what, step", [("size", PAGE), ("nr_inodes", 1)])
def test_a_disk_that_is_full(
    kind: str, what: str, step: int, writers: Writers, place: Path
) -> None:
    """From one page, or one file, up to all that is needed."""
    job = job_in(place, kind)
    for amount in itertools.count(step, step):
        with memory_disk(place, f"{what}={amount}"):
            outcome = writers.run(job)
            if outcome.error is None:
                check_done(job, outcome)
                break
            check(job, outcome, errno.ENOSPC)
            enlarge(place)
            go_on(writers, job)
    assert amount // step > 15


@each_kind
def test_a_limit_on_the_size_of_files(kind: str, writers: Writers, place: Path) -> None:
    """In steps of a page; and byte by byte around the size of the smallest files."""
    job = job_in(place, kind)

    def limited(size: int) -> tuple[Job, Job]:
        return replace(job, limits={"RLIMIT_FSIZE": size}), job

    assert more_and_more(writers, errno.EFBIG, limited, first=0, step=PAGE) > 10
    shutil.rmtree(job.directory)
    for size in (1, 3, 4, 5, 15, 16, 17, 400, 450, 500, PAGE - 1, PAGE + 1):
        outcome = writers.run(limited(size)[0])
        check(job, outcome, errno.EFBIG)
        go_on(writers, job)
        shutil.rmtree(job.directory)


@each_kind
def test_a_limit_on_open_files(kind: str, writers: Writers, place: Path) -> None:
    """From none beside the standard ones; one part at a time is enough."""
    job = job_in(place, kind)

    def limited(count: int) -> tuple[Job, Job]:
        return replace(job, limits={"RLIMIT_NOFILE": count}), job

    tried = more_and_more(writers, errno.EMFILE, limited, first=3, step=1)
    assert tried >= len(job.known.roles)


@each_kind
@pytest.mark.parametrize("part", ["", "data", "data/0000", "commits"])
def test_a_folder_that_is_read_only(kind: str, part: str, writers: Writers, place: Path) -> None:
    job = job_in(place, kind)
    before = replace(job, script=job.script[:4])
    check_done(before, writers.run(before))
    with read_only(place / "x" / part):
        outcome = writers.run(job)
        check(job, outcome, errno.EROFS)
        assert outcome.committed in ({}, lengths_of(parts_of(before.script)))
    go_on(writers, job)


@each_kind
def test_a_place_that_is_read_only(kind: str, writers: Writers, place: Path) -> None:
    job = job_in(place, kind)
    with read_only(place):
        check(job, writers.run(job), errno.EROFS)
    assert not (place / "x").exists()
    go_on(writers, job)


@each_kind
@pytest.mark.parametrize("part", ["data/0000", "commits"])
@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can take its rights away and go on")
def test_a_folder_of_somebody_else(kind: str, part: str, writers: Writers, place: Path) -> None:
    """One folder is not the writer's own, and it may not write there."""
    job = replace(job_in(place, kind), user=NOBODY)
    before = replace(job, script=job.script[:4])
    place.chmod(0o777)
    check_done(before, writers.run(before))
    os.chown(place / "x" / part, 0, 0)
    outcome = writers.run(job)
    check(job, outcome, errno.EACCES)
    os.chown(place / "x" / part, NOBODY, NOBODY)
    go_on(writers, job)


@each_kind
def test_a_signal_every_millisecond(kind: str, writers: Writers, tmp_path: Path) -> None:
    """On the real disk, whose calls can be interrupted."""
    large = {"stream": 300_000, "documents": 2_000, "spans": 20_000}[kind]
    script: Script = [*rounds(shards=3, commits=6), (0, large), COMMIT, (1, large), COMMIT]
    job = Job(kind, str(tmp_path / "x"), script, most_open=2, buffer=65536, alarm=0.001)
    outcome = writers.run(job)
    check_done(job, outcome)
    assert outcome.signals >= 10, "the signals did not come while it worked"
    go_on(writers, replace(job, alarm=None))
    assert job.known.visible(tmp_path / "x") == outcome.committed


def test_the_limits_are_in_force(writers: Writers, place: Path) -> None:
    """The process that works has them, and this one does not."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    job = replace(job_in(place, "stream"), limits={"RLIMIT_FSIZE": 0})
    assert writers.run(job).number == errno.EFBIG
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == before
    assert list(place.rglob("*.json")) == []

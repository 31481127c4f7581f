"""A job whose processes are killed, and of which calls fail; then the same command is run again."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guideloom_format import GuideLoomError
from guideloom_write._files import PosixFiles
from guideloom_write._job import job_path
from write.faulty_files import AppliedThenError, CrashAt, FailAt, Watched
from write.known_content import KNOWN_ELEMENTS, Known
from write.power_loss import memory_folder

from .job_cases import (
    JOB,
    KINDS,
    begin,
    check_between,
    check_complete,
    crash,
    is_decided,
    run,
    undisturbed,
)


@pytest.fixture(params=list(KINDS))
def known(request: pytest.FixtureRequest) -> Known[Any]:
    return KINDS[request.param]


@pytest.fixture
def folder() -> Iterator[Path]:
    """For many small datasets: in memory."""
    with memory_folder() as path:
        yield path


def crash_points(log: Watched) -> Iterator[tuple[int, bool]]:
    for n, (kind, _) in enumerate(log.calls, start=1):
        yield n, False
        if kind == "write":
            yield n, True


def kill_at_every_call(known: Known[Any], folder: Path, *, tasks: PosixFiles | None) -> int:
    """At every call of the driver, and, without `tasks`, of the tasks as well: how many it were."""
    log = undisturbed(known, folder / "undisturbed", tasks=tasks)
    begin(known, folder / "begin")
    decided = count = 0
    for n, torn in crash_points(log):
        directory = folder / f"{n}-{torn}"
        shutil.copytree(folder / "begin", directory)
        assert crash(known, directory, CrashAt(n, torn=torn), tasks=tasks)
        check_between(known, directory)
        before = is_decided(directory)
        decided += before
        count += 1
        calls = Watched()
        run(known, directory, calls)
        if before:
            assert not any("/data/" in path for path in calls.created), "written twice"
        check_complete(known, directory)
        shutil.rmtree(directory)
    assert 15 < decided < count - 15, "it died before and after the decision"
    return count


def test_the_driver_is_killed_at_every_call(known: Known[Any], folder: Path) -> None:
    assert kill_at_every_call(known, folder, tasks=Watched()) >= 90


def test_driver_and_tasks_are_killed_at_every_call(folder: Path) -> None:
    assert kill_at_every_call(KNOWN_ELEMENTS, folder, tasks=None) >= 150


@pytest.mark.slow
def test_driver_and_tasks_of_every_kind_are_killed_at_every_call(
    known: Known[Any], folder: Path
) -> None:
    assert kill_at_every_call(known, folder, tasks=None) >= 150


def kill_again(known: Known[Any], folder: Path, *, tasks: PosixFiles | None, every: int) -> int:
    """For a sample of first kills, the next run is killed at every so many calls as well."""
    log = undisturbed(known, folder / "undisturbed", tasks=tasks)
    begin(known, folder / "begin")
    job = job_path(str(folder / "undisturbed"), JOB)
    decision = next(n for n, call in enumerate(log.calls, start=1) if call == ("link", job))
    firsts = {*range(5, len(log.calls), 5 * every), *range(decision - 1, decision + 4)}
    count = 0
    for first in sorted(firsts):
        for second in range(1 + first % every, 10**6, every):
            directory = folder / f"{first}-{second}"
            shutil.copytree(folder / "begin", directory)
            assert crash(known, directory, CrashAt(first, torn=True), tasks=tasks)
            died = crash(known, directory, CrashAt(second), tasks=tasks)
            if died:
                check_between(known, directory)
            run(known, directory, Watched())
            check_complete(known, directory)
            shutil.rmtree(directory)
            count += 1
            if not died:
                break
    return count


def test_killed_again_while_it_is_run_again(folder: Path) -> None:
    assert kill_again(KNOWN_ELEMENTS, folder, tasks=Watched(), every=9) >= 50


@pytest.mark.slow
def test_killed_again_at_more_points(known: Known[Any], folder: Path) -> None:
    assert kill_again(known, folder, tasks=None, every=3) >= 500


@pytest.mark.parametrize(
    ("number", "forever"), [(errno.EIO, False), (errno.ENOSPC, True), (errno.ESTALE, False)]
)
def test_every_call_of_the_driver_fails(number: int, forever: bool, folder: Path) -> None:
    """The error has a name, or did not matter; the same command completes the job."""
    known, tasks = KNOWN_ELEMENTS, Watched()
    log = undisturbed(known, folder / "undisturbed", tasks=tasks)
    begin(known, folder / "begin")
    raised: list[int | None] = []
    for n in range(1, len(log.calls) + 1):
        directory = folder / str(n)
        shutil.copytree(folder / "begin", directory)
        try:
            run(known, directory, FailAt(n, number, forever=forever), tasks=tasks)
        except OSError as error:
            raised.append(error.errno)
        check_between(known, directory)
        run(known, directory, Watched())
        check_complete(known, directory)
        shutil.rmtree(directory)
    assert set(raised) == {number}
    assert len(raised) > len(log.calls) / 2


@pytest.mark.parametrize("kind", ["link", "create", "remove", "sync_folder"])
def test_calls_that_work_and_report_an_error(kind: str, tmp_path: Path) -> None:
    known = KNOWN_ELEMENTS
    begin(known, tmp_path / "set")
    files = AppliedThenError(kind, errno.EIO, lambda path: "/jobs" in path or "/commits" in path)
    try:
        run(known, tmp_path / "set", files)
    except (GuideLoomError, OSError):
        assert kind != "link", "the answer to a link is not believed"
    assert files.failures
    run(known, tmp_path / "set", Watched())
    check_complete(known, tmp_path / "set")

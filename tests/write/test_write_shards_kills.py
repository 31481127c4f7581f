"""Jobs of `write_shards` that are killed, by real signals at random moments, and called again.

A killed job is called again until it is done; then the dataset has the very parts of a job that
nobody disturbed: nothing is lost, and nothing is there twice.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from guideloom_read import verify
from write import not_synced
from write.known_content import garbage
from write.shard_jobs import (
    KINDS,
    SLOW_COMMIT,
    SLOW_TASKS,
    TESTS,
    children,
    group_members,
    parts,
    run,
    wanted,
)

no_sync = not_synced.no_sync


MOST = sum(task.total for task in SLOW_TASKS) // 2  # items after which a job is killed
Kill = Callable[[subprocess.Popen[str], random.Random], None]


def start(place: Path, kind: str, resume: bool, method: str = "fork") -> subprocess.Popen[str]:
    """The job, in a process group of its own, where it calls `write_shards`."""
    how = "resume" if resume else "anew"
    path = (os.environ.get("PYTHONPATH"), str(TESTS))
    job = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "write.shard_jobs", str(place), kind, how, method],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
    )
    assert job.stdout is not None
    assert job.stdout.readline() == "begin\n"
    return job


def kill_group(job: subprocess.Popen[str], chance: random.Random) -> None:
    del chance
    os.killpg(job.pid, signal.SIGKILL)


def kill_parent(job: subprocess.Popen[str], chance: random.Random) -> None:
    del chance
    job.kill()


def kill_worker(job: subprocess.Popen[str], chance: random.Random) -> None:
    """One of the processes that the job has started, if there is one."""
    if found := children(job.pid):
        os.kill(chance.choice(found), signal.SIGKILL)


def interrupt(job: subprocess.Popen[str], chance: random.Random) -> None:
    """What Ctrl-C does."""
    del chance
    os.killpg(job.pid, signal.SIGINT)


def terminate(job: subprocess.Popen[str], chance: random.Random) -> None:
    del chance
    job.terminate()


def terminate_group(job: subprocess.Popen[str], chance: random.Random) -> None:
    """What a cluster's scheduler does."""
    del chance
    os.killpg(job.pid, signal.SIGTERM)


KILLS: dict[str, Kill] = {
    "group": kill_group,
    "parent": kill_parent,
    "worker": kill_worker,
    "Ctrl-C": interrupt,
    "terminate": terminate,
    "scheduler": terminate_group,
}
ROLLED_BACK = ("Ctrl-C", "terminate", "scheduler")


def end(job: subprocess.Popen[str]) -> tuple[str, str]:
    """What it said, when all its processes have ended, which they do within 5 seconds."""
    try:
        said = job.communicate(timeout=20)
        deadline = time.monotonic() + 5
        while group_members(job.pid):
            assert time.monotonic() < deadline, "a process goes on without its parent"
            time.sleep(0.005)
        return said
    finally:
        for pid in group_members(job.pid):
            os.kill(pid, signal.SIGKILL)


def check_found(kind: str, place: Path) -> None:
    """What is there at any time: whole items, from the beginning of shards on."""
    found = KINDS[kind].known.visible(place)
    assert all(found[shard] <= wanted(SLOW_TASKS)[shard] for shard in found or {})
    if found is not None:
        assert verify(place).clean


def wait_for_items(job: subprocess.Popen[str], place: Path, count: int) -> bool:
    """Wait until a job has produced so many items more than there are; False if it ended before."""
    items = place.parent / "items"
    items.touch()
    goal = items.stat().st_size + count
    while job.poll() is None:
        if items.stat().st_size >= goal:
            return True
        time.sleep(0.0005)
    return False


def kill_and_finish(
    place: Path, kind: str, resume: bool, how: str, kills: int, chance: random.Random
) -> tuple[int, int]:
    """Kill so often, then let it finish.

    Returns:
        how many of the kills found it at work, and after how many files were left that no record
        names. What is told to end rolls back, but for a file that is being created just then.
    """
    hits = left = 0
    before: set[str] = set()
    for _ in range(kills):
        job = start(place, kind, resume)
        hits += wait_for_items(job, place, chance.randrange(MOST))
        with contextlib.suppress(ProcessLookupError):
            KILLS[how](job, chance)
        said, error = end(job)
        assert "Process write_shards" not in error, "processes are silent"
        assert error.count("Traceback") <= (how == "Ctrl-C"), error
        check_found(kind, place)
        left += bool(garbage(place) - before)
        before = garbage(place)
    said, error = end(start(place, kind, resume))
    assert set(said.strip().split(",")) <= {"written", "resumed", "skipped"}
    assert all(line.endswith("which runs no more") for line in error.splitlines()), error
    return hits, left


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], object]:
    """The parts of jobs that nobody killed."""
    found: dict[tuple[str, bool], object] = {}
    with pytest.MonkeyPatch.context() as patch:
        not_synced.do_not_sync(patch)
        for kind in KINDS:
            for resume in (False, True):
                place = tmp_path_factory.mktemp("undisturbed") / "x"
                run(kind, place, SLOW_TASKS, workers=0, resume=resume, commit_bytes=SLOW_COMMIT)
                found[kind, resume] = parts(place)
    return found


def check_kills(
    place: Path,
    rounds: int,
    kills: int,
    how: str,
    seed: int,
    undisturbed: dict[tuple[str, bool], object],
) -> None:
    chance = random.Random(f"{seed} {how}")
    hits = left = 0
    for number in range(rounds):
        kind, resume = list(KINDS)[number % 3], bool(number % 2)
        here = place / str(number) / "x"
        here.parent.mkdir()
        found = kill_and_finish(here, kind, resume, how, kills, chance)
        hits, left = hits + found[0], left + found[1]
        assert KINDS[kind].known.visible(here) == wanted(SLOW_TASKS)
        assert parts(here) == undisturbed[kind, resume]
        assert verify(here).clean
    print(f"{how}: {hits} of {rounds * kills} kills hit, {left} left files behind")
    assert hits >= rounds * kills // 4, "the kills come too late"
    if how in ROLLED_BACK:
        assert left <= rounds * kills // 3


@pytest.mark.parametrize("how", KILLS)
def test_a_killed_job_is_finished_by_the_same_command(
    how: str, tmp_path: Path, undisturbed: dict[tuple[str, bool], object]
) -> None:
    check_kills(tmp_path, 2, 3, how, 1, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("how", KILLS)
def test_many_killed_jobs(
    how: str, tmp_path: Path, undisturbed: dict[tuple[str, bool], object]
) -> None:
    """Over 200 kills: uv run pytest -m slow tests/write/test_write_shards_kills.py"""
    check_kills(tmp_path, 12, 3, how, 2, undisturbed)

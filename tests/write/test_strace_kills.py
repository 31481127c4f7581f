"""Real processes are killed by SIGKILL at every one of their calls that touches the dataset.

The same as `test_crash_points.py` and its likes do within one process; that those model the truth
is tested here as well: the steps that they see are the calls that a process makes. At calls that
change nothing only some are killed; at all, here and in `test_strace_finish.py`, by

    uv run pytest -m slow tests/write/test_strace_kills.py tests/write/test_strace_finish.py
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from write.faulty_files import Watched
from write.strace_cases import (
    Point,
    Writers,
    each_kind,
    every_call,
    inject,
    job_in,
    need_strace,
    place_in_memory,
    points_of,
    thinned,
)
from write.strace_steps import (
    go_on,
    kill,
    kill_and_go_on,
    points_in,
    steps_of,
    steps_watched,
    undisturbed,
)
from write.traced_writer import do_job


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    need_strace()
    with Writers() as running:
        yield running


@pytest.fixture
def place() -> Iterator[Path]:
    with place_in_memory() as folder:
        yield folder


@each_kind
@every_call
def test_killed_at_every_call(kind: str, every: int, writers: Writers, place: Path) -> None:
    job = job_in(place, kind)
    points = points_in(writers, job, place)
    assert len(points) >= 150
    for point in thinned(points, every):
        kill_and_go_on(writers, job, point, place)


@each_kind
def test_killed_again_while_it_goes_on(kind: str, writers: Writers, place: Path) -> None:
    """A sample of first kills, and for each the second run killed at a sample of its calls."""
    job = job_in(place, kind)
    points = points_in(writers, job, place)
    killed_again = 0
    for k, first in enumerate(points[7 :: len(points) // 5]):
        kill(writers, job, first, place)
        shutil.copytree(place / "x", place / "kept")
        seconds = points_of(undisturbed(writers, job).calls, place)
        for second in seconds[k :: len(seconds) // 3]:
            shutil.rmtree(place / "x")
            shutil.copytree(place / "kept", place / "x")
            before = job.known.visible(place / "x") or {}
            kill(writers, job, second, place)
            after = job.known.visible(place / "x") or {}
            assert all(after.get(shard, 0) >= length for shard, length in before.items())
            go_on(writers, job)
            killed_again += 1
        shutil.rmtree(place / "x")
        shutil.rmtree(place / "kept")
    assert killed_again >= 12


@each_kind
def test_the_steps_that_tests_watch_are_the_calls_of_a_process(
    kind: str, writers: Writers, place: Path
) -> None:
    """Nothing goes past `PosixFiles`, and no step of it is left out by the doubles of the tests."""
    job = job_in(place, kind)
    seen = steps_of(undisturbed(writers, job).calls, place)
    shutil.rmtree(place / "x")
    files = Watched()
    do_job(job, files, lambda **_: None)
    assert seen == steps_watched(files, place)
    assert len(seen) > 100


def test_a_kill_that_does_not_fire_is_noticed(writers: Writers, place: Path) -> None:
    """A call that is never made, and what strace leaves out without a word."""
    job = job_in(place, "stream")
    with pytest.raises(AssertionError, match="the process was not killed"):
        kill(writers, job, Point("linkat", 1000, "linkat", frozenset()), place)
    shutil.rmtree(place / "x")
    second = points_in(writers, job, place)[-1]
    kills = inject(replace(second, when=1), "signal=KILL")
    assert writers.run(job, kills).status == -signal.SIGKILL
    untraced = ["-e", "trace=none", *kills[2:]]
    assert writers.run(job, untraced).status == 0

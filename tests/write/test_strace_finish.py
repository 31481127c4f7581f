"""Real processes that finish shards or consolidate are killed at every one of their calls.

See `test_strace_kills.py`, which does the same to processes that write and commit.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guideloom_read import verify
from write.crash_cases import Scenario, check_state
from write.faulty_files import Watched
from write.known_content import COMMIT, lengths_of, parts_of
from write.strace_cases import (
    Writers,
    each_kind,
    every_call,
    need_strace,
    place_in_memory,
    points_of,
    thinned,
)
from write.strace_steps import go_on, kill, steps_of, steps_watched, undisturbed
from write.traced_writer import Job, do_job

OLD = [(0, 9), (1, 12), COMMIT]
NEW = [*OLD, (1, 5), (2, 4), COMMIT]


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    need_strace()
    with Writers() as running:
        yield running


@pytest.fixture
def place() -> Iterator[Path]:
    with place_in_memory() as folder:
        yield folder


def run(writers: Writers, job: Job) -> None:
    outcome = writers.run(job)
    assert (outcome.status, outcome.error) == (0, None)


def pinned_length(job: Job, version: int) -> int:
    """Elements or documents that a reader of this version of the manifest sees."""
    storage: Any = job.known.writer(Path(job.directory), Watched())._storage
    pinned = type(storage)(storage.directory, storage.storage_format, version=version)
    with pinned.sync_reader() as reader:
        return len(reader)


@pytest.mark.parametrize("kind, version", [("stream", 1), ("documents", 2), ("spans", 2)])
@every_call
def test_killed_while_it_consolidates(
    kind: str, version: int, every: int, writers: Writers, place: Path
) -> None:
    """All is visible at every moment; a version that was there shows what it showed."""
    job = Job(kind, str(place / "x"), NEW)
    if version == 2:
        run(writers, replace(job, script=OLD, consolidate=True))
    run(writers, job)
    shutil.copytree(place / "x", place / "kept")
    again = replace(job, consolidate=True)
    log = undisturbed(writers, again)
    assert log.version == version
    points = points_of(log.calls, place)
    (made,) = (k for k, p in enumerate(points) if p.name == "linkat" and "manifests" in p.key)
    assert any(point.name.startswith("rename") for point in points)
    for point in thinned(points, every):
        shutil.rmtree(place / "x")
        shutil.copytree(place / "kept", place / "x")
        kill(writers, again, point, place)
        assert job.known.visible(place / "x") == lengths_of(parts_of(NEW))
        assert verify(place / "x").clean
        there = {*range(1, version), *({version} if points.index(point) > made else ())}
        names = (path.name for path in (place / "x/manifests").glob("*.json"))
        assert {int(name.removesuffix(".json")) for name in names} == there
        for known in there:
            total = lengths_of(parts_of(NEW if known == version else OLD))
            assert pinned_length(job, known) == sum(total.values())
        assert go_on(writers, again).version == version, point
    print(f"{kind}, version {version}: {len(points)} calls")
    assert len(points) >= 40


@each_kind
@every_call
def test_killed_while_it_finishes_shards(
    kind: str, every: int, writers: Writers, place: Path
) -> None:
    """A shard is finished with all of its data, or goes on."""
    before = Job(kind, str(place / "x"), OLD)
    run(writers, before)
    shutil.copytree(place / "x", place / "kept")
    job = replace(before, script=[*OLD, (1, 5), (2, 4)], finish=True)
    points = points_of(undisturbed(writers, job).calls, place)
    scenario = Scenario(job.known, job.script[3:], before=OLD)
    lengths = lengths_of(parts_of(job.script))
    for point in thinned(points, every):
        shutil.rmtree(place / "x")
        shutil.copytree(place / "kept", place / "x")
        outcome = kill(writers, job, point, place)
        check_state(place / "x", scenario, set(point.linked), outcome.committed)
        with job.known.writer(place / "x", Watched()) as writer:
            for shard in lengths:
                finished = writer.finished(shard)
                assert finished >= (shard in outcome.finished), point
                assert not finished or writer.length(shard) == lengths[shard], point
        assert go_on(writers, job).finished == {0, 1, 2}, point
    print(f"{kind}: {len(points)} calls")
    assert len(points) >= 100


@each_kind
def test_the_steps_that_tests_watch_are_the_calls_of_a_process(
    kind: str, writers: Writers, place: Path
) -> None:
    job = Job(kind, str(place / "x"), NEW, finish=True, consolidate=True)
    seen = steps_of(undisturbed(writers, job).calls, place)
    shutil.rmtree(place / "x")
    files = Watched()
    do_job(job, files, lambda **_: None)
    assert seen == steps_watched(files, place)
    assert {step.split()[0] for step in seen} >= {"list_names", "replace", "link"}

"""Writers, readers, consolidations and cleanings of one dataset in every order of their steps.

Those that fit are tried completely each time, of the others so many orders as are named, drawn at
random; `slow` tries many more. See `schedules` for what "every order" means.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from guideloom_format import Header, Manifest
from guideloom_write import StreamWriter
from guideloom_write._files import PosixFiles
from guideloom_write._owners import Note
from guideloom_write._process import this_process
from write.known_messages import all_of, append, messages_in, storage, write_before
from write.schedule_cases import (
    Case,
    World,
    claims,
    cleans,
    commits,
    consolidates,
    finishes,
    may_fail,
    publishes_job,
    reads,
)

DAY = 86400.0


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in memory, if there is such a file system."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(dir=memory, prefix="guideloom-"))
    yield path
    shutil.rmtree(path)


def empty(directory: Path) -> None:
    write_before(directory)


def one_part(directory: Path) -> None:
    write_before(directory, [(9, 0, 0)])


def of_a_dead_writer(directory: Path) -> None:
    """A part, and a note on the shard of a writer whose process is no more."""
    write_before(directory, [(9, 0, 0)])
    header = Header.decode((directory / "guideloom.json").read_bytes())
    dead = replace(this_process(), started="1")
    note = Note("d" * 16, dead, "2020-01-01T00:00:00+00:00").encode(header.dataset_id, 0)
    (directory / "owners").mkdir(exist_ok=True)
    path = directory / "owners/0000000.json"
    path.write_bytes(note)
    os.utime(path, (time.time() - 10 * DAY,) * 2)


def with_orphans(directory: Path) -> None:
    """Two parts, and what a writer that died ten days ago has left."""
    write_before(directory, [(9, 0, 0), (9, 1, 0)])
    writer = StreamWriter(storage(directory)).open()
    append(writer, (9, 0, 1))
    token = writer._token
    shutil.copytree(directory / "data", directory / "kept")
    writer.close()
    for path in (directory / "kept").rglob(f"*{token}*"):
        shutil.copy(path, directory / "data/0000")
    shutil.rmtree(directory / "kept")
    (directory / f"commits/0000000-0001.json.{token}.tmp").write_bytes(b"{}")
    for path in directory.rglob(f"*{token}*"):
        os.utime(path, (time.time() - 10 * DAY,) * 2)


def winners_named(world: World) -> None:
    world.check_end()
    world.check_winners_named()


def both_committed(world: World) -> None:
    """Writers of different shards do not disturb each other."""
    world.check_end()
    assert not world.refused


def one_finished(world: World) -> None:
    """A shard is finished once; whoever came too late was told or saw the mark."""
    world.check_end()
    assert len(world.acknowledged) == 1
    with StreamWriter(storage(world.directory)) as writer:
        assert writer.finished(0)


def one_job(world: World) -> None:
    """One of the drivers has decided the job, and all of it is there; nothing of the other's."""
    world.check_end()
    assert len(world.acknowledged) == 2
    assert not world.refused


def a_job_or_none(world: World) -> None:
    """A writer in one of the job's shards: before the decision the job gives way, whole.

    After it, what the writer took is lost to the job, and the rest is published.
    """
    job = {message for message in all_of(messages_in(world.directory) or {}) if message[0] == 1}
    lost = [text for message, text in world.refused if message[0] == 1]
    if lost:
        assert job == ({(1, 1, 0)} if "after the job was decided" in lost[0] else set())
        world.acknowledged += job
    else:
        assert job == {(1, 0, 0), (1, 1, 0)}
    world.check_end()


def consolidated(world: World) -> None:
    """Every version is whole, later ones have more, and the copy is the newest."""
    world.check_end()
    directory = world.directory
    header = Header.decode((directory / "guideloom.json").read_bytes())
    parts = -1
    newest = b""
    names = sorted((directory / "manifests").iterdir())
    assert [path.name for path in names] == [f"{k + 1:08d}.json" for k in range(len(names))]
    for path in names:
        newest = path.read_bytes()
        manifest = Manifest.decode(newest, dataset_id=header.dataset_id, kind="stream", itemsize=4)
        assert manifest.manifest_version == int(path.name[:8])
        assert len(manifest.table) > parts, "a version without anything new"
        parts = len(manifest.table)
        told = [found for found in world.versions if found.version == manifest.manifest_version]
        assert any(found.created for found in told)
        for found in told:
            assert (found.parts, found.length) == (parts, int(manifest.table.length.sum()))
            assert found.fingerprint == manifest.table.fingerprint(header.dataset_id)
    assert (directory / "manifest.json").read_bytes() == newest
    assert {found.version for found in world.versions} <= set(range(1, len(names) + 1))


def cleaned(world: World) -> None:
    """What was old and nobody's is gone, and nothing else."""
    world.check_end()
    assert not world.failed
    removed = sorted(name for report in world.cleaned for name in report.orphans)
    assert {name.rpartition("/")[0] for name in removed} == {"data/0000", "commits"}
    assert len(removed) == 3
    assert not any((world.directory / name).exists() for name in removed)


WITH_NOTES = Case((claims(0), claims(1)), empty, winners_named, owners=True)
TAKE_OVER = Case((claims(0), claims(1)), of_a_dead_writer, owners=True, machines=False)
COMPLETE = {
    "one shard, a commit each": (Case((commits(0, 0, 1), commits(1, 0, 1)), empty), 8),
    "one shard, two commits each": (Case((commits(0, 0, 2), commits(1, 0, 2)), empty), 40),
    "one shard, three writers": (Case(tuple(commits(k, 0, 1) for k in range(3)), empty), 140),
    "two shards, two commits each": (
        Case((commits(0, 0, 2), commits(1, 1, 2)), empty, both_committed),
        2,
    ),
    "two writers create the dataset": (Case((commits(0, 0, 1), commits(1, 0, 1))), 300),
    "owners, two machines": (WITH_NOTES, 10),
    "owners, one process": (replace(WITH_NOTES, machines=False, check=World.check_end), 20),
    "owners, a dead one": (TAKE_OVER, 400),
    "finish": (Case((finishes(0), finishes(1)), one_part, one_finished), 4),
    "two drivers of one job": (
        Case((publishes_job(0, (0, 1)), publishes_job(1, (0, 1))), one_part, one_job),
        50,
    ),
    "a job and a writer of its shard": (
        Case((publishes_job(0, (0, 1)), commits(1, 0, 1)), empty, a_job_or_none),
        8,
    ),
    "a writer and a consolidation": (
        Case((commits(0, 0, 2), consolidates()), one_part, consolidated),
        8,
    ),
    "two consolidations": (Case((consolidates(), consolidates()), one_part, consolidated), 500),
    "a reader, a consolidation, a writer": (
        Case((reads(), consolidates(), commits(2, 0, 2)), one_part, consolidated),
        100,
    ),
    "a writer and a cleaning": (
        Case((commits(0, 0, 1), cleans(DAY)), with_orphans, cleaned, owners=True),
        10,
    ),
}
"""And the fewest classes of orders that there must be: else the steps would not meet."""

SAMPLED = {
    "one shard, three writers, two commits each": Case(
        tuple(commits(k, 0, 2) for k in range(3)), empty
    ),
    "three writers create the dataset": Case(tuple(commits(k, 0, 1) for k in range(3))),
    "two writers create the dataset, two commits each": Case((commits(0, 0, 2), commits(1, 0, 2))),
    "owners, three machines": replace(WITH_NOTES, bodies=(claims(0), claims(1), claims(2))),
    "owners, a dead one, three writers": replace(
        TAKE_OVER, bodies=(claims(0), claims(1), claims(2))
    ),
    "consolidations of different content": Case(
        (consolidates(), consolidates(), commits(2, 0, 2)), one_part, consolidated
    ),
    "three consolidations, two writers": Case(
        (consolidates(2), consolidates(), consolidates(), commits(3, 0, 1), commits(4, 1, 2)),
        one_part,
        consolidated,
    ),
    "two readers, a consolidation, two writers": Case(
        (reads(2), reads(), consolidates(), commits(3, 0, 2), commits(4, 1, 2)),
        one_part,
        consolidated,
    ),
    "two drivers of one job, a cleaning, a consolidation": Case(
        (publishes_job(0, (0, 1)), publishes_job(1, (0, 1)), cleans(DAY), consolidates()),
        one_part,
        one_job,
    ),
    "two writers and two cleanings": Case(
        (commits(0, 0, 1), commits(1, 1, 2), cleans(DAY), cleans(DAY)),
        with_orphans,
        World.check_end,
        owners=True,
    ),
    "writers, a reader, and cleanings of everything": Case(
        (may_fail(commits(0, 0, 2)), may_fail(commits(1, 1, 1)), reads(), cleans(0.0, 2)),
        with_orphans,
        World.check_end,
        owners=True,
    ),
}


@pytest.mark.parametrize("name", COMPLETE)
def test_every_order(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, fewest = COMPLETE[name]
    explored = case.run(place, monkeypatch)
    print(f"schedules: {name}: {explored}")
    assert explored.complete
    assert explored.schedules >= fewest


@pytest.mark.parametrize("name", SAMPLED)
def test_orders_at_random(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SAMPLED[name].run(place, monkeypatch, draws=40).schedules == 40


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED)
def test_many_orders(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 by chance, and 1,000 more of all there are."""
    drawn = SAMPLED[name].run(place, monkeypatch, draws=1000)
    shutil.rmtree(place / "before", ignore_errors=True)
    explored = SAMPLED[name].run(place, monkeypatch, limit=1000)
    print(f"schedules: {name}: {drawn.schedules} drawn, {explored}")


def racy_link(_: PosixFiles, source: str, target: str) -> None:
    """Not exclusive: whoever comes last has the name."""
    os.link(source, f"{source}.other")
    os.replace(f"{source}.other", target)


@pytest.mark.parametrize(
    "case",
    [
        COMPLETE["one shard, a commit each"][0],
        COMPLETE["two writers create the dataset"][0],
        SAMPLED["consolidations of different content"],
    ],
    ids=["records", "headers", "manifests"],
)
def test_a_link_that_is_not_exclusive_is_found(
    case: Case, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These tests can fail."""
    monkeypatch.setattr(PosixFiles, "link", racy_link)
    with pytest.raises(Exception) as raised:  # whatever notices it first
        case.run(place, monkeypatch, draws=300)
    assert any("which ends with" in note for note in raised.value.__notes__)


def test_messages_tell_what_is_torn(place: Path) -> None:
    write_before(place / "x", [(1, 0, 0), (2, 0, 0), (1, 3, 5)])
    assert messages_in(place / "x") == {0: [(1, 0, 0), (2, 0, 0)], 3: [(1, 3, 5)]}
    with StreamWriter(storage(place / "x")) as writer:
        writer.append(0, {"place": [1 << 24 | 7 << 8]})
    with pytest.raises(AssertionError, match=r"\(1, 0, 7\) is torn"):
        messages_in(place / "x")

"""The answer to a publication is lost or a lie, for everything that is published."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guideloom_format import DatasetNotFoundError, WriteError
from guideloom_read import verify
from guideloom_write import StreamWriter
from guideloom_write._consolidate import consolidate
from guideloom_write._files import PosixFiles
from write.ambiguous_cases import (
    MODES,
    NUMBERS,
    AmbiguousFiles,
    at,
    by_chance,
    finish,
    insists,
    insists_on_a_version,
    prepared,
)
from write.known_messages import all_of, append, messages_in, storage, write_before
from write.schedule_cases import Case, World

FIRST, SECOND, THIRD = (1, 0, 0), (1, 0, 1), (2, 3, 0)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in memory, if there is such a file system."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(dir=memory, prefix="guideloom-"))
    yield path
    shutil.rmtree(path)


def create(directory: Path, files: PosixFiles) -> None:
    with StreamWriter(storage(directory), files=files):
        pass


def commit(directory: Path, files: PosixFiles) -> None:
    with StreamWriter(storage(directory), files=files) as writer:
        append(writer, SECOND)


def end_shard(directory: Path, files: PosixFiles) -> None:
    with StreamWriter(storage(directory), files=files) as writer:
        if not writer.finished(0):
            append(writer, SECOND)
            writer.finish(0, "a task")


def make_version(directory: Path, files: PosixFiles) -> None:
    found = consolidate(storage(directory), files)
    name = f"{found.version:08d}.json"
    assert (directory / "manifests" / name).exists(), "the version that was promised is not there"
    there = (directory / "manifest.json").read_bytes()
    assert there == (directory / "manifests" / name).read_bytes(), "the copy is not the newest"


def publish_job(directory: Path, files: PosixFiles) -> None:
    assert finish(directory, "one", prepared(directory, [SECOND, THIRD]), files) == 2


STEPS: dict[str, tuple[str, Callable[[Path, PosixFiles], None], list[tuple[int, int, int]]]] = {
    "header": ("header", create, []),
    "record": ("record", commit, [FIRST, SECOND]),
    "record that finishes": ("record", end_shard, [FIRST, SECOND]),
    "version": ("version", make_version, [FIRST]),
    "copy": ("copy", make_version, [FIRST]),
    "job": ("job", publish_job, [FIRST, SECOND, THIRD]),
    "record of a job": ("record", publish_job, [FIRST, SECOND, THIRD]),
}
"""What is published, by what, and the messages that are there in the end."""


@pytest.mark.parametrize("forever", [False, True], ids=["once", "always"])
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("step", STEPS)
def test_one_writer(step: str, mode: str, number: int, forever: bool, place: Path) -> None:
    """What was done counts, whatever the answer; what was not is an error; again, and all is there.

    For a name that is taken exclusively, the truth is read; a copy that is replaced may be
    reported as failed though it was not, which costs another call. It is read back, too.
    """
    target, act, expected = STEPS[step]
    directory = place / "x"
    if expected:
        write_before(directory, [FIRST])
    files = AmbiguousFiles(str(directory), at(target, mode, number, forever=forever))
    error: WriteError | None = None
    try:
        act(directory, files)
    except WriteError as found:
        error = found
    assert files.wrong
    if target == "copy" and mode == "not done, no error" and not forever:
        assert error is None, "it can be replaced again"
    elif mode != "done, error":
        assert error is not None, "not done, and nobody noticed"
    elif target != "copy":
        assert error is None, "done, and not believed"
    if error is not None:
        assert str(directory) in str(error)
    present = messages_in(directory) if expected else None
    if expected:
        found_now = all_of(present or {})
        assert FIRST in found_now
        assert set(found_now) <= set(expected)
        if error is None:
            assert sorted(found_now) == sorted(expected)
        assert verify(directory).clean
    if step == "record":
        if len(all_of(messages_in(directory) or {})) == 1:
            commit(directory, PosixFiles())
    else:
        act(directory, PosixFiles())
    assert sorted(all_of(messages_in(directory) or {})) == sorted(expected)
    assert verify(directory).clean


@pytest.mark.parametrize("mode", MODES)
def test_no_dataset_without_a_header(mode: str, place: Path) -> None:
    files = AmbiguousFiles(str(place / "x"), at("header", mode, NUMBERS[0], forever=True))
    if mode == "done, error":
        create(place / "x", files)
        assert messages_in(place / "x") == {}
        return
    with pytest.raises(WriteError, match=r"guideloom\.json"):
        create(place / "x", files)
    with pytest.raises(DatasetNotFoundError):
        verify(place / "x")


def case_of(seed: int) -> Case:
    """One or four writers of one or two shards, new datasets and old ones, with consolidations."""
    draw = random.Random(seed)
    writers = draw.choice((1, 4, 4))
    shards = draw.choice((1, 2))
    bodies = [
        insists(k, k % shards, draw.choice((1, 2)), by_chance(f"{seed}-{k}", at_most=3))
        for k in range(writers)
    ]
    before = None
    if draw.random() < 0.6:
        before = write_before
        bodies += [
            insists_on_a_version(by_chance(f"{seed}-version-{k}", at_most=3))
            for k in range(draw.choice((0, 1, 2)))
        ]
    return Case(tuple(bodies), before, newest_copied, owners=draw.random() < 0.3, machines=False)


def newest_copied(world: World) -> None:
    """Everything is there once; and consolidated once more, the copy is the newest version."""
    world.check_end()
    make_version(world.directory, PosixFiles())
    world.check_end()


def run(seeds: range, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in seeds:
        folder = place / str(seed)
        folder.mkdir()
        try:
            assert case_of(seed).run(folder, monkeypatch, draws=1, seed=seed).schedules == 1
        except BaseException as error:
            error.add_note(f"case {seed}")
            raise
        shutil.rmtree(folder)


def test_schedules_by_chance(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(range(200), place, monkeypatch)


@pytest.mark.slow
def test_many_schedules_by_chance(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(range(200, 3200), place, monkeypatch)
    print("ambiguous commits: 3000 schedules, 0 violations")

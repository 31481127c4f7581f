"""Real processes that race for the same names, also where everything but the commit is broken."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import guideloom_format
import guideloom_read
import guideloom_write
from guideloom_format import Header, Manifest
from guideloom_read import verify
from write.known_content import garbage
from write.known_messages import all_of, messages_in
from write.race_processes import AFFLICTIONS, SHARDS, Outcome, race
from write.writer_processes import at_the_same_time

TIGHT = ("no_notes", "no_locks")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in memory, if there is such a file system."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(dir=memory, prefix="guideloom-"))
    yield path
    shutil.rmtree(path)


def run_races(place: Path, affliction: str, processes: int, races: int) -> None:
    datasets = races // SHARDS
    found = at_the_same_time(
        processes, partial(race, affliction=affliction, datasets=datasets), place
    )
    told = 0
    for number in range(datasets):
        outcomes = [outcomes[number] for outcomes in found]
        check_dataset(place / str(number), outcomes, tight=affliction in TIGHT)
        told += sum(len(outcome.refused) for outcome in outcomes)
    assert told >= races * (processes - 1) * 0.9, "they hardly ever met"
    print(f"races: {races} of {processes} processes ({affliction}): {told} told, 0 violations")


def check_dataset(directory: Path, outcomes: list[Outcome], *, tight: bool) -> None:
    """Exactly what was acknowledged is there; whoever was refused was told by whom."""
    header = Header.decode((directory / "guideloom.json").read_bytes())
    assert {outcome.dataset_id for outcome in outcomes} == {header.dataset_id}
    shards = messages_in(directory) or {}
    acknowledged = [message for outcome in outcomes for message in outcome.acknowledged]
    assert sorted(all_of(shards)) == sorted(acknowledged)
    assert sorted(shards) == list(range(SHARDS)), "nobody won a shard"
    if tight:
        assert all(len(messages) == 1 for messages in shards.values()), "two won one part"
        assert sum(len(outcome.refused) for outcome in outcomes) == SHARDS * (len(outcomes) - 1)
    for outcome in outcomes:
        for _, text in outcome.refused:
            assert re.search(r"by another writer: host .+, pid \d+, writing since 2", text), text
    assert garbage(directory) - consolidated(directory, outcomes, header) == set()
    report = verify(directory)
    assert report.clean, report.faults


def consolidated(directory: Path, outcomes: list[Outcome], header: Header) -> set[str]:
    """The manifests' names; each version is whole, and all processes were told the same of it."""
    paths = sorted((directory / "manifests").iterdir())
    parts = 0
    for k, path in enumerate(paths, start=1):
        data = path.read_bytes()
        manifest = Manifest.decode(data, dataset_id=header.dataset_id, kind="stream", itemsize=4)
        assert (manifest.manifest_version, path.name) == (k, f"{k:08d}.json")
        assert len(manifest.table) > parts
        parts = len(manifest.table)
        told = [found for outcome in outcomes for found in outcome.versions if found[0] == k]
        assert {found[1] for found in told} == {parts}
        assert any(created for _, _, created in told)
    assert (directory / "manifest.json").read_bytes() == data
    return {"manifest.json", *(f"manifests/{path.name}" for path in paths)}


@pytest.mark.parametrize("affliction", AFFLICTIONS)
def test_races_of_two(affliction: str, place: Path) -> None:
    run_races(place, affliction, 2, 300 if affliction in TIGHT else 100)


@pytest.mark.parametrize("processes", [4, 16])
def test_races_of_many(processes: int, place: Path) -> None:
    run_races(place, "no_notes", processes, 50)


@pytest.mark.slow
@pytest.mark.parametrize("affliction", AFFLICTIONS)
@pytest.mark.parametrize("processes", [2, 4])
def test_many_races(processes: int, affliction: str, place: Path) -> None:
    """More than 10,000 of two processes in all, and as many of four."""
    for number in range(6):
        folder = place / str(number)
        folder.mkdir()
        run_races(folder, affliction, processes, 250)


def test_no_lock_is_ever_used() -> None:
    """Locks work on some network file systems only; nothing here relies on one."""
    for package in (guideloom_format, guideloom_read, guideloom_write):
        sources = list(Path(package.__path__[0]).rglob("*.py"))
        assert sources
        for source in sources:
            text = source.read_text(encoding="utf-8")
            assert not re.search(r"\bfcntl\b|\bflock\b|\blockf\b|O_EXLOCK", text), source

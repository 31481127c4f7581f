"""A run of a writer that is killed at one of its file operations, and the run after it.

Works for every kind of data whose content is known: see `Known`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from guideloom_format import _names
from guideloom_read import verify
from guideloom_write._files import PosixFiles
from write.faulty_files import Crash, CrashAt, Watched
from write.known_content import COMMIT, Script, garbage, lengths_of, parts_of

GARBAGE = re.compile(
    r"guideloom\.json\.[0-9a-f]{16}\.tmp"
    r"|commits/[0-9]{7}-[0-9]{4}\.json\.[0-9a-f]{16}\.tmp"
    r"|data/[0-9]{4}/[0-9]{7}-[0-9]{4}-[0-9a-f]{16}\.[a-z]+(\.crc)?"
)


class Known(Protocol):
    """Data of which every byte is known; `KnownDocuments` is one."""

    def visible(self, directory: Path) -> dict[int, int] | None:
        """Length of each shard that a reader finds, all of it checked; None: no dataset."""

    def play(
        self,
        directory: Path,
        files: PosixFiles,
        script: Script,
        acknowledged: dict[int, int] | None = None,
    ) -> None:
        """Let a writer do this; `acknowledged` takes the lengths of shards as commits return."""

    def complete(
        self, directory: Path, files: PosixFiles, wanted: Mapping[int, int], chunk: int = 10**6
    ) -> None:
        """Go on from `length(shard)` until each shard has all of it."""


@dataclass(frozen=True)
class Scenario:
    """What is there before, and the run that is killed."""

    known: Known
    script: Script
    before: Script = ()
    most_open: int = 128
    chunk: int = 10**6
    buffer: int = 4 * 65536

    def set_limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """How many parts may be open, and how much a file buffers."""
        monkeypatch.setattr("guideloom_write._shard_writer.MOST_OPEN_PARTS", self.most_open)
        monkeypatch.setattr("guideloom_write._checked_file._BUFFER_BYTES", self.buffer)

    @property
    def parts(self) -> dict[tuple[int, int], int]:
        return parts_of([*self.before, COMMIT, *self.script])


def prepare(directory: Path, scenario: Scenario) -> None:
    if scenario.before:
        scenario.known.play(directory, Watched(), scenario.before)


def undisturbed(directory: Path, scenario: Scenario) -> Watched:
    """The log of a run that nothing happens to."""
    prepare(directory, scenario)
    files = Watched()
    scenario.known.play(directory, files, scenario.script)
    assert scenario.known.visible(directory) == lengths_of(scenario.parts)
    assert garbage(directory) == set()
    assert files.open_count() == 0
    return files


def crash_points(log: Watched) -> Iterator[tuple[int, bool]]:
    """(number of the call, whether half of it is done) for every call of a run."""
    for n, (kind, _) in enumerate(log.calls, start=1):
        yield n, False
        if kind == "write":
            yield n, True


def linked_parts(files: Watched) -> set[tuple[int, int]]:
    """The parts whose commit record was created."""
    names = (_names.parse_commit_name(Path(target).name) for target in files.linked)
    return {name for name in names if name is not None}


def check_state(
    directory: Path, scenario: Scenario, linked: set[tuple[int, int]], acknowledged: dict[int, int]
) -> None:
    """A reader sees exactly the parts whose record was created, whole."""
    there = set(parts_of(scenario.before)) | linked
    expected = {place: length for place, length in scenario.parts.items() if place in there}
    found = scenario.known.visible(directory)
    if found is None:
        assert not there, "the dataset is gone"
        found = {}
    assert found == lengths_of(expected)
    for shard, length in acknowledged.items():
        assert found.get(shard, 0) >= length, f"shard {shard} lost what was committed"


def check_end(directory: Path, scenario: Scenario) -> None:
    """The content is that of an undisturbed run; all else that is there is garbage."""
    assert scenario.known.visible(directory) == lengths_of(scenario.parts)
    report = verify(directory)
    assert report.clean, report.faults
    left_over = garbage(directory)
    assert all(GARBAGE.fullmatch(name) for name in left_over), left_over


def kill(directory: Path, scenario: Scenario, n: int, *, torn: bool) -> None:
    """Kill the run at call n, and check what is there then."""
    prepare(directory, scenario)
    files = CrashAt(n, torn=torn)
    acknowledged: dict[int, int] = {}
    try:
        with pytest.raises(Crash):
            scenario.known.play(directory, files, scenario.script, acknowledged)
    finally:
        files.bury()
    assert files.crashed
    assert len(files.calls) >= n
    check_state(directory, scenario, linked_parts(files), acknowledged)


def recover(directory: Path, scenario: Scenario, files: Watched) -> None:
    scenario.known.complete(directory, files, lengths_of(scenario.parts), scenario.chunk)

"""The writer dies at every single one of its file operations.

For each call n of a run, it is killed at the entry of the call, and, where the call writes, in the
middle of it. Then

1. a reader sees exactly the parts whose link was made, whole;
2. a new writer goes on from `length(shard)` and ends with the content of an undisturbed run;
3. `verify` finds no fault, and all else that is there is garbage that no record names.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from guideloom_format import _names
from guideloom_read import verify
from write.faulty_files import Crash, CrashAt, Watched
from write.known_content import (
    COMMIT,
    Script,
    complete,
    garbage,
    lengths_of,
    parts_of,
    play,
    shards_of,
    visible,
)

GARBAGE = re.compile(
    r"guideloom\.json\.[0-9a-f]{16}\.tmp"
    r"|commits/[0-9]{7}-[0-9]{4}\.json\.[0-9a-f]{16}\.tmp"
    r"|data/[0-9]{4}/[0-9]{7}-[0-9]{4}-[0-9a-f]{16}\.elements(\.crc)?"
)
PER_BUFFER = 4 * 65536 // 9
PER_DIRECT_WRITE = 64 * 65536 // 9


@dataclass(frozen=True)
class Scenario:
    """What is there before, and the run that is killed."""

    script: Script
    before: Script = ()
    most_open: int = 128
    chunk: int = 10**6

    @property
    def parts(self) -> dict[tuple[int, int], int]:
        return parts_of([*self.before, COMMIT, *self.script])


def rounds(shards: int, commits: int) -> Script:
    steps: list[tuple[int, int] | None] = []
    for commit in range(commits):
        steps += [(shard, 10 * commit + shard + 1) for shard in range(shards)]
        steps.append(COMMIT)
    return steps


SCENARIOS = {
    "first commit": Scenario([(0, 50)]),
    "nothing appended": Scenario([]),
    "second part": Scenario([(3, 40)], before=[(3, 25)]),
    "several parts on top": Scenario(
        [(0, 5), COMMIT, (0, 7), COMMIT, (0, 9)], before=[(0, 3), COMMIT, (0, 4)]
    ),
    "several shards and commits": Scenario(rounds(shards=4, commits=3), chunk=9),
    "many parts of one shard": Scenario(rounds(shards=1, commits=8)),
    "past the buffer": Scenario([(1, 2 * PER_BUFFER + 100)]),
    "past the buffer with a rest": Scenario(
        [(1, 1000), (1, PER_BUFFER), (1, 17), (2, PER_BUFFER + 1)]
    ),
    "one big append": Scenario([(0, 10), (0, PER_DIRECT_WRITE + 3 * PER_BUFFER)]),
    "many small appends": Scenario([(shard, 1500) for _ in range(25) for shard in (0, 1)]),
    "more shards than open parts": Scenario(
        [(shard, 20) for _ in range(3) for shard in range(7)], most_open=2, chunk=11
    ),
    "shards in several folders": Scenario([(999, 5), (1000, 6), COMMIT, (2000, 7)]),
    "an empty append": Scenario([(0, 0), (1, 4), COMMIT, (0, 0)]),
}


def prepare(directory: Path, scenario: Scenario) -> None:
    if scenario.before:
        play(directory, Watched(), scenario.before)


def undisturbed(directory: Path, scenario: Scenario) -> Watched:
    """The log of a run that nothing happens to."""
    prepare(directory, scenario)
    files = Watched()
    play(directory, files, scenario.script)
    assert visible(directory) == lengths_of(scenario.parts)
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
    there = set(parts_of(scenario.before)) | linked
    expected = {place: length for place, length in scenario.parts.items() if place in there}
    found = visible(directory)
    if found is None:
        assert not there, "the dataset is gone"
        found = {}
    assert found == lengths_of(expected)
    for shard, length in acknowledged.items():
        assert found.get(shard, 0) >= length, f"shard {shard} lost elements that were committed"


def check_end(directory: Path, scenario: Scenario) -> None:
    assert visible(directory) == lengths_of(scenario.parts)
    report = verify(directory)
    assert report.clean, report.faults
    left_over = garbage(directory)
    assert all(GARBAGE.fullmatch(name) for name in left_over), left_over


def kill(directory: Path, scenario: Scenario, n: int, *, torn: bool) -> None:
    prepare(directory, scenario)
    files = CrashAt(n, torn=torn)
    acknowledged: dict[int, int] = {}
    try:
        with pytest.raises(Crash):
            play(directory, files, scenario.script, acknowledged)
    finally:
        files.bury()
    assert files.crashed
    assert len(files.calls) >= n
    check_state(directory, scenario, linked_parts(files), acknowledged)


def recover(directory: Path, scenario: Scenario, files: Watched) -> None:
    complete(directory, files, lengths_of(scenario.parts), scenario.chunk)


@pytest.fixture(params=list(SCENARIOS))
def scenario(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    found = SCENARIOS[request.param]
    monkeypatch.setattr("guideloom_write._shard_writer.MOST_OPEN_PARTS", found.most_open)
    return found


def test_killed_at_every_call(scenario: Scenario, tmp_path: Path) -> None:
    log = undisturbed(tmp_path / "undisturbed", scenario)
    tried = 0
    for n, torn in crash_points(log):
        directory = tmp_path / f"{n}-{torn}"
        kill(directory, scenario, n, torn=torn)
        recover(directory, scenario, Watched())
        check_end(directory, scenario)
        shutil.rmtree(directory)
        tried += 1
    assert tried >= len(log.calls) > 0


def test_killed_again_during_the_recovery(scenario: Scenario, tmp_path: Path) -> None:
    """A sample of first crashes, and for each the recovery killed at every fifth call."""
    log = undisturbed(tmp_path / "undisturbed", scenario)
    step = max(1, len(log.calls) // 5)
    for first in range(1, len(log.calls) + 1, step):
        for second in range(1 + first % 5, 10**6, 5):
            directory = tmp_path / f"{first}-{second}"
            kill(directory, scenario, first, torn=True)
            before = visible(directory) or {}
            files = CrashAt(second)
            try:
                recover(directory, scenario, files)
            except Crash:
                pass
            finally:
                files.bury()
            after = visible(directory) or {}
            assert all(after.get(shard, 0) >= length for shard, length in before.items())
            recover(directory, scenario, Watched())
            check_end(directory, scenario)
            shutil.rmtree(directory)
            if not files.crashed:
                break


def test_a_run_from_scratch_ignores_what_a_dead_one_left(tmp_path: Path) -> None:
    """Shards that were not committed are written anew, others are written beside the garbage."""
    scenario = Scenario([(shard, 30) for shard in range(3)])
    log = undisturbed(tmp_path / "undisturbed", scenario)
    for n in range(1, len(log.calls) + 1):
        directory = tmp_path / str(n)
        kill(directory, scenario, n, torn=False)
        found = visible(directory) or {}
        again = [(shard, 30) for shard in shards_of(scenario.script) if shard not in found]
        play(directory, Watched(), [*again, COMMIT, (7, 12)])
        assert visible(directory) == {0: 30, 1: 30, 2: 30, 7: 12}
        assert verify(directory).clean


def test_every_operation_of_the_writer_is_watched() -> None:
    """A step that the doubles do not see would be a crash point that nobody tries."""
    steps = {name for name, value in vars(Watched.__base__).items() if callable(value)}
    assert steps >= {"create", "write", "sync", "link"}
    assert {name for name in steps if name not in vars(Watched)} == set()


def test_how_many_points_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figure to publish, and a floor under it."""
    counts = {}
    for name, scenario in SCENARIOS.items():
        monkeypatch.setattr("guideloom_write._shard_writer.MOST_OPEN_PARTS", scenario.most_open)
        log = undisturbed(tmp_path / name, scenario)
        counts[name] = sum(1 for _ in crash_points(log))
    print(f"crash points: {sum(counts.values())} {counts}")
    assert sum(counts.values()) >= 1100
    assert min(counts.values()) >= 15

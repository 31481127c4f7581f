"""The writer dies at every single one of its file operations.

`crash_cases` says what must hold then.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from write.crash_cases import (
    Scenario,
    begin_anew_after_every_call,
    count_crash_points,
    kill_at_every_call,
    kill_the_recovery,
)
from write.faulty_files import Watched
from write.known_content import COMMIT, KNOWN_ELEMENTS, rounds

PER_BUFFER = 4 * 65536 // 9
PER_DIRECT_WRITE = 64 * 65536 // 9


SCENARIOS = {
    "first commit": Scenario(KNOWN_ELEMENTS, [(0, 50)]),
    "nothing appended": Scenario(KNOWN_ELEMENTS, []),
    "second part": Scenario(KNOWN_ELEMENTS, [(3, 40)], before=[(3, 25)]),
    "several parts on top": Scenario(
        KNOWN_ELEMENTS, [(0, 5), COMMIT, (0, 7), COMMIT, (0, 9)], before=[(0, 3), COMMIT, (0, 4)]
    ),
    "several shards and commits": Scenario(KNOWN_ELEMENTS, rounds(shards=4, commits=3), chunk=9),
    "many parts of one shard": Scenario(KNOWN_ELEMENTS, rounds(shards=1, commits=8)),
    "past the buffer": Scenario(KNOWN_ELEMENTS, [(1, 2 * PER_BUFFER + 100)]),
    "past the buffer with a rest": Scenario(
        KNOWN_ELEMENTS, [(1, 1000), (1, PER_BUFFER), (1, 17), (2, PER_BUFFER + 1)]
    ),
    "one big append": Scenario(KNOWN_ELEMENTS, [(0, 10), (0, PER_DIRECT_WRITE + 3 * PER_BUFFER)]),
    "many small appends": Scenario(
        KNOWN_ELEMENTS, [(shard, 1500) for _ in range(25) for shard in (0, 1)]
    ),
    "more shards than open parts": Scenario(
        KNOWN_ELEMENTS, [(shard, 20) for _ in range(3) for shard in range(7)], most_open=2, chunk=11
    ),
    "shards in several folders": Scenario(KNOWN_ELEMENTS, [(999, 5), (1000, 6), COMMIT, (2000, 7)]),
    "an empty append": Scenario(KNOWN_ELEMENTS, [(0, 0), (1, 4), COMMIT, (0, 0)]),
}


@pytest.fixture(params=list(SCENARIOS))
def scenario(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    found = SCENARIOS[request.param]
    found.set_limits(monkeypatch)
    return found


def test_killed_at_every_call(scenario: Scenario, tmp_path: Path) -> None:
    kill_at_every_call(scenario, tmp_path)


def test_killed_again_during_the_recovery(scenario: Scenario, tmp_path: Path) -> None:
    """A sample of first crashes, and for each the recovery killed at every fifth call."""
    kill_the_recovery(scenario, tmp_path, samples=5, every=5)


def test_a_run_from_scratch_ignores_what_a_dead_one_left(tmp_path: Path) -> None:
    begin_anew_after_every_call(KNOWN_ELEMENTS, shards=3, tmp_path=tmp_path)


def test_every_operation_of_the_writer_is_watched() -> None:
    """A step that the doubles do not see would be a crash point that nobody tries."""
    steps = {name for name, value in vars(Watched.__base__).items() if callable(value)}
    assert steps >= {"create", "write", "sync", "link"}
    assert {name for name in steps if name not in vars(Watched)} == set()


def test_how_many_points_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figure to publish, and a floor under it."""
    counts = count_crash_points(SCENARIOS, tmp_path, monkeypatch)
    assert sum(counts.values()) >= 1100
    assert min(counts.values()) >= 15

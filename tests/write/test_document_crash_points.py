"""The writer of documents dies at every single one of its file operations.

`crash_cases` says what must hold then.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from write.crash_cases import (
    Scenario,
    begin_anew_after_every_call,
    check_kinds_of_write,
    count_crash_points,
    kill_at_every_call,
    kill_the_recovery,
)
from write.known_content import COMMIT, rounds
from write.known_documents import KnownDocuments

BUFFER = 4 * 65536
DIRECT = 64 * 65536
SMALL = KnownDocuments()
ONE_BY_ONE = KnownDocuments(how="append")
TOGETHER = KnownDocuments(how="extend")
EMPTY = KnownDocuments(sizes=(0,))
TINY = KnownDocuments(sizes=(0, 1, 0, 0, 2))
LARGE = KnownDocuments(sizes=(100, BUFFER // 3, 0, BUFFER + 17, BUFFER))
HUGE = KnownDocuments(sizes=(10, DIRECT + 3 * BUFFER + 5, 0), how="append")


SCENARIOS = {
    "first commit": Scenario(SMALL, [(0, 50)]),
    "one by one": Scenario(ONE_BY_ONE, [(0, 20), (0, 5)], before=[(0, 7)]),
    "together": Scenario(TOGETHER, [(0, 20), (0, 5)], before=[(0, 7)]),
    "nothing appended": Scenario(SMALL, []),
    "second part": Scenario(SMALL, [(3, 40)], before=[(3, 25)]),
    "several parts on top": Scenario(
        SMALL, [(0, 5), COMMIT, (0, 7), COMMIT, (0, 9)], before=[(0, 3), COMMIT, (0, 4)]
    ),
    "several shards and commits": Scenario(SMALL, rounds(shards=3, commits=2), chunk=9),
    "many parts of one shard": Scenario(ONE_BY_ONE, rounds(shards=1, commits=5)),
    "documents without bytes": Scenario(EMPTY, [(0, 5), (1, 1), COMMIT, (0, 3)], before=[(1, 2)]),
    "past the buffer": Scenario(LARGE, [(1, 8), (2, 3)]),
    "past the buffer of ends": Scenario(
        TINY, [(0, 9000), (0, 8000), (1, 20)], before=[(0, 900)], buffer=65536
    ),
    "one big document": Scenario(HUGE, [(0, 3)]),
    "more shards than open parts": Scenario(
        SMALL, [(shard, 20) for _ in range(2) for shard in range(5)], most_open=2, chunk=11
    ),
    "shards in several folders": Scenario(SMALL, [(999, 5), (1000, 6), COMMIT, (2000, 7)]),
    "an empty append": Scenario(SMALL, [(0, 0), (1, 4), COMMIT, (0, 0)]),
}


@pytest.fixture(params=list(SCENARIOS))
def scenario(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    found = SCENARIOS[request.param]
    found.set_limits(monkeypatch)
    return found


def test_killed_at_every_call(scenario: Scenario, tmp_path: Path) -> None:
    kill_at_every_call(scenario, tmp_path)


def test_killed_again_during_the_recovery(scenario: Scenario, tmp_path: Path) -> None:
    """A sample of first crashes, and for each the recovery killed at every ninth call."""
    kill_the_recovery(scenario, tmp_path, samples=4, every=9)


def test_a_run_from_scratch_ignores_what_a_dead_one_left(tmp_path: Path) -> None:
    begin_anew_after_every_call(SMALL, shards=3, tmp_path=tmp_path)


def test_the_scenarios_reach_every_kind_of_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All data files are written before they are finished, and released and opened again."""
    names = ("past the buffer", "past the buffer of ends", "more shards than open parts")
    check_kinds_of_write([SCENARIOS[name] for name in names], tmp_path, monkeypatch)


def test_how_many_points_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figure to publish, and a floor under it."""
    counts = count_crash_points(SCENARIOS, tmp_path, monkeypatch)
    assert sum(counts.values()) >= 1200
    assert min(counts.values()) >= 15

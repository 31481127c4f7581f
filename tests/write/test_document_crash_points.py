"""The writer of documents dies at every single one of its file operations.

For each call n of a run, it is killed at the entry of the call, and, where the call writes, in the
middle of it. Then

1. a reader sees exactly the parts whose link was made, whole;
2. a new writer goes on from `length(shard)` and ends with the content of an undisturbed run;
3. `verify` finds no fault, and all else that is there is garbage that no record names.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from guideloom_read import verify
from write.crash_cases import (
    Scenario,
    check_end,
    crash_points,
    kill,
    recover,
    undisturbed,
)
from write.faulty_files import Crash, CrashAt, Watched
from write.known_content import COMMIT, Script, shards_of
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


def rounds(shards: int, commits: int) -> Script:
    steps: list[tuple[int, int] | None] = []
    for commit in range(commits):
        steps += [(shard, 10 * commit + shard + 1) for shard in range(shards)]
        steps.append(COMMIT)
    return steps


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
    """A sample of first crashes, and for each the recovery killed at every ninth call."""
    log = undisturbed(tmp_path / "undisturbed", scenario)
    step = max(1, len(log.calls) // 4)
    for first in range(1, len(log.calls) + 1, step):
        for second in range(1 + first % 9, 10**6, 9):
            directory = tmp_path / f"{first}-{second}"
            kill(directory, scenario, first, torn=True)
            before = scenario.known.visible(directory) or {}
            files = CrashAt(second)
            try:
                recover(directory, scenario, files)
            except Crash:
                pass
            finally:
                files.bury()
            after = scenario.known.visible(directory) or {}
            assert all(after.get(shard, 0) >= length for shard, length in before.items())
            recover(directory, scenario, Watched())
            check_end(directory, scenario)
            shutil.rmtree(directory)
            if not files.crashed:
                break


def test_a_run_from_scratch_ignores_what_a_dead_one_left(tmp_path: Path) -> None:
    """Shards that were not committed are written anew, others are written beside the garbage."""
    scenario = Scenario(SMALL, [(shard, 30) for shard in range(3)])
    log = undisturbed(tmp_path / "undisturbed", scenario)
    for n in range(1, len(log.calls) + 1):
        directory = tmp_path / str(n)
        kill(directory, scenario, n, torn=False)
        found = SMALL.visible(directory) or {}
        again = [(shard, 30) for shard in shards_of(scenario.script) if shard not in found]
        SMALL.play(directory, Watched(), [*again, COMMIT, (7, 12)])
        assert SMALL.visible(directory) == {0: 30, 1: 30, 2: 30, 7: 12}
        assert verify(directory).clean


def test_the_scenarios_reach_every_kind_of_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both data files are written before they are finished, and released and opened again."""
    writes: dict[str, int] = {}
    kinds = set()
    for name in ("past the buffer", "past the buffer of ends", "more shards than open parts"):
        SCENARIOS[name].set_limits(monkeypatch)
        log = undisturbed(tmp_path / name, SCENARIOS[name])
        kinds |= {kind for kind, _ in log.calls}
        for kind, path in log.calls:
            if kind == "write":
                writes[path] = writes.get(path, 0) + 1
    for role in ("documents", "documents.crc", "ends", "ends.crc"):
        assert max(writes[path] for path in writes if path.endswith(f".{role}")) > 1, role
    assert {"reopen", "create", "write", "size", "sync", "close", "link", "remove"} <= kinds


def test_how_many_points_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figure to publish, and a floor under it."""
    counts = {}
    for name, scenario in SCENARIOS.items():
        scenario.set_limits(monkeypatch)
        log = undisturbed(tmp_path / name, scenario)
        counts[name] = sum(1 for _ in crash_points(log))
    print(f"crash points: {sum(counts.values())} {counts}")
    assert sum(counts.values()) >= 1200
    assert min(counts.values()) >= 15

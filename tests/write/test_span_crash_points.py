"""The writer of streams with metadata dies at every single one of its file operations.

For each call n of a run, it is killed at the entry of the call, and, where the call writes, in the
middle of it. Then

1. a reader sees exactly the parts whose link was made, whole: elements, spans and payloads;
2. a new writer goes on from `length(shard)` and ends with the elements of an undisturbed run, each
   in one span;
3. `verify` finds no fault, and all else that is there is garbage that no record names.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from guideloom_read import verify
from guideloom_write import StreamWithMetaWriter
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
from write.known_spans import KnownSpans, elements, storage, writer_at

BUFFER = 4 * 65536
DIRECT = 64 * 65536
SMALL = KnownSpans()
ONE_SPAN = KnownSpans(lengths=(10**9,))
ONE_EACH = KnownSpans(lengths=(1,), sizes=(0,))
LARGE = KnownSpans(lengths=(2, 0, 5), sizes=(100, BUFFER // 3, 0, BUFFER + 17, BUFFER))
HUGE = KnownSpans(lengths=(DIRECT // 8 + 3, 0, 4), sizes=(0, DIRECT + 3 * BUFFER + 5))


def rounds(shards: int, commits: int) -> Script:
    steps: list[tuple[int, int] | None] = []
    for commit in range(commits):
        steps += [(shard, 10 * commit + shard + 1) for shard in range(shards)]
        steps.append(COMMIT)
    return steps


SCENARIOS = {
    "first commit": Scenario(SMALL, [(0, 50)]),
    "one span": Scenario(ONE_SPAN, [(0, 20), (0, 5)], before=[(0, 7)]),
    "nothing appended": Scenario(SMALL, []),
    "second part": Scenario(SMALL, [(3, 40)], before=[(3, 25)]),
    "several parts on top": Scenario(
        SMALL, [(0, 5), COMMIT, (0, 7), COMMIT, (0, 9)], before=[(0, 3), COMMIT, (0, 4)]
    ),
    "several shards and commits": Scenario(SMALL, rounds(shards=3, commits=2), chunk=9),
    "many parts of one shard": Scenario(SMALL, rounds(shards=1, commits=3)),
    "payloads past the buffer": Scenario(LARGE, [(1, 20), (2, 9)]),
    "spans past the buffer": Scenario(
        ONE_EACH, [(0, 4000), (0, 400), (1, 20)], before=[(0, 90)], buffer=65536
    ),
    "one big append": Scenario(HUGE, [(0, 10), (0, DIRECT // 8 + 10)]),
    "more shards than open parts": Scenario(
        SMALL, [(shard, 20) for _ in range(2) for shard in range(3)], most_open=2, chunk=11
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
    """A sample of first crashes, and for each the recovery killed at every 31st call."""
    log = undisturbed(tmp_path / "undisturbed", scenario)
    step = max(1, len(log.calls) // 4)
    for first in range(1, len(log.calls) + 1, step):
        for second in range(1 + first % 31, 10**6, 31):
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
    scenario = Scenario(SMALL, [(shard, 30) for shard in range(2)])
    log = undisturbed(tmp_path / "undisturbed", scenario)
    for n in range(1, len(log.calls) + 1):
        directory = tmp_path / str(n)
        kill(directory, scenario, n, torn=False)
        found = SMALL.visible(directory) or {}
        again = [(shard, 30) for shard in shards_of(scenario.script) if shard not in found]
        SMALL.play(directory, Watched(), [*again, COMMIT, (7, 12)])
        assert SMALL.visible(directory) == {0: 30, 1: 30, 7: 12}
        assert verify(directory).clean


def test_killed_while_spans_without_elements_are_written(tmp_path: Path) -> None:
    """They add nothing to the length of the shard, and are there as a whole or not at all."""

    def write(directory: Path, files: Watched) -> None:
        with StreamWithMetaWriter(storage(directory), files=files) as writer:
            payloads = [SMALL.payload(0, 12, 0)] * 3
            writer.append(0, (elements(0, 0, 0), np.zeros(3, np.int64), payloads))

    def seen(directory: Path) -> tuple[dict[int, int] | None, int]:
        with storage(directory).sync_reader() as reader:
            return SMALL.visible(directory), reader.span_count

    def begin(name: str) -> Path:
        with writer_at(tmp_path / name) as writer:
            SMALL.append(writer, 0, 0, 12)
        return tmp_path / name

    log = Watched()
    write(begin("undisturbed"), log)
    before, after = seen(begin("before")), seen(tmp_path / "undisturbed")
    assert (before[0], after[0]) == ({0: 12}, {0: 12})
    assert after[1] == before[1] + 3
    outcomes = set()
    for n, torn in crash_points(log):
        directory = begin(f"{n}-{torn}")
        files = CrashAt(n, torn=torn)
        with pytest.raises(Crash):
            write(directory, files)
        files.bury()
        published = any("0000000-0001" in target for target in files.linked)
        assert seen(directory) == (after if published else before)
        outcomes.add(published)
        with writer_at(directory) as writer:
            assert writer.length(0) == 12
            SMALL.append(writer, 0, 12, 30)
        assert SMALL.visible(directory) == {0: 30}
        assert verify(directory).clean
    assert outcomes == {False, True}


def test_the_scenarios_reach_every_kind_of_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All data files are written before they are finished, and released and opened again."""
    writes: dict[str, int] = {}
    kinds = set()
    for name in (
        "payloads past the buffer",
        "spans past the buffer",
        "one big append",
        "more shards than open parts",
    ):
        SCENARIOS[name].set_limits(monkeypatch)
        log = undisturbed(tmp_path / name, SCENARIOS[name])
        kinds |= {kind for kind, _ in log.calls}
        for kind, path in log.calls:
            if kind == "write":
                writes[path] = writes.get(path, 0) + 1
    for role in ("elements", "spans", "payloads"):
        for suffix in (role, f"{role}.crc"):
            assert max(writes[path] for path in writes if path.endswith(f".{suffix}")) > 1, suffix
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

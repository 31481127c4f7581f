"""The writer of streams with metadata dies at every single one of its file operations.

`crash_cases` says what must hold then; whole are elements, spans and payloads, and every element
is in one span.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from guideloom_read import verify
from guideloom_write import StreamWithMetaWriter
from write.crash_cases import (
    Scenario,
    begin_anew_after_every_call,
    check_kinds_of_write,
    count_crash_points,
    crash_points,
    kill_at_every_call,
    kill_the_recovery,
)
from write.faulty_files import Crash, CrashAt, Watched
from write.known_content import COMMIT, rounds
from write.known_spans import KnownSpans, elements, storage, writer_at

BUFFER = 4 * 65536
DIRECT = 64 * 65536
SMALL = KnownSpans()
ONE_SPAN = KnownSpans(lengths=(10**9,))
ONE_EACH = KnownSpans(lengths=(1,), sizes=(0,))
LARGE = KnownSpans(lengths=(2, 0, 5), sizes=(100, BUFFER // 3, 0, BUFFER + 17, BUFFER))
HUGE = KnownSpans(lengths=(DIRECT // 8 + 3, 0, 4), sizes=(0, DIRECT + 3 * BUFFER + 5))


SCENARIOS = {
    "first commit": Scenario(SMALL, [(0, 50)]),
    "one span": Scenario(ONE_SPAN, [(0, 20), (0, 5)], before=[(0, 7)]),
    "nothing appended": Scenario(SMALL, []),
    "second part": Scenario(SMALL, [(3, 40)], before=[(3, 25)]),
    "several parts on top": Scenario(
        SMALL, [(0, 5), COMMIT, (0, 7), COMMIT, (0, 9)], before=[(0, 3), COMMIT, (0, 4)]
    ),
    "several shards and commits": Scenario(SMALL, rounds(shards=2, commits=2), chunk=9),
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
    kill_at_every_call(scenario, tmp_path)


def test_killed_again_during_the_recovery(scenario: Scenario, tmp_path: Path) -> None:
    """A sample of first crashes, and for each the recovery killed at every 31st call."""
    kill_the_recovery(scenario, tmp_path, samples=4, every=31)


def test_a_run_from_scratch_ignores_what_a_dead_one_left(tmp_path: Path) -> None:
    begin_anew_after_every_call(SMALL, shards=2, tmp_path=tmp_path)


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
    names = (
        "payloads past the buffer",
        "spans past the buffer",
        "one big append",
        "more shards than open parts",
    )
    check_kinds_of_write([SCENARIOS[name] for name in names], tmp_path, monkeypatch)


def test_how_many_points_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figure to publish, and a floor under it."""
    counts = count_crash_points(SCENARIOS, tmp_path, monkeypatch)
    assert sum(counts.values()) >= 1200
    assert min(counts.values()) >= 15

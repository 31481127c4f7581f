"""A writer that dies at every single one of its file operations, and the run after it.

For each call n of a run, it is killed at the entry of the call, and, where the call writes, in the
middle of it. Then

1. a reader sees exactly the parts whose link was made, whole;
2. a new writer goes on from `length(shard)` and ends with the content of an undisturbed run;
3. `verify` finds no fault, and all else that is there is garbage that no record names.

Works for every kind of data whose content is known: see `Known`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from guideloom_format import _names
from guideloom_read import verify
from write.faulty_files import Crash, CrashAt, Watched
from write.known_content import (
    COMMIT,
    Known,
    Script,
    garbage,
    lengths_of,
    parts_of,
    shards_of,
)

COMMON_GARBAGE = (
    r"guideloom\.json\.[0-9a-f]{16}\.tmp"
    r"|commits/[0-9]{7}-[0-9]{4}\.json\.[0-9a-f]{16}\.tmp"
    r"|owners/[0-9]{7}\.json(\.[0-9a-f]{16}\.tmp)?"
)
DATA_GARBAGE = r"data/[0-9]{4}/[0-9]{7}-[0-9]{4}-[0-9a-f]{16}"


@dataclass(frozen=True)
class Scenario:
    """What is there before, and the run that is killed."""

    known: Known[Any]
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
    roles = "|".join(scenario.known.roles)
    expected = re.compile(rf"{COMMON_GARBAGE}|{DATA_GARBAGE}\.({roles})(\.crc)?")
    left_over = garbage(directory)
    assert all(expected.fullmatch(name) for name in left_over), left_over


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


def kill_at_every_call(scenario: Scenario, tmp_path: Path) -> None:
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


def kill_the_recovery(scenario: Scenario, tmp_path: Path, *, samples: int, every: int) -> None:
    """So many first crashes, and for each the recovery killed at every so many calls."""
    log = undisturbed(tmp_path / "undisturbed", scenario)
    step = max(1, len(log.calls) // samples)
    for first in range(1, len(log.calls) + 1, step):
        for second in range(1 + first % every, 10**6, every):
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


def begin_anew_after_every_call(known: Known[Any], shards: int, tmp_path: Path) -> None:
    """Shards that were not committed are written anew, others are written beside the garbage."""
    scenario = Scenario(known, [(shard, 30) for shard in range(shards)])
    log = undisturbed(tmp_path / "undisturbed", scenario)
    for n in range(1, len(log.calls) + 1):
        directory = tmp_path / str(n)
        kill(directory, scenario, n, torn=False)
        found = known.visible(directory) or {}
        again = [(shard, 30) for shard in shards_of(scenario.script) if shard not in found]
        known.play(directory, Watched(), [*again, COMMIT, (7, 12)])
        assert known.visible(directory) == {**dict.fromkeys(range(shards), 30), 7: 12}
        assert verify(directory).clean


def check_kinds_of_write(
    scenarios: Iterable[Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All data files are written before they are finished, and released and opened again."""
    writes: dict[str, int] = {}
    kinds = set()
    for k, scenario in enumerate(scenarios):
        scenario.set_limits(monkeypatch)
        log = undisturbed(tmp_path / str(k), scenario)
        kinds |= {kind for kind, _ in log.calls}
        for kind, path in log.calls:
            if kind == "write":
                writes[path] = writes.get(path, 0) + 1
        roles = scenario.known.roles
    for role in roles:
        for suffix in (f".{role}", f".{role}.crc"):
            assert max(count for path, count in writes.items() if path.endswith(suffix)) > 1, suffix
    assert {"reopen", "create", "write", "size", "sync", "close", "link", "remove"} <= kinds


def count_crash_points(
    scenarios: Mapping[str, Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, int]:
    """The figures to publish, of each scenario."""
    counts = {}
    for name, scenario in scenarios.items():
        scenario.set_limits(monkeypatch)
        counts[name] = sum(1 for _ in crash_points(undisturbed(tmp_path / name, scenario)))
    print(f"crash points: {sum(counts.values())} {counts}")
    return counts

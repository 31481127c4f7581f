"""`clean`: what nothing refers to is listed or removed, and nothing else ever is."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guideloom_format import DamagedFileError, DatasetNotFoundError
from guideloom_read import verify
from guideloom_write import CleanReport
from guideloom_write._clean import clean
from write.crash_cases import Scenario, kill, undisturbed
from write.faulty_files import Crash, CrashAt, Watched
from write.known_content import (
    COMMIT,
    KNOWN_ELEMENTS,
    Known,
    all_files,
    elements,
    garbage,
    play,
    storage,
    visible,
    writer_at,
)
from write.known_documents import KnownDocuments
from write.known_spans import KnownSpans

DAY = 86400.0
KINDS: dict[str, Known[Any]] = {
    "stream": KNOWN_ELEMENTS,
    "documents": KnownDocuments(),
    "spans": KnownSpans(),
}


def make_older(directory: Path, seconds: float) -> None:
    """As if everything had been written so long ago."""
    then = time.time() - seconds
    for path in directory.rglob("*"):
        os.utime(path, (then, then), follow_symlinks=False)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_killed_writer_leaves_is_removed_and_nothing_else(kind: str, tmp_path: Path) -> None:
    """At every call of a run; and after it the same run goes on."""
    known = KINDS[kind]
    scenario = Scenario(known, [(0, 40), (1001, 30), COMMIT, (0, 5)], before=[(2, 9)])
    log = undisturbed(tmp_path / "undisturbed", scenario)
    place = known.writer(tmp_path, Watched())._storage
    for n in range(1, len(log.calls) + 1, 3):
        directory = tmp_path / str(n)
        kill(directory, scenario, n, torn=False)
        before, left = known.visible(directory), garbage(directory)
        notes = {name for name in left if name.startswith("owners/") and name.endswith("json")}
        place.directory = directory
        orphans = left - notes
        assert place.clean().orphans == ()
        make_older(directory, 2 * DAY)
        listed = place.clean()
        assert set(listed.orphans) == orphans
        assert not listed.removed
        assert garbage(directory) == left, "only listed"
        assert place.clean(remove=True) == CleanReport(
            listed.orphans, (), listed.nbytes, removed=True
        )
        assert garbage(directory) == notes
        assert known.visible(directory) == before
        assert verify(directory).clean
        shutil.rmtree(directory)


def test_the_age_limit_counts_from_the_last_change(tmp_path: Path) -> None:
    play(tmp_path / "x", Watched(), [(0, 5)])
    orphan = tmp_path / "x/data/0000/0000000-0001-0123456789abcdef.elements"
    orphan.write_bytes(b"12345")
    for age, limit, found in ((5, DAY, False), (5, 0, True), (99, 120, False), (99, 90, True)):
        make_older(tmp_path / "x", age)
        report = storage(tmp_path / "x").clean(older_than=limit)
        assert (len(report.orphans), report.nbytes) == ((1, 5) if found else (0, 0))


def test_files_of_a_living_writer_are_kept_whatever_their_age(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "x").open()
    writer.append(0, elements(0, 0, 50_000))
    make_older(tmp_path / "x", 9 * DAY)
    assert storage(tmp_path / "x").clean(older_than=0, remove=True).orphans == ()
    writer.commit()
    writer.close()
    assert visible(tmp_path / "x") == {0: 50_000}
    assert verify(tmp_path / "x").clean


def test_a_part_that_is_published_meanwhile_is_kept(tmp_path: Path) -> None:
    """At each call of the clean-up the writer commits and ends: no order is dangerous."""
    play(tmp_path / "log", Watched(), [(0, 5)])
    log = Watched()
    clean(storage(tmp_path / "log"), older_than=0, files=log)
    for n in range(1, len(log.calls) + 8):
        directory = tmp_path / str(n)
        writer = writer_at(directory).open()
        writer.append(0, elements(0, 0, 9))

        class Commits(Watched):
            def before(self, kind: str, path: str) -> None:
                del kind, path
                if len(self.calls) == n:  # noqa: B023
                    writer.commit()  # noqa: B023
                    writer.close()  # noqa: B023

        clean(storage(directory), older_than=0, remove=True, files=Commits())
        writer.close()
        assert visible(directory) in ({0: 9}, {})
        assert verify(directory).clean
        if visible(directory) == {}:
            assert n > len(log.calls)


def test_manifest_versions_are_removed_only_if_pins_are_given(tmp_path: Path) -> None:
    for shard in range(5):
        play(tmp_path / "x", Watched(), [(shard, 3)])
        storage(tmp_path / "x").consolidate()
    place = storage(tmp_path / "x")
    assert place.clean(older_than=0).manifests == ()
    assert place.clean(older_than=DAY, pinned=[]).manifests == ()
    listed = place.clean(older_than=0, pinned=[2, 4])
    assert listed.manifests == ("manifests/00000001.json", "manifests/00000003.json")
    assert place.clean(older_than=0, pinned=[2, 4], remove=True).removed
    for version, length in ((2, 6), (4, 12), (5, 15)):
        with place.at_version(version).sync_reader() as reader:
            assert len(reader) == length
    for version in (1, 3):
        with pytest.raises(DatasetNotFoundError, match="removes those that are not pinned"):
            place.at_version(version).sync_reader().open()
    assert visible(tmp_path / "x") == dict.fromkeys(range(5), 3)
    assert place.clean(older_than=0, pinned=[], remove=True).manifests == (
        "manifests/00000002.json",
        "manifests/00000004.json",
    )
    assert place.consolidate().version == 5
    assert verify(tmp_path / "x").clean


def test_files_with_other_names_are_never_touched(tmp_path: Path) -> None:
    play(tmp_path / "x", Watched(), [(0, 5)])
    others = [
        "README.md",
        "commits/notes.tmp",
        "data/0000/0000000-0001-0123456789abcdef.other",
        "data/0000/0000000-0001-0123.elements",
        "data/0000/notes.txt",
        "data/notes.txt",
        "manifests/1.json",
    ]
    (tmp_path / "x/manifests").mkdir()
    for name in others:
        (tmp_path / "x" / name).write_bytes(b"mine")
    make_older(tmp_path / "x", 9 * DAY)
    before = all_files(tmp_path / "x")
    assert storage(tmp_path / "x").clean(remove=True, pinned=[]).orphans == ()
    assert all_files(tmp_path / "x") == before


@pytest.mark.parametrize("where", ["data", "data/0000", "commits"])
def test_nothing_behind_a_link_is_touched(where: str, tmp_path: Path) -> None:
    """Behind it may be another dataset, whose files this one does not refer to."""
    play(tmp_path / "x", Watched(), [(0, 5)])
    play(tmp_path / "other", Watched(), [(0, 5), COMMIT, (0, 3)])
    temporary = tmp_path / "other/commits/0000000-0007.json.0123456789abcdef.tmp"
    temporary.write_bytes(b"")
    shutil.rmtree(tmp_path / "x" / where)
    (tmp_path / "x" / where).symlink_to(tmp_path / "other" / where)
    if where == "commits":
        shutil.copy(tmp_path / "other/guideloom.json", tmp_path / "x/guideloom.json")
    else:
        (tmp_path / "x/commits/0000000-0000.json").unlink()
    before = all_files(tmp_path / "other")
    make_older(tmp_path / "other", 9 * DAY)
    storage(tmp_path / "x").clean(remove=True, older_than=0)
    assert all_files(tmp_path / "other") == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda x: (x / "commits/0000001-0000.json").write_bytes(b"?"),
        lambda x: (x / "manifests/00000001.json").write_bytes(b"?"),
        lambda x: (x / "manifest.json").write_bytes(b"?"),
    ],
    ids=["record", "version", "manifest"],
)
def test_nothing_is_removed_from_a_damaged_dataset(
    damage: Callable[[Path], object], tmp_path: Path
) -> None:
    """What a damaged file refers to, nobody can say."""
    play(tmp_path / "x", Watched(), [(0, 5)])
    storage(tmp_path / "x").consolidate()
    play(tmp_path / "x", Watched(), [(1, 5)])
    (tmp_path / "x/data/0000/0000000-0001-0123456789abcdef.elements").write_bytes(b"")
    damage(tmp_path / "x")
    before = all_files(tmp_path / "x")
    with pytest.raises(DamagedFileError):
        storage(tmp_path / "x").clean(remove=True, older_than=0)
    assert all_files(tmp_path / "x") == before


def test_killed_at_every_call(tmp_path: Path) -> None:
    def prepare(directory: Path) -> None:
        play(directory, Watched(), [(0, 5)])
        storage(directory).consolidate()
        play(directory, Watched(), [(1, 5)])
        storage(directory).consolidate()
        for part in (1, 2):
            name = f"data/0000/0000000-000{part}-0123456789abcdef.elements"
            (directory / name).write_bytes(b"12")

    prepare(tmp_path / "log")
    log = Watched()
    clean(storage(tmp_path / "log"), remove=True, older_than=0, pinned=[], files=log)
    assert sum(kind == "remove" for kind, _ in log.calls) == 4
    for n in range(1, len(log.calls) + 1):
        directory = tmp_path / str(n)
        prepare(directory)
        files = CrashAt(n)
        with pytest.raises(Crash):
            clean(storage(directory), remove=True, older_than=0, pinned=[], files=files)
        files.bury()
        assert visible(directory) == {0: 5, 1: 5}
        storage(directory).clean(remove=True, older_than=0, pinned=[])
        assert garbage(directory) == {"manifest.json", "manifests/00000002.json"}
        assert verify(directory).clean


@pytest.mark.parametrize("limit", [-1, float("nan"), -0.5])
def test_an_age_that_is_none(limit: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"older_than is .*; expected seconds, 0 or more"):
        storage(tmp_path).clean(older_than=limit)


def test_a_pin_of_a_version_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    """A typing error must not remove what was meant."""
    for shard in range(3):
        play(tmp_path / "x", Watched(), [(shard, 3)])
        storage(tmp_path / "x").consolidate()
    before = all_files(tmp_path / "x")
    with pytest.raises(ValueError, match=r"pinned has version 33, .* there are \[1, 2, 3\]"):
        storage(tmp_path / "x").clean(remove=True, older_than=0, pinned=[2, 33])
    with pytest.raises(TypeError, match="pinned is 2; expected a list of versions"):
        storage(tmp_path / "x").clean(remove=True, older_than=0, pinned=2)  # type: ignore[arg-type]
    assert all_files(tmp_path / "x") == before


@pytest.mark.parametrize("pins", [[-1], ["1"], [True], [1.5]])
def test_pins_that_are_none(pins: Any, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match="pinned is"):
        storage(tmp_path).clean(pinned=pins)


def test_the_report_is_readable(tmp_path: Path) -> None:
    play(tmp_path / "x", Watched(), [(0, 5)])
    (tmp_path / "x/data/0000/0000000-0001-0123456789abcdef.elements").write_bytes(b"12")
    assert str(storage(tmp_path / "x").clean(older_than=0)) == (
        "1 files, 2 bytes, to be removed with remove=True\n"
        "data/0000/0000000-0001-0123456789abcdef.elements"
    )

"""`consolidate`: versions, the copy of the newest, and what readers of each see."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import guideloom
from guideloom_format import (
    DamagedFileError,
    DatasetNotFoundError,
    DocumentBytesFormat,
    DocumentStorage,
    MismatchError,
    StreamStorage,
)
from guideloom_format._storage import Storage
from guideloom_read import verify
from guideloom_write import Consolidation
from guideloom_write._consolidate import consolidate
from read.stream_cases import MemoryIO
from write.crash_cases import crash_points
from write.faulty_files import Crash, CrashAt, Watched
from write.known_content import (
    COMMIT,
    ELEMENT,
    KNOWN_ELEMENTS,
    Known,
    Script,
    garbage,
    play,
    storage,
    visible,
)
from write.known_documents import KnownDocuments
from write.known_spans import KnownSpans

SCRIPT: Script = [(4, 7), (0, 5), COMMIT, (4, 3), COMMIT, (1000, 2)]
LENGTHS = {0: 5, 4: 10, 1000: 2}
KINDS: dict[str, Known[Any]] = {
    "stream": KNOWN_ELEMENTS,
    "documents": KnownDocuments(),
    "spans": KnownSpans(),
}


def storage_of(known: Known[Any], directory: Path) -> Storage:
    found: Storage = known.writer(directory, Watched())._storage
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_dataset_is_the_same_before_and_after(kind: str, tmp_path: Path) -> None:
    """In content and fingerprint; with records, without, and where nothing can be listed."""
    known = KINDS[kind]
    known.play(tmp_path / "x", Watched(), SCRIPT)
    place = storage_of(known, tmp_path / "x")
    with place.sync_reader() as reader:  # type: ignore[attr-defined]
        fingerprint = reader.fingerprint
        assert reader.version is None
    done = place.consolidate()
    assert done == Consolidation(1, 4, 17, fingerprint, created=True)
    assert known.visible(tmp_path / "x") == LENGTHS
    assert garbage(tmp_path / "x") == {"manifest.json", "manifests/00000001.json"}
    assert verify(tmp_path / "x").clean
    for io in (None, MemoryIO.of(tmp_path / "x", lists=False)):
        opened = type(place)(tmp_path / "x", place.storage_format, io)
        with opened.sync_reader() as reader:  # type: ignore[attr-defined]
            assert (reader.version, reader.fingerprint) == (1, fingerprint)
    shutil.rmtree(tmp_path / "x/commits")
    with place.sync_reader() as reader:  # type: ignore[attr-defined]
        assert (reader.version, reader.fingerprint) == (1, fingerprint)
    with known.writer(tmp_path / "x", Watched()) as writer:
        assert {shard: writer.length(shard) for shard in LENGTHS} == LENGTHS


def test_nothing_new_is_no_new_version(tmp_path: Path) -> None:
    play(tmp_path / "x", Watched(), SCRIPT)
    first = storage(tmp_path / "x").consolidate()
    files = {path: path.read_bytes() for path in (tmp_path / "x").rglob("*.json")}
    again = storage(tmp_path / "x").consolidate()
    assert again == Consolidation(first.version, 4, 17, first.fingerprint, created=False)
    assert files == {path: path.read_bytes() for path in (tmp_path / "x").rglob("*.json")}


def test_an_empty_dataset_has_a_version_too(tmp_path: Path) -> None:
    play(tmp_path / "x", Watched(), [])
    done = storage(tmp_path / "x").consolidate()
    assert (done.version, done.parts, done.length, done.created) == (1, 0, 0, True)
    assert not storage(tmp_path / "x").consolidate().created
    with storage(tmp_path / "x").sync_reader() as reader:
        assert (len(reader), reader.version) == (0, 1)


def test_every_version_shows_what_there_was(tmp_path: Path) -> None:
    """Shards before, between and behind those that are there; old versions never change."""
    steps: list[tuple[int, int]] = [(5, 4), (2, 3), (5, 1), (9, 6), (0, 2)]
    seen = []
    for version, step in enumerate(steps, start=1):
        play(tmp_path / "x", Watched(), [step])
        assert storage(tmp_path / "x").consolidate().version == version
        with storage(tmp_path / "x").sync_reader() as reader:
            seen.append((reader.fingerprint, reader.read(0, len(reader))))
    play(tmp_path / "x", Watched(), [(1, 1)])
    for version, (fingerprint, content) in enumerate(seen, start=1):
        by_class = StreamStorage(
            tmp_path / "x", storage(tmp_path / "x").storage_format, version=version
        )
        by_name = guideloom.open(tmp_path / "x", version=version)
        moved = storage(tmp_path / "x").at_version(99).at_version(version)
        remote = StreamStorage(
            tmp_path / "x",
            storage(tmp_path / "x").storage_format,
            MemoryIO.of(tmp_path / "x", lists=False),
            version=version,
        )
        for pinned in (by_class, by_name, moved, remote):
            assert f"version={version}" in repr(pinned)
            with pinned.sync_reader() as reader:
                assert (reader.version, reader.fingerprint) == (version, fingerprint)
                found = reader.read(0, len(reader))  # type: ignore[call-arg]
            assert all(np.array_equal(found[name], content[name]) for name in content)
    with storage(tmp_path / "x").sync_reader() as reader:
        assert reader.version is None
    assert verify(tmp_path / "x").clean


@pytest.mark.parametrize("version", [True, -1, 10**8, "1", 1.0])
def test_what_is_no_version(version: Any, tmp_path: Path) -> None:
    with pytest.raises((TypeError, ValueError), match="version is"):
        storage(tmp_path).at_version(version)
    with pytest.raises((TypeError, ValueError), match="version is"):
        StreamStorage(tmp_path, storage(tmp_path).storage_format, version=version)


def test_a_version_that_is_not_there(tmp_path: Path) -> None:
    play(tmp_path / "x", Watched(), SCRIPT)
    with pytest.raises(DatasetNotFoundError, match="has no manifest version 3: the file"):
        storage(tmp_path / "x").at_version(3).sync_reader().open()


def test_a_pinned_storage_gives_no_writer(tmp_path: Path) -> None:
    play(tmp_path / "x", Watched(), SCRIPT)
    with pytest.raises(ValueError, match="is pinned to manifest version 1; write with a storage"):
        storage(tmp_path / "x").at_version(1).sync_writer()


def test_a_version_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    play(tmp_path / "x", Watched(), SCRIPT)
    storage(tmp_path / "x").consolidate()
    folder = tmp_path / "x/manifests"
    (folder / "00000001.json").rename(folder / "00000002.json")
    with pytest.raises(DamagedFileError, match="manifest_version is 1; expected 2"):
        storage(tmp_path / "x").at_version(2).sync_reader().open()
    with pytest.raises(DamagedFileError, match="manifest_version is 1; expected 2"):
        storage(tmp_path / "x").consolidate()


def test_a_copy_that_is_newer_than_all_versions_is_not_lost(tmp_path: Path) -> None:
    """Somebody copied a dataset without its old versions and records, and goes on."""
    play(tmp_path / "x", Watched(), SCRIPT)
    storage(tmp_path / "x").consolidate()
    play(tmp_path / "x", Watched(), [(7, 1)])
    storage(tmp_path / "x").consolidate()
    (tmp_path / "x/manifests/00000002.json").unlink()
    shutil.rmtree(tmp_path / "x/commits")
    (tmp_path / "x/commits").mkdir()
    assert visible(tmp_path / "x") == {**LENGTHS, 7: 1}
    play(tmp_path / "x", Watched(), [(8, 2)])
    assert storage(tmp_path / "x").consolidate().version == 3
    shutil.rmtree(tmp_path / "x/commits")
    assert visible(tmp_path / "x") == {**LENGTHS, 7: 1, 8: 2}


@pytest.mark.parametrize("name", ["guideloom.json", "commits/0000004-0000.json"])
def test_a_damaged_dataset_is_left_as_it_is(name: str, tmp_path: Path) -> None:
    play(tmp_path / "x", Watched(), SCRIPT)
    with open(tmp_path / "x" / name, "r+b") as file:
        file.write(b"?")
    with pytest.raises(DamagedFileError, match=name.rpartition("/")[2]):
        storage(tmp_path / "x").consolidate()
    assert not (tmp_path / "x/manifest.json").exists()
    assert list((tmp_path / "x/manifests").glob("*")) == []


def test_what_is_not_there_or_something_else_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="holds no dataset"):
        storage(tmp_path / "x").consolidate()
    play(tmp_path / "x", Watched(), SCRIPT)
    with pytest.raises(MismatchError, match="of kind 'stream', it was opened as 'document'"):
        DocumentStorage(tmp_path / "x", DocumentBytesFormat()).consolidate()


def prepared(directory: Path, before: int) -> None:
    play(directory, Watched(), [(0, 5)])
    for _ in range(before):
        storage(directory).consolidate()
    play(directory, Watched(), [(0, 2), (3, 4)])


@pytest.mark.parametrize("before", [0, 1])
def test_killed_at_every_call(before: int, tmp_path: Path) -> None:
    """All committed data is seen by every reader, and the next consolidation goes on."""
    prepared(tmp_path / "undisturbed", before)
    log = Watched()
    consolidate(storage(tmp_path / "undisturbed"), log)
    points = list(crash_points(log))
    assert {kind for kind, _ in log.calls} >= {"link", "replace", "sync", "sync_folder", "read"}
    for n, torn in points:
        directory = tmp_path / f"{n}-{torn}"
        prepared(directory, before)
        files = CrashAt(n, torn=torn)
        with pytest.raises(Crash):
            consolidate(storage(directory), files)
        files.bury()
        assert visible(directory) == {0: 7, 3: 4}
        if before:
            with storage(directory).at_version(1).sync_reader() as reader:
                assert len(reader) == 5
        assert verify(directory).clean
        done = storage(directory).consolidate()
        assert (done.version, done.parts) == (before + 1, 3)
        with storage(directory).sync_reader() as reader:
            assert reader.version == before + 1
        manifest = json.loads((directory / "manifest.json").read_text())
        assert manifest["manifest_version"] == before + 1
        left = garbage(directory) - {f"manifests/0000000{v}.json" for v in (1, 2)}
        assert all(name.endswith(".tmp") for name in left - {"manifest.json"})
        assert np.dtype(ELEMENT).itemsize == 9
        shutil.rmtree(directory)
    assert len(points) > 15


@pytest.mark.parametrize("content", [b"", b"{}", b"garbage"])
def test_a_damaged_copy_is_replaced(content: bytes, tmp_path: Path) -> None:
    """The versions have all that it had; without them it is the only one."""
    play(tmp_path / "x", Watched(), SCRIPT)
    storage(tmp_path / "x").consolidate()
    play(tmp_path / "x", Watched(), [(7, 1)])
    copied = tmp_path / "x/manifest.json"
    copied.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"manifest\.json"):
        visible(tmp_path / "x")
    assert storage(tmp_path / "x").consolidate().version == 2
    assert visible(tmp_path / "x") == {**LENGTHS, 7: 1}
    shutil.rmtree(tmp_path / "x/manifests")
    copied.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"manifest\.json"):
        storage(tmp_path / "x").consolidate()


class Overtaken(Watched):
    """At the moment when the version is to be published, something else happens first."""

    def __init__(self, rival: Callable[[], object]) -> None:
        super().__init__()
        self._rival: Callable[[], object] | None = rival

    def before(self, kind: str, path: str) -> None:
        if kind == "link" and "/manifests/" in path and self._rival is not None:
            rival, self._rival = self._rival, None
            rival()


def test_a_version_of_another_that_has_more_is_as_good(tmp_path: Path) -> None:
    play(tmp_path / "x", Watched(), [(0, 5)])

    def rival() -> None:
        play(tmp_path / "x", Watched(), [(1, 6)])
        storage(tmp_path / "x").consolidate()

    done = consolidate(storage(tmp_path / "x"), Overtaken(rival))
    assert (done.version, done.parts, done.length, done.created) == (1, 2, 11, False)
    with storage(tmp_path / "x").at_version(1).sync_reader() as reader:
        assert (len(reader), reader.fingerprint) == (11, done.fingerprint)


def test_behind_a_version_of_another_that_has_less_comes_ones_own(tmp_path: Path) -> None:
    play(tmp_path / "x", Watched(), [(0, 5)])
    storage(tmp_path / "x").consolidate()
    version = tmp_path / "x/manifests/00000001.json"
    older = version.read_bytes()
    version.unlink()
    (tmp_path / "x/manifest.json").unlink()
    play(tmp_path / "x", Watched(), [(1, 6)])
    files = Overtaken(lambda: version.write_bytes(older))
    done = consolidate(storage(tmp_path / "x"), files)
    assert (done.version, done.parts, done.length, done.created) == (2, 2, 11, True)
    assert version.read_bytes() == older
    for number, length in ((1, 5), (2, 11)):
        with storage(tmp_path / "x").at_version(number).sync_reader() as reader:
            assert len(reader) == length
    assert json.loads((tmp_path / "x/manifest.json").read_text())["manifest_version"] == 2
    assert verify(tmp_path / "x").clean

"""What is durable when something becomes visible, followed step by step.

A process that dies loses nothing that it wrote; a machine that dies loses what was not synced. So
the double here keeps the books: which files were written after their last sync, and which names
were made in a folder after the folder's last sync.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from guideloom_format import CommitRecord, Header
from guideloom_write import StreamWriter
from write.faulty_files import Watched
from write.known_content import COMMIT, Script, elements, play, storage, writer_at

SCRIPT: Script = [(0, 5), (1, 40_000), COMMIT, (1, 3), (1000, 4)]


class Books(Watched):
    """Knows what a power failure would take.

    Attributes:
        dirty: files that were written to after their last sync.
        unsaved: names that were made after the last sync of their folder.
        checks: called with the target before a link is made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dirty: set[str] = set()
        self.unsaved: set[str] = set()
        self.checks: list[Callable[[str], None]] = []

    def before(self, kind: str, path: str) -> None:
        if "/owners/" in path:
            return  # advice, which may be lost
        if kind == "write":
            self.dirty.add(path)
        elif kind == "link":
            for check in self.checks:
                check(path)

    def after(self, kind: str, path: str) -> None:
        if kind == "sync":
            self.dirty.discard(path)
        elif kind == "sync_folder":
            self.unsaved = {name for name in self.unsaved if os.path.dirname(name) != path}
        elif kind in ("create", "make_folder", "link"):
            self.unsaved.add(path)

    def lost(self, path: str) -> bool:
        """Whether a power failure now could take the file, its data or a folder above it."""
        above = [path]
        while os.path.dirname(above[-1]) != above[-1]:
            above.append(os.path.dirname(above[-1]))
        return path in self.dirty or any(name in self.unsaved for name in above)


def source_of(target: str) -> str:
    """The other name of a file that is about to be linked."""
    folder, name = os.path.split(target)
    found = [other for other in os.listdir(folder) if other.startswith(name + ".")]
    assert len(found) == 1, found
    return os.path.join(folder, found[0])


def record_at(path: str, target: str, directory: Path) -> CommitRecord:
    header = Header.decode((directory / "guideloom.json").read_bytes())
    shard, part = map(int, os.path.basename(target).partition(".")[0].split("-"))
    data = Path(path).read_bytes()
    return CommitRecord.decode(
        data, dataset_id=header.dataset_id, kind="stream", shard=shard, part=part
    )


def test_all_that_a_record_names_is_durable_before_the_record_is_there(tmp_path: Path) -> None:
    directory = tmp_path / "a/b/x"
    files = Books()
    checked = []

    def check(target: str) -> None:
        source = source_of(target)
        assert source not in files.dirty, "the content of the new name is not synced"
        if target.endswith("guideloom.json"):
            return
        assert not files.lost(str(directory / "guideloom.json")), "the header may be lost"
        part = record_at(source, target, directory).part
        for role, facts in part.files.items():
            path = directory / f"data/{part.stem}.{role}"
            assert not files.lost(str(path)), f"{path} may be lost"
            assert path.stat().st_size == facts.nbytes
        assert not os.path.exists(target)
        checked.append(target)

    files.checks.append(check)
    play(directory, files, SCRIPT)
    assert len(checked) == 4
    assert files.dirty == set()


def test_what_was_committed_is_durable_when_the_call_returns(tmp_path: Path) -> None:
    directory = tmp_path / "a/b/x"
    files = Books()
    writer = StreamWriter(storage(directory), files=files).open()
    for name in ("guideloom.json", "data", "commits"):
        assert not files.lost(str(directory / name)), name
    for first in (0, 7):
        for shard in (3, 1005):
            writer.append(shard, elements(shard, first, first + 7))
        writer.commit()
        for shard in (3, 1005):
            record = directory / f"commits/{shard:07d}-{first // 7:04d}.json"
            assert record.exists()
            assert not files.lost(str(record))
    writer.close()


def test_a_writer_that_lost_the_race_for_the_header_makes_it_durable_too(tmp_path: Path) -> None:
    """The winner may die before its sync; the loser's parts depend on the header all the same."""
    files = Books()
    rival = writer_at(tmp_path / "x")

    def rival_is_faster(_: str) -> None:
        rival.open()

    files.checks.append(rival_is_faster)
    writer = StreamWriter(storage(tmp_path / "x"), files=files).open()
    behind = [kind for kind, _ in files.calls].index("link")
    assert ("sync_folder", str(tmp_path / "x")) in files.calls[behind:]
    assert writer._header == rival._header
    writer.close()
    rival.close()


def test_released_parts_are_synced_before_their_descriptor_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports an error of a delayed write to a descriptor that is open: keep none."""
    monkeypatch.setattr("guideloom_write._shard_writer.MOST_OPEN_PARTS", 1)
    monkeypatch.setattr("guideloom_write._checked_file._BUFFER_BYTES", 65536)

    class Closes(Books):
        def close(self, descriptor: int) -> None:
            assert self._paths[descriptor] not in self.dirty
            super().close(descriptor)

    files = Closes()
    with StreamWriter(storage(tmp_path / "x"), files=files) as writer:
        for start in (0, 8000):
            for shard in (0, 1, 2):
                writer.append(shard, elements(shard, start, start + 8000))
    assert [kind for kind, _ in files.calls].count("reopen") > 3

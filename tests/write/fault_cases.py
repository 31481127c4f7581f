"""File operations of a writer that fail, and the run after it.

Whatever fails: the error names a path and the errno, a reader sees whole parts or nothing of them,
the writer takes no more calls, and a new one goes on from `length(shard)`. Works for every kind of
data whose content is known: see `Known`.
"""

from __future__ import annotations

import errno
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic

import pytest

from guideloom_format import GuideLoomError, WriteError, WriterStateError
from guideloom_read import verify
from write.crash_cases import Scenario, check_state, linked_parts
from write.faulty_files import NEVER_FAILS, FailAt, Watched
from write.known_content import COMMIT, Known, Script, WriterT, garbage, lengths_of, parts_of

KINDS = [
    "make_folder",
    "create",
    "reopen",
    "write",
    "size",
    "sync",
    "close",
    "sync_folder",
    "link",
    "remove",
    "read",
]
"""All calls that can fail."""


def matters_not(kind: str, path: str, directory: Path) -> bool:
    """Whether a call may fail without an error: clean-up, advice, and folders of others."""
    above = kind == "sync_folder" and Path(path) in directory.parents
    return kind == "remove" or above or (kind == "read" and "/owners/" in path)


class Faults(ABC, Generic[WriterT]):
    """A script of a writer, of which calls fail."""

    def __init__(self, known: Known[WriterT], script: Script) -> None:
        self.known = known
        self.script = script
        self.lengths = lengths_of(parts_of(script))

    @abstractmethod
    def refused(self, writer: WriterT) -> Sequence[Callable[[], object]]:
        """Calls that a writer that failed takes no more."""

    def log(self, directory: Path) -> Watched:
        """A run without a failure."""
        log = Watched()
        self.known.play(directory, log, self.script)
        return log

    def check_kinds(self, directory: Path) -> None:
        """`KINDS` are all there are."""
        assert {kind for kind, _ in self.log(directory).calls} - NEVER_FAILS == set(KINDS)

    def play_until_it_fails(self, directory: Path, files: Watched) -> GuideLoomError | None:
        """Run the script until a call fails; its error, after a check that the writer is void."""
        writer = self.known.writer(directory, files)
        at = dict.fromkeys(self.lengths, 0)
        opened = False
        try:
            writer.open()
            opened = True
            for step in (*self.script, COMMIT):
                if step is COMMIT:
                    writer.commit()
                else:
                    shard, count = step
                    self.known.append(writer, shard, at[shard], at[shard] + count)
                    at[shard] += count
        except GuideLoomError as error:
            text = "this writer failed before" if opened else "the writer is not open"
            for call in self.refused(writer):
                with pytest.raises(WriterStateError, match=text):
                    call()
            return error
        finally:
            writer.close()
            assert files.open_count() == 0, "descriptors stay open"
        return None

    def check_only_whole_parts(self, directory: Path, files: Watched) -> None:
        """Visible are the parts whose link was made, and their data is there and right."""
        garbage(directory)
        check_state(directory, Scenario(self.known, self.script), linked_parts(files), {})
        if (directory / "guideloom.json").exists():
            report = verify(directory)
            assert report.clean, report.faults

    def attempt(self, directory: Path, files: FailAt, number: int) -> bool:
        """One run with a failure, and the run after it. False if the failure was not reached."""
        error = self.play_until_it_fails(directory, files)
        if not files.failures:
            assert error is None
            shutil.rmtree(directory)
            return False
        if error is None:
            noticed = [step for step in files.failures if not matters_not(*step, directory)]
            assert not noticed, f"{noticed} unnoticed"
        else:
            assert isinstance(error, OSError)
            assert f"errno {number}" in str(error)
            assert str(directory) in str(error)
        self.check_only_whole_parts(directory, files)
        self.known.complete(directory, Watched(), self.lengths)
        assert self.known.visible(directory) == self.lengths
        assert verify(directory).clean
        shutil.rmtree(directory)
        return True

    def fail_for_ever(self, tmp_path: Path, numbers: Sequence[int]) -> int:
        """The disk is gone from some call on, with one of the errnos in turn; how many calls."""
        n = 1
        while True:
            number = numbers[n % len(numbers)]
            if not self.attempt(tmp_path / str(n), FailAt(n, number, forever=True), number):
                return n - 1
            n += 1


def set_small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that little data goes past the buffer, and parts are released and opened again."""
    monkeypatch.setattr("guideloom_write._checked_file._BUFFER_BYTES", 65536)
    monkeypatch.setattr("guideloom_write._shard_writer.MOST_OPEN_PARTS", 2)


def check_new_names(known: Known[WriterT], kind: str, n: int, first: int, directory: Path) -> None:
    """After an error of a sync the kernel may forget the pages that it could not write.

    So the file is never written or synced again, not even by the same writer, opened again.

    Args:
        known: what is written.
        kind: which calls count and fail, and `n`: the number of the one that does.
        first: how much the first shard gets.
        directory: where.
    """

    def write_two_shards() -> None:
        writer.open()
        for shard, total in ((0, first), (1, 5)):
            known.append(writer, shard, writer.length(shard), total)
        writer.commit()

    files = FailAt(n, errno.EIO, kinds=[kind])
    writer = known.writer(directory, files)
    with pytest.raises(WriteError):
        write_two_shards()
    assert files.failures
    before = set(files.created)
    writer.close()
    write_two_shards()
    writer.close()
    again = files.created[len(before) :]
    assert again
    assert not before & set(again)
    assert known.visible(directory) == {0: first, 1: 5}
    assert verify(directory).clean

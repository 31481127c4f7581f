"""Notes of owners that cannot be written, read or believed: an error with a name, or no harm."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guideloom_format import Header, ShardConflictError, WriteError, WriterStateError
from guideloom_read import verify
from guideloom_write import StreamWriter
from guideloom_write._files import PosixFiles
from guideloom_write._owners import Note, Owners
from guideloom_write._process import this_process
from write.faulty_files import AppliedThenError, FailAt, Watched
from write.known_content import garbage
from write.known_messages import append, messages_in, storage, write_before
from write.owner_cases import (
    HERE,
    PROCESSES,
    SINCE,
    note_path,
    owners_left,
    put_bytes,
    put_note,
    write,
)
from write.race_processes import identity


@pytest.fixture
def here() -> Iterator[None]:
    with identity(lambda: HERE):
        yield


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A dataset with a part in shard 0."""
    write_before(tmp_path / "x", [(9, 0, 0)])
    return tmp_path / "x"


class FailingNotes(FailAt):
    """Call n of those on the notes fails."""

    def before(self, kind: str, path: str) -> None:
        assert len(self.calls) < 2000, "no end"
        if "/owners" in path:
            super().before(kind, path)


def calls_on_notes(directory: Path) -> int:
    """How many there are while a shard is taken over and given up."""
    put_note(directory, replace(this_process(), started="1"))
    files = Watched()
    with StreamWriter(storage(directory), files=files) as writer:
        append(writer, (9, 0, 1))
    return sum("/owners" in path for _, path in files.calls)


@pytest.mark.parametrize("forever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize(
    "number",
    [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.ESTALE, errno.EMFILE, errno.EINTR],
    ids=errno.errorcode.get,
)
def test_every_call_on_a_note_fails(number: int, forever: bool, directory: Path) -> None:
    """A named error and nothing else, or no harm at all; the next one goes on."""
    total = calls_on_notes(directory)
    assert total >= 10
    done = len((messages_in(directory) or {})[0]) - 1
    reached = 0
    for n in range(1, total + 1):
        put_note(directory, replace(this_process(), started="1"))
        before = messages_in(directory)
        files = FailingNotes(n, number, forever=forever)
        failure: WriteError | None = None
        writer = StreamWriter(storage(directory), files=files).open()
        try:
            append(writer, (9, 0, done + 1))
            writer.commit()
            done += 1
        except WriteError as error:
            failure = error
            assert messages_in(directory) == before
            with pytest.raises(WriterStateError, match="this writer failed before"):
                writer.commit()
        finally:
            writer.close()
        if failure is not None:
            assert not isinstance(failure, ShardConflictError)
            assert f"errno {number}" in str(failure)
            assert str(directory) in str(failure)
        assert files.open_count() == 0
        reached += bool(files.failures)
        write(directory, done + 1)
        done += 1
        assert messages_in(directory) == {0: [(9, 0, k) for k in range(done + 1)]}
        assert verify(directory).clean
        for path in (directory / "owners").iterdir():
            path.unlink()
    assert reached >= total - 2


@pytest.mark.parametrize("kind", ["create", "write", "close", "link", "remove", "make_folder"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT, errno.EEXIST])
def test_calls_on_notes_that_were_done_and_gave_an_error(
    kind: str, number: int, directory: Path
) -> None:
    files = AppliedThenError(kind, number, lambda path: "/owners" in path)
    writer = StreamWriter(storage(directory), files=files).open()
    done = 1
    text = f"errno {number}"
    try:
        append(writer, (9, 0, 1))
        writer.commit()
        done = 2
    except WriteError as error:
        text = str(error)
    finally:
        writer.close()
        files.bury()
    assert f"errno {number}" in text
    assert files.failures or kind == "make_folder"
    write(directory, done)
    assert len((messages_in(directory) or {})[0]) == done + 1
    assert verify(directory).clean


def test_a_link_of_a_note_that_does_nothing(directory: Path) -> None:
    """The file system says yes and does nothing: an error, and no endless loop."""

    class Lost(Watched):
        def link(self, source: str, target: str) -> None:
            assert len(self.calls) < 2000, "no end"
            if "/owners" not in target:
                super().link(source, target)

        def read(self, path: str, limit: int) -> bytes:
            assert len(self.calls) < 2000, "no end"
            return super().read(path, limit)

    with (
        pytest.raises(WriteError, match=r"0000000\.json was created \d+ times and is not there"),
        StreamWriter(storage(directory), files=Lost()) as writer,
    ):
        append(writer, (9, 0, 1))
    write(directory)


@pytest.mark.usefixtures("here")
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_is_in_a_note(data: st.DataObject, directory: Path) -> None:
    """Empty, cut, damaged or foreign: the shard is taken over or refused, and nothing else."""
    whole = put_note(directory, data.draw(st.sampled_from([p for p, _ in PROCESSES.values()])))
    change = data.draw(st.sampled_from(["cut", "byte", "any", "empty", "text"]))
    if change == "cut":
        content = whole[: data.draw(st.integers(0, len(whole) - 1))]
    elif change == "byte":
        at = data.draw(st.integers(0, len(whole) - 1))
        content = whole[:at] + bytes([data.draw(st.integers(0, 255))]) + whole[at + 1 :]
    elif change == "any":
        content = data.draw(st.binary(max_size=200))
    else:
        content = b"" if change == "empty" else b'{"format": "guideloom"}\n'
    put_bytes(directory, content)
    header = Header.decode((directory / "guideloom.json").read_bytes())
    mine = Note("f" * 16, HERE, SINCE)
    owners = Owners(PosixFiles(), str(directory), header.dataset_id, mine)
    if content != whole:
        owners.claim(0)
        assert Note.decode(note_path(directory).read_bytes(), "") == mine
        owners.end()
        assert owners_left(directory) == []


def test_things_that_are_no_files(directory: Path, tmp_path: Path) -> None:
    """A link is not followed, a folder is not removed: a named error, and the file is safe."""
    (directory / "owners").mkdir(exist_ok=True)
    other = tmp_path / "precious"
    other.write_bytes(b"precious")
    path = note_path(directory)
    path.symlink_to(other)
    with pytest.raises(WriteError, match=r"0000000\.json"):
        write(directory)
    assert other.read_bytes() == b"precious"
    path.unlink()
    path.mkdir()
    with pytest.raises(WriteError, match=r"0000000\.json"):
        write(directory)
    assert path.is_dir()
    path.rmdir()
    os.mkfifo(path)
    write(directory)
    assert owners_left(directory) == []
    (directory / "owners").rmdir()
    (directory / "owners").write_bytes(b"no folder")
    with pytest.raises(WriteError, match=r"errno \d+.*owners"):
        write(directory, 2)
    (directory / "owners").unlink()
    write(directory, 2)
    assert messages_in(directory) == {0: [(9, 0, 0), (9, 0, 1), (9, 0, 2)]}


def test_many_threads_open_writers_at_once(directory: Path) -> None:
    """Each for its own shards, over the notes of sessions that were lost."""
    errors: list[BaseException] = []
    for shard in range(1, 200):
        put_note(directory, this_process(), shard=shard)

    def work(k: int) -> None:
        try:
            for shard in range(k, 200, 8):
                with StreamWriter(storage(directory), files=Watched()) as writer:
                    append(writer, (k, shard, 0))
        except BaseException as error:  # noqa: BLE001  # told below
            errors.append(error)

    interval = sys.getswitchinterval()
    with ExitStack() as stack:
        stack.callback(sys.setswitchinterval, interval)
        sys.setswitchinterval(1e-6)
        threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors, errors
    assert len(messages_in(directory) or {}) == 200
    assert garbage(directory) == set()


def test_claims_of_one_session_are_made_once(directory: Path) -> None:
    files = Watched()
    with StreamWriter(storage(directory), files=files) as writer:
        for number in range(1, 5):
            append(writer, (9, 0, number))
            writer.commit()
    links = [path for kind, path in files.calls if kind == "link" and "/owners" in path]
    assert len(links) == 1
    assert isinstance(writer._owners, Owners)

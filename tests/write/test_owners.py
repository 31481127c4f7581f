"""Who may write a shard now: the notes in `owners/`, which are advice and never lose anything."""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guideloom_format import ShardConflictError, WriteError, WriterStateError
from guideloom_read import verify
from guideloom_write import StreamWriter
from guideloom_write._files import PosixFiles
from guideloom_write._owners import Note
from guideloom_write._process import this_process
from write.faulty_files import Watched
from write.known_messages import append, messages_in, storage, write_before
from write.owner_cases import HERE, PROCESSES, SINCE, note_path, owners_left, put_note, write
from write.owner_processes import holder
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


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", PROCESSES)
def test_who_is_taken_over(name: str, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The dead at once, those who cannot be asked after a while, or as the user says."""
    process, state = PROCESSES[name]
    caplog.set_level(logging.INFO, "guideloom_write")
    who = re.escape(f"host {process.host}, pid {process.pid}, writing since {SINCE}")
    cases: list[tuple[float, dict[str, Any], bool]] = [
        (0.0, {}, state == "dead"),
        (3500.0, {}, state == "dead"),
        (3700.0, {}, True),
        (100.0, {"stale_after": 200.0}, state == "dead"),
        (300.0, {"stale_after": 200.0}, True),
        (1.0, {"stale_after": 0.0}, True),
        (0.0, {"take_over": True}, True),
    ]
    for age, options, taken in cases:
        data = put_note(directory, process, age=age)
        caplog.clear()
        before = messages_in(directory)
        number = len((before or {})[0])
        if taken:
            write(directory, number, **options)
            assert len(caplog.records) == 1
            record = caplog.records[0]
            assert re.match(f"shard 0 is taken over from {who}, ", record.getMessage())
            asked_for = options.get("take_over", False) and state == "unknown"
            assert record.levelno == (logging.INFO if asked_for else logging.WARNING)
            assert owners_left(directory) == []
        else:
            with pytest.raises(
                ShardConflictError,
                match=rf"shard 0 is being written by another writer: {who}, last seen "
                rf"{age:.0f}|{age + 1:.0f} s ago .*0000000\.json.*Nothing was appended.*"
                rf"take_over=True.*after {options.get('stale_after', 3600.0):.0f} seconds",
            ):
                write(directory, number, **options)
            assert note_path(directory).read_bytes() == data
            assert messages_in(directory) == before
    assert verify(directory).clean


def test_a_note_from_the_future_is_fresh(directory: Path) -> None:
    """The clock of the other machine is ahead: better too late than two at once."""
    put_note(directory, replace(this_process(), host="elsewhere"), age=-7200.0)
    with pytest.raises(ShardConflictError, match=r"host elsewhere.*last seen 0 s ago"):
        write(directory)
    write(directory, take_over=True)


@pytest.mark.parametrize("stale_after", [-1.0, float("nan")])
def test_stale_after_is_a_number_of_seconds(stale_after: float, directory: Path) -> None:
    with pytest.raises(ValueError, match=r"stale_after is .*; expected seconds, 0 or more"):
        StreamWriter(storage(directory), stale_after=stale_after)


def test_real_processes(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One that lives, also stopped, also if its note is old; then killed; a zombie; buried."""
    with holder(directory, 0) as first:
        who = rf"host {socket.gethostname()}, pid {first.pid}, writing since {first.since}"
        os.utime(note_path(directory), (0, 0))
        being_written = rf"shard 0 is being written by another writer: {re.escape(who)} \("
        with pytest.raises(ShardConflictError, match=being_written):
            write(directory, stale_after=0.0)
        first.send(signal.SIGSTOP)
        with pytest.raises(ShardConflictError, match=being_written):
            write(directory)
        with StreamWriter(storage(directory)) as writer:  # and goes on with another shard
            with pytest.raises(ShardConflictError, match=being_written):
                append(writer, (9, 0, 1))
            append(writer, (9, 1, 0))
        first.send(signal.SIGKILL)
        assert not caplog.records
        write(directory, 1)
        assert [record.getMessage() for record in caplog.records] == [
            f"shard 0 is taken over from {who}, which runs no more"
        ]
        assert caplog.records[0].levelno == logging.WARNING
        assert caplog.records[0].name == "guideloom_write"
    with holder(directory, 0) as second:
        second.kill_and_leave()
        write(directory, 2)
    with holder(directory, 0) as third:
        write(directory, 3, take_over=True)  # though it lives
        third.pipe.send("end")
        third.process.join(60)
        assert third.process.exitcode == 0
    assert owners_left(directory) == []
    assert messages_in(directory) == {0: [(9, 0, k) for k in range(4)], 1: [(9, 1, 0)]}
    assert verify(directory).clean


def test_two_sessions_of_one_process(directory: Path) -> None:
    """The second one is refused until the first one ends; a lost session does not count."""
    first = StreamWriter(storage(directory)).open()
    append(first, (9, 0, 1))
    since = re.escape(f"pid {os.getpid()}, writing since {first._owner.since}")
    second = StreamWriter(storage(directory)).open()
    with pytest.raises(ShardConflictError, match=since):
        append(second, (9, 0, 1))
    first.commit()
    with pytest.raises(ShardConflictError, match=since):
        append(second, (9, 0, 2))
    first.close()
    append(second, (9, 0, 2))
    second.close()
    with StreamWriter(storage(directory)) as lost:
        append(lost, (9, 0, 2))
        lost._header = None  # never closed
        del lost
    write(directory, 2)
    assert messages_in(directory) == {0: [(9, 0, 0), (9, 0, 1), (9, 0, 2)]}


def test_the_note_says_who(directory: Path) -> None:
    with StreamWriter(storage(directory)) as writer:
        append(writer, (9, 7, 0))
        note = Note.decode(note_path(directory, 7).read_bytes(), "owners/0000007.json")
        assert note == Note(writer._token, this_process(), writer._owner.since)
        assert owners_left(directory) == ["0000007.json"]


def end_by_finish(writer: StreamWriter) -> None:
    writer.finish(0)


def end_by_close(writer: StreamWriter) -> None:
    writer.close()


class NoCommit(PosixFiles):
    """The link of a record is refused, or the user interrupts it."""

    error: BaseException | None = None

    def link(self, source: str, target: str) -> None:
        if self.error is not None and "/commits/" in target:
            raise self.error
        super().link(source, target)


def end_by_failure(writer: StreamWriter) -> None:
    NoCommit.error = OSError(errno.EIO, "Input/output error", "x")
    with pytest.raises(WriteError, match="errno 5"):
        writer.commit()


def end_by_interrupt(writer: StreamWriter) -> None:
    NoCommit.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        writer.commit()


@pytest.mark.parametrize("end", [end_by_finish, end_by_close, end_by_failure, end_by_interrupt])
def test_the_note_goes_with_the_writer(
    end: Callable[[StreamWriter], None], directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NoCommit, "error", None)
    writer = StreamWriter(storage(directory), files=NoCommit()).open()
    for shard in (0, 3):
        append(writer, (9, shard, 1))
    writer.commit()
    append(writer, (9, 0, 2))
    writer.rollback()
    assert owners_left(directory) == ["0000000.json", "0000003.json"]
    append(writer, (9, 0, 2))
    end(writer)
    left = owners_left(directory)
    assert left == (["0000003.json"] if end is end_by_finish else [])
    if end is end_by_finish:
        write(directory, 3)  # nobody's any more
        with pytest.raises(ShardConflictError):
            append(StreamWriter(storage(directory)).open(), (9, 3, 2))
    writer.close()
    assert owners_left(directory) == []


def test_an_exception_in_the_block_releases(directory: Path) -> None:
    def fail() -> None:
        with StreamWriter(storage(directory)) as writer:
            append(writer, (9, 0, 1))
            assert owners_left(directory) == ["0000000.json"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert owners_left(directory) == []


def test_a_note_of_another_is_never_removed(directory: Path) -> None:
    """Taken over meanwhile, whoever it was leaves the note of the new owner alone."""
    old = StreamWriter(storage(directory)).open()
    append(old, (9, 0, 1))
    new = StreamWriter(storage(directory), take_over=True).open()
    append(new, (9, 0, 1))
    there = note_path(directory).read_bytes()
    old.close()
    assert note_path(directory).read_bytes() == there
    new.commit()
    new.close()
    assert owners_left(directory) == []
    assert messages_in(directory) == {0: [(9, 0, 0), (9, 0, 1)]}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_keeps_the_note_of_its_parent(directory: Path) -> None:
    writer = StreamWriter(storage(directory)).open()
    append(writer, (9, 0, 1))
    there = note_path(directory).read_bytes()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with StreamWriter(storage(directory)) as own:
                try:
                    append(own, (9, 0, 1))
                except ShardConflictError:
                    status = 2
            try:
                writer.commit()
            except WriterStateError:
                status += 2
            writer.close()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 4
    assert note_path(directory).read_bytes() == there
    writer.commit()
    writer.close()
    assert owners_left(directory) == []
    assert messages_in(directory) == {0: [(9, 0, 0), (9, 0, 1)]}


@pytest.mark.parametrize("step", ["append", "commit"])
def test_a_sign_of_life_now_and_then(
    step: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Watched()
    writer = StreamWriter(storage(directory), files=files).open()
    append(writer, (9, 0, 1))
    append(writer, (9, 1, 0))

    def age() -> float:
        if step == "append":
            append(writer, (9, 0, 2))
        else:
            writer.commit()
        return time.time() - min(note_path(directory, k).stat().st_mtime for k in (0, 1))

    for shard in (0, 1):
        os.utime(note_path(directory, shard), (1, 1))
    assert age() > 10**6  # not yet: a minute has not passed
    monkeypatch.setattr("guideloom_write._owners.REFRESH_AFTER", 0.0)
    assert abs(age()) < 60
    note_path(directory, 1).unlink()  # a note that is gone does no harm
    append(writer, (9, 1, 1))
    writer.close()

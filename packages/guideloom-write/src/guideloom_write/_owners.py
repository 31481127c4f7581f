"""`owners/SSSSSSS.json`: a note that says who writes a shard now.

It is advice, for an error at the first append instead of one at the commit. Nothing is lost if it
is wrong: the exclusive link of the commit record decides (see `_part`). The note is not synced.

A writer that finds the note of another one takes the shard over if that one is dead, or, where it
cannot tell (another machine), has not refreshed its note for a while; else it refuses.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import weakref
from dataclasses import asdict, dataclass

from guideloom_format import DatasetError, Owner, ShardConflictError, WriteError, _names
from guideloom_format._members import Members
from guideloom_format._sealed import FORMAT, seal, unseal
from guideloom_write._files import PosixFiles
from guideloom_write._process import Process, State, state_of, this_process
from guideloom_write._publish import link_exclusively

MAX_NOTE_BYTES = 1 << 14
STALE_AFTER = 3600.0
REFRESH_AFTER = 60.0
_MOST_TRIES = 10
_logger = logging.getLogger("guideloom_write")
# Those of this process that are open, by token. Never iterated: threads open and close writers.
_sessions: weakref.WeakValueDictionary[str, Owners] = weakref.WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Note:
    """What a note says.

    Attributes:
        token: of the writer's session.
        process: which process it is.
        since: when the session began, in UTC.
    """

    token: str
    process: Process
    since: str

    @property
    def owner(self) -> Owner:
        """For people."""
        return Owner(self.process.host, self.process.pid, self.since)

    def encode(self, dataset_id: str, shard: int) -> bytes:
        """The file."""
        return seal(
            {
                "format": FORMAT,
                "type": "owner",
                "dataset_id": dataset_id,
                "shard": shard,
                "token": self.token,
                "since": self.since,
                **asdict(self.process),
            }
        )

    @classmethod
    def decode(cls, data: bytes, where: str) -> Note:
        """The note in a file.

        Raises:
            DamagedFileError: it is none.
        """
        members = Members(unseal(data, where), where)
        members.expect("format", FORMAT, "the file of a GuideLoom dataset")
        members.expect("type", "owner", "the file lies in owners/")
        texts = ("host", "machine", "boot", "pid_namespace", "started")
        process = Process(
            pid=members.integer("pid"), **{name: members.text(name) for name in texts}
        )
        return cls(members.text("token"), process, members.text("since"))

    def state(self) -> State:
        """Whether the session still is."""
        if self.process == this_process():
            return State.ALIVE if self.token in _sessions else State.DEAD
        return state_of(self.process)


def read_note(files: PosixFiles, path: str) -> Note | None:
    """The note in a file; None if it is none.

    Raises:
        FileNotFoundError: there is no file.
        OSError: it cannot be read.
    """
    try:
        return Note.decode(files.read(path, MAX_NOTE_BYTES), path)
    except DatasetError:
        return None


class Owners:
    """The notes of one session of a writer.

    Args:
        files: the file operations.
        directory: of the dataset.
        dataset_id: of the dataset.
        note: who this is.
        stale_after: seconds without a sign of life after which the note of an owner on another
            machine counts no more.
        take_over: take over shards whoever owns them.
    """

    def __init__(
        self,
        files: PosixFiles,
        directory: str,
        dataset_id: str,
        note: Note,
        *,
        stale_after: float = STALE_AFTER,
        take_over: bool = False,
    ) -> None:
        self.note = note
        self._files = files
        self._folder = os.path.join(directory, _names.OWNERS)
        self._dataset_id = dataset_id
        self._stale_after = stale_after
        self._take_over = take_over
        self._owned: set[int] = set()
        self._refreshed = time.monotonic()
        _sessions[note.token] = self

    def claim(self, shard: int) -> bool:
        """Note that this session writes the shard from now on.

        Returns:
            whether it did not before.

        Raises:
            ShardConflictError: another one does, which is not dead as far as can be told.
            OSError: the note cannot be written.
        """
        if shard in self._owned:
            return False
        path = self._path(shard)
        temporary = _names.temporary_name(path, self.note.token)
        try:
            self._create(temporary, shard)
            for _ in range(_MOST_TRIES):
                if self._took(temporary, path, shard):
                    break
            else:
                raise WriteError(
                    f"{path} was created {_MOST_TRIES} times and is not there or is another's; the "
                    "file system loses files, or many writers fight for the shard"
                )
        finally:
            with contextlib.suppress(OSError):
                self._files.remove(temporary)
        self._owned.add(shard)
        return True

    def _took(self, temporary: str, path: str, shard: int) -> bool:
        """One attempt to give the note its name; False if it was worth another one."""
        link_exclusively(self._files, temporary, path)
        try:
            found = read_note(self._files, path)
            if found is not None and found.token == self.note.token:
                return True
            self._check_free(found, path, temporary, shard)
            self._files.remove(path)
        except FileNotFoundError:
            _logger.info("the note of shard %d was removed by its owner", shard)
        return False

    def refresh(self) -> None:
        """A sign of life, now and then: the time of the notes."""
        now = time.monotonic()
        if now - self._refreshed >= REFRESH_AFTER:
            self._refreshed = now
            for shard in self._owned:
                with contextlib.suppress(OSError):
                    self._files.touch(self._path(shard))

    def release(self, shard: int) -> None:
        """Remove the note, unless it is another's by now."""
        if shard in self._owned:
            self._owned.discard(shard)
            path = self._path(shard)
            with contextlib.suppress(OSError):
                note = read_note(self._files, path)
                if note is not None and note.token == self.note.token:
                    self._files.remove(path)

    def end(self, *, remove: bool = True) -> None:
        """The session is over.

        Args:
            remove: the notes as well; not in a forked process, whose parent goes on.
        """
        _sessions.pop(self.note.token, None)
        while self._owned:
            shard = next(iter(self._owned))
            if remove:
                self.release(shard)
            self._owned.discard(shard)

    def _path(self, shard: int) -> str:
        return os.path.join(self._folder, _names.owner_name(shard))

    def _create(self, path: str, shard: int) -> None:
        try:
            descriptor = self._files.create(path)
        except FileNotFoundError:
            self._files.make_folder(self._folder)
            descriptor = self._files.create(path)
        try:
            self._files.write(descriptor, self.note.encode(self._dataset_id, shard))
        finally:
            self._files.close(descriptor)

    def _check_free(self, found: Note | None, path: str, temporary: str, shard: int) -> None:
        """Log that the shard is taken over, or refuse."""
        if found is None:  # a note is complete before it has its name
            _logger.warning("shard %d is taken over: its note was lost in a crash", shard)
            return
        state, who = found.state(), found.owner
        quiet = self._files.modified(temporary) - self._files.modified(path)
        if state is State.DEAD:
            _logger.warning("shard %d is taken over from %s, which runs no more", shard, who)
        elif self._take_over:
            _logger.info("shard %d is taken over from %s, as was asked for", shard, who)
        elif state is State.UNKNOWN and quiet >= self._stale_after:
            _logger.warning(
                "shard %d is taken over from %s, last seen %.0f s ago", shard, who, quiet
            )
        else:
            elsewhere = "" if state is State.ALIVE else f", last seen {max(quiet, 0):.0f} s ago"
            raise ShardConflictError(
                f"shard {shard} is being written by another writer: {who}{elsewhere} ({path}). "
                "Nothing was appended. Give each shard to one writer. If that writer is dead, open "
                "this one with take_over=True; one on another machine is also taken over after "
                f"{self._stale_after:.0f} seconds without a sign of life"
            )

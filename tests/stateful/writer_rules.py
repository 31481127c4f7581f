"""The rules of writers: two at most, and each call may be the one that a process dies in."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from guideloom_format import ShardConflictError, WriterStateError, _names
from guideloom_write import _owners
from stateful import on_disk
from stateful.doomed_files import DoomedFiles
from stateful.known_kinds import KnownKind
from stateful.model import Model, Session
from write.faulty_files import Crash

SHARDS = st.sampled_from([0, 1, 2, 1000])
SIZES = st.lists(st.sampled_from([0, 1, 1, 2, 3, 5, 40]), min_size=1, max_size=4)
APPENDS = st.lists(st.tuples(SHARDS, SIZES), min_size=1, max_size=4)
SLOTS = st.sampled_from([0, 0, 0, 1])
CALLS = st.one_of(st.none(), st.none(), st.integers(0, 40))
"""After how many calls the process dies, if it does."""
MEMORY = Path("/dev/shm")

Appends = list[tuple[int, list[int]]]


class WriterRules(RuleBasedStateMachine):
    """A dataset and its writers.

    Attributes:
        sessions: the writers that are open, by slot.
        changed: whether something may have changed since the last look at the files.
    """

    make_kind: Callable[[], KnownKind]

    def __init__(self) -> None:
        super().__init__()
        place = MEMORY if MEMORY.is_dir() else None
        self.scratch = Path(tempfile.mkdtemp(prefix="guideloom-", dir=place))
        self.directory = self.scratch / "dataset"
        self.kind = type(self).make_kind()
        self.model = Model()
        self.sessions: dict[int, Session] = {}
        self.changed = True

    def teardown(self) -> None:
        try:
            for session in self.sessions.values():
                session.files.disarm()
                session.writer.close()
        finally:
            shutil.rmtree(self.scratch)

    def storage(self, version: int | None = None) -> Any:
        return self.kind.storage(self.directory, version)

    def session(self, slot: int, *, take_over: bool = False) -> Session:
        """The writer in this slot; a new one if there is none."""
        if slot not in self.sessions:
            files = DoomedFiles()
            writer = self.kind.writer(self.storage(), files, take_over=take_over)
            writer.open()
            self.sessions[slot] = Session(writer, files, take_over)
        return self.sessions[slot]

    def run(
        self,
        session: Session,
        call: Callable[[], object],
        calls: int | None,
        expected: type[Exception] | None,
    ) -> bool:
        """Let a writer do this; False if its process died meanwhile.

        Args:
            session: whose call it is.
            call: what is done.
            calls: how many calls of file operations the process lives for.
            expected: the error that has to come, unless the process dies before.
        """
        self.changed = True
        session.files.arm(calls, torn=calls is not None and calls % 2 == 1)
        try:
            call()
        except Crash:
            self.bury(session)
            return False
        except Exception as error:
            session.files.disarm()
            if expected is None or not isinstance(error, expected):
                raise
            return True
        session.files.disarm()
        assert expected is None, f"{expected.__name__} was expected"
        return True

    def bury(self, session: Session) -> None:
        """The process of a writer is dead: what was linked is committed, all else is lost."""
        session.files.bury()
        _owners._sessions.pop(session.writer._owners.note.token, None)
        self.model.end(session)
        self.sessions = {slot: other for slot, other in self.sessions.items() if other != session}
        living = {other.token: other for other in self.sessions.values()}
        tokens = on_disk.owner_tokens(self.directory)
        self.model.notes = {
            shard: living[token] for shard, token in tokens.items() if token in living
        }

    def linked_shards(self, session: Session) -> list[int]:
        """The shards of which a record was linked since the last arming."""
        pairs = (_names.parse_commit_name(Path(path).name) for path in session.files.linked)
        return [pair[0] for pair in pairs if pair is not None]

    @rule(slot=SLOTS, appends=APPENDS, together=st.booleans(), calls=CALLS)
    def write(self, slot: int, appends: Appends, together: bool, calls: int | None) -> None:
        """Append, to several shards; the process may die in the last append."""
        for shard, sizes in appends[:-1]:
            self.append(slot, shard, sizes, None, together=together)
        self.append(slot, *appends[-1], calls, together=together)

    @rule(slot=SLOTS, appends=APPENDS, together=st.booleans(), calls=CALLS)
    def write_and_commit(
        self, slot: int, appends: Appends, together: bool, calls: int | None
    ) -> None:
        for shard, sizes in appends:
            self.append(slot, shard, sizes, None, together=together)
        self.commit(slot, calls)

    def append(
        self, slot: int, shard: int, sizes: list[int], calls: int | None, *, together: bool
    ) -> None:
        session = self.session(slot)
        if session.robbed:
            return
        batch = self.kind.make(sizes)
        may = self.model.may_write(session, shard)

        def call() -> None:
            self.kind.append(session.writer, shard, batch, together=together)

        if self.run(session, call, calls, None if may else ShardConflictError) and may:
            self.model.append(session, shard, batch)
            self.check_length(session, shard)

    @rule(slot=SLOTS, calls=CALLS)
    def commit(self, slot: int, calls: int | None) -> None:
        session, model = self.session(slot), self.model
        order = sorted(session.pending)
        refusals = [model.refusal(session, shard, always=False) for shard in order]
        refusal = next((error for error in refusals if error is not None), None)
        visible = order[: refusals.index(refusal)] if refusal is not None else order
        pending = {shard: session.pending[shard] for shard in visible}
        lived = self.run(session, session.writer.commit, calls, refusal)
        linked = self.linked_shards(session)
        if lived:
            assert linked[: len(visible)] == [k for k in visible if not pending[k].empty]
        else:
            visible = [shard for shard in visible if shard in linked]
        session.pending.update(pending)
        for shard in visible:
            model.publish(session, shard)
        if refusal is not None or not lived:
            self.failed(session)

    def failed(self, session: Session) -> None:
        """A writer that failed takes no more calls, and nothing is left of it."""
        self.model.end(session)
        if session in self.sessions.values():
            with pytest.raises(WriterStateError, match="failed before"):
                session.writer.commit()
            session.writer.close()
            self.sessions = {k: other for k, other in self.sessions.items() if other != session}

    @rule(slot=SLOTS, shard=SHARDS, task=st.none() | st.text(max_size=9), calls=CALLS)
    def finish(self, slot: int, shard: int, task: str | None, calls: int | None) -> None:
        session, model = self.session(slot), self.model
        if session.robbed:
            return

        def call() -> None:
            session.writer.finish(shard, task)

        if not model.may_write(session, shard):
            self.run(session, call, calls, ShardConflictError)
            return
        part = model.claim(session, shard)
        refusal = model.refusal(session, shard, always=True)
        lived = self.run(session, call, calls, refusal)
        if refusal is None and (lived or shard in self.linked_shards(session)):
            session.pending[shard] = part
            model.publish(session, shard, finished=True)
        if not lived or refusal is not None:
            self.failed(session)
            return
        model.release(session, shard)
        assert session.writer.finished(shard)
        record = session.writer.last_record(shard)
        assert record is not None
        assert record.task == task

    @rule(slot=SLOTS)
    def rollback(self, slot: int) -> None:
        session = self.session(slot)
        session.writer.rollback()
        session.pending.clear()
        session.robbed.clear()
        self.changed = True

    @rule(slot=SLOTS, calls=CALLS, again=st.booleans())
    def close(self, slot: int, calls: int | None, again: bool) -> None:
        """End a writer without a commit; perhaps open the same one again."""
        session = self.session(slot)
        if self.run(session, session.writer.close, calls, None):
            self.model.end(session)
            del self.sessions[slot]
            if again:
                session.writer.open()
                self.sessions[slot] = Session(session.writer, session.files, session.take_over)

    @rule(take_over=st.booleans())
    @precondition(lambda self: 1 not in self.sessions)
    def second_writer(self, take_over: bool) -> None:
        self.session(1, take_over=take_over)

    @rule(slot=SLOTS, shard=SHARDS)
    def ask_writer(self, slot: int, shard: int) -> None:
        session = self.session(slot)
        self.check_length(session, shard)
        assert session.writer.finished(shard) == self.model.finished(session, shard)

    def check_length(self, session: Session, shard: int) -> None:
        assert session.writer.length(shard) == self.model.length(session, shard)
        part = session.pending.get(shard)
        empty = part is None or part.empty
        if self.kind.name != "document":
            assert (session.writer.pending_bytes(shard) == 0) == empty

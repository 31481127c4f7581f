"""What a dataset and its writers must do, in lists and dictionaries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from guideloom_format import ShardConflictError, WriteError
from guideloom_write._shard_writer import ShardWriter
from stateful.doomed_files import DoomedFiles
from stateful.known_kinds import Batch


@dataclass
class Part:
    """What was committed at one time, or is about to be."""

    items: list[Any] = field(default_factory=list)
    spans: int = 0
    finished: bool = False

    @property
    def empty(self) -> bool:
        return not self.items and not self.spans


@dataclass(frozen=True)
class Snapshot:
    """A dataset at some moment."""

    items: tuple[Any, ...]
    spans: int
    parts: tuple[tuple[int, int], ...]
    """How many parts each shard had."""


Shards = dict[int, list[Part]]


def snapshot(shards: Shards) -> Snapshot:
    parts = [part for shard in sorted(shards) for part in shards[shard]]
    return Snapshot(
        tuple(item for part in parts for item in part.items),
        sum(part.spans for part in parts),
        tuple((shard, len(shards[shard])) for shard in sorted(shards) if shards[shard]),
    )


@dataclass(eq=False)
class Session:
    """One writer from `open` to its end.

    Attributes:
        pending: the parts that it has begun.
        known: how many parts it knows each shard to have, since it looked first.
        owned: shards that it holds for its own.
        robbed: shards whose files were cleaned away, since another writer took the shard over.
    """

    writer: ShardWriter
    files: DoomedFiles
    take_over: bool
    pending: dict[int, Part] = field(default_factory=dict)
    known: dict[int, int] = field(default_factory=dict)
    owned: set[int] = field(default_factory=set)
    robbed: set[int] = field(default_factory=set)

    @property
    def token(self) -> str:
        token: str = self.writer._token
        return token


@dataclass
class Model:
    """The dataset, and what its writers may do to it.

    Attributes:
        shards: the committed parts of each.
        notes: which living session has its note at a shard; those of the dead do not count.
        versions: of the manifest.
        copied: the version that `manifest.json` is a copy of.
    """

    shards: Shards = field(default_factory=dict)
    notes: dict[int, Session] = field(default_factory=dict)
    versions: dict[int, Snapshot] = field(default_factory=dict)
    copied: int | None = None

    def now(self) -> Snapshot:
        return snapshot(self.shards)

    def shown_version(self) -> int | None:
        """The version that an unpinned reader says it shows."""
        same = self.copied is not None and self.versions[self.copied] == self.now()
        return self.copied if same else None

    def look(self, session: Session, shard: int) -> int:
        """Parts that a session knows the shard to have: what it saw at the first look."""
        return session.known.setdefault(shard, len(self.shards.get(shard, [])))

    def length(self, session: Session, shard: int) -> int:
        parts = self.shards.get(shard, [])[: self.look(session, shard)]
        pending = session.pending.get(shard, Part())
        return sum(len(part.items) for part in parts) + len(pending.items)

    def finished(self, session: Session, shard: int) -> bool:
        known = self.look(session, shard)
        return known > 0 and self.shards[shard][known - 1].finished

    def may_claim(self, session: Session, shard: int) -> bool:
        """Whether the session gets a part of the shard."""
        other = self.notes.get(shard)
        return shard in session.owned or other in (None, session) or session.take_over

    def behind(self, session: Session, shard: int) -> bool:
        """Whether the session would begin a part of the shard that is committed by now."""
        known = session.known.get(shard)
        return shard not in session.owned and known not in (None, len(self.shards.get(shard, [])))

    def may_write(self, session: Session, shard: int) -> bool:
        """Whether an append to the shard is taken; if the session is behind, its note is gone."""
        if not self.may_claim(session, shard):
            return False
        if self.behind(session, shard):
            self.notes.pop(shard, None)
            return False
        return True

    def claim(self, session: Session, shard: int) -> Part:
        """The part of a shard that the session may have."""
        if shard not in session.owned:
            session.owned.add(shard)
            self.notes[shard] = session
        self.look(session, shard)
        return session.pending.setdefault(shard, Part())

    def append(self, session: Session, shard: int, batch: Batch) -> None:
        part = self.claim(session, shard)
        part.items += batch.items
        part.spans += batch.spans

    def refusal(self, session: Session, shard: int, *, always: bool) -> type[Exception] | None:
        """The error of publishing a shard's pending part."""
        part = session.pending[shard]
        if part.empty and not always:
            return None
        if shard in session.robbed:
            return WriteError
        taken = len(self.shards.get(shard, [])) != session.known[shard]
        return ShardConflictError if taken else None

    def publish(self, session: Session, shard: int, *, finished: bool = False) -> None:
        """The session's pending part becomes visible, unless there is nothing in it."""
        part = session.pending.pop(shard)
        if finished or not part.empty:
            part.finished = finished
            self.shards.setdefault(shard, []).append(part)
            session.known[shard] += 1

    def release(self, session: Session, shard: int) -> None:
        session.owned.discard(shard)
        if self.notes.get(shard) is session:
            del self.notes[shard]

    def end(self, session: Session) -> None:
        """The session is over, by whatever means."""
        session.pending.clear()
        session.owned.clear()
        self.notes = {shard: other for shard, other in self.notes.items() if other is not session}

"""Writers, readers and their like that share a dataset, and what must hold whatever their order.

Behind every operation that changed a name, the whole dataset is read as well: what was there
stays, and what a commit has acknowledged is there.
"""

from __future__ import annotations

import secrets
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from guideloom_format import Header, ShardConflictError, WriteError
from guideloom_read import verify
from guideloom_write import StreamWriter
from guideloom_write._clean import CleanReport, clean
from guideloom_write._consolidate import Consolidation, consolidate
from guideloom_write._job import finish_job
from write.known_messages import Message, Shards, all_of, append, messages_in, storage
from write.scheduled_files import ScheduledFiles, ScheduledIO
from write.schedules import Explored, Start, current_schedule, explore, sample, scheduled_thread

CHANGES = frozenset({"link", "replace", "remove"})


@dataclass
class World:
    """One dataset, who did what to it, and what was seen meanwhile.

    Attributes:
        before: what was there at the beginning.
        acknowledged: messages that were committed.
        refused: messages that were not, with the error.
        failed: errors of writers that lost a file to a hasty `clean`.
        versions: what consolidations returned.
        cleaned: what `clean` returned.
        last: what was read last.
    """

    directory: Path
    before: Shards = field(default_factory=dict)
    acknowledged: list[Message] = field(default_factory=list)
    refused: list[tuple[Message, str]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    versions: list[Consolidation] = field(default_factory=list)
    cleaned: list[CleanReport] = field(default_factory=list)
    last: Shards = field(default_factory=dict)

    def look(self, kind: str = "", path: str = "") -> None:
        """Read all, whatever is under way: nothing that was seen or acknowledged is gone."""
        if kind and (kind not in CHANGES or path.endswith(".tmp") or path.startswith("owners/")):
            return  # no reader looks there
        found = messages_in(self.directory) or {}
        for shard, messages in self.last.items():
            now = found.get(shard, [])
            assert now[: len(messages)] == messages, f"shard {shard}: {messages}, then {now}"
        self.last = found
        assert set(self.acknowledged) <= set(all_of(found)), "an acknowledged message is gone"

    def files(self) -> ScheduledFiles:
        return ScheduledFiles(str(self.directory), self.look)

    def commit(self, writer: StreamWriter, messages: Sequence[Message]) -> None:
        """Append messages and commit."""
        for message in messages:
            append(writer, message)
        writer.commit()
        self.acknowledged += messages

    def check_end(self) -> None:
        """Exactly what was acknowledged is there, in the order of its writer, and all is clean."""
        self.look()
        found = all_of(self.last)
        assert set(found) == {*all_of(self.before), *self.acknowledged}
        for messages in self.last.values():
            for writer in {message[0] for message in messages}:
                numbers = [number for by, _, number in messages if by == writer]
                assert numbers == sorted(numbers), f"out of order: {messages}"
        report = verify(self.directory)
        assert report.clean, report.faults

    def check_winners_named(self) -> None:
        """Who was refused was told the host of one that committed to the shard."""
        for (writer, shard, _), text in self.refused:
            others = {by for by, _, _ in self.last.get(shard, ())} - {writer}
            assert any(f"host {host_of(by - 1)}, pid" in text for by in others), text


Body = Callable[[World], None]


def commits(thread: int, shard: int, count: int) -> Body:
    """Commit message after message; one that another writer forestalled is tried again."""

    def body(world: World) -> None:
        files = world.files()
        number = 0
        for _ in range(100):
            message = (thread + 1, shard, number)
            try:
                with StreamWriter(storage(world.directory), files=files) as writer:
                    while number < count:
                        message = (thread + 1, shard, number)
                        world.commit(writer, [message])
                        number += 1
                return
            except ShardConflictError as error:
                world.refused.append((message, str(error)))
        raise AssertionError("no end of conflicts")

    return body


def claims(thread: int) -> Body:
    """Write to shard 0, or, if that is another's, to a shard of its own."""

    def body(world: World) -> None:
        writer = StreamWriter(storage(world.directory), files=world.files()).open()
        message = (thread + 1, 0, 0)
        try:
            world.commit(writer, [message])
        except ShardConflictError as error:
            world.refused.append((message, str(error)))
            if "Nothing was appended" not in str(error):  # it was told late, by the record
                writer.close()
                writer.open()
            world.commit(writer, [(thread + 1, thread + 1, 1)])
        writer.close()

    return body


def finishes(thread: int) -> Body:
    """Finish shard 0, unless it is finished or another's."""

    def body(world: World) -> None:
        message = (thread + 1, 0, 0)
        writer = StreamWriter(storage(world.directory), files=world.files()).open()
        try:
            if not writer.finished(0):
                append(writer, message)
                writer.finish(0, f"task of {thread}")
                world.acknowledged.append(message)
        except ShardConflictError as error:
            world.refused.append((message, str(error)))
        writer.close()

    return body


def publishes_job(thread: int, shards: Sequence[int]) -> Body:
    """Prepares a part for each shard, and publishes all as the job "one", if nobody else has."""

    def body(world: World) -> None:
        files = world.files()
        messages = [(thread + 1, shard, 0) for shard in shards]
        with StreamWriter(storage(world.directory), files=files) as writer:
            for message in messages:
                append(writer, message)
            records = tuple(record for shard in shards if (record := writer.prepare(shard)))
        header = Header.decode((world.directory / "guideloom.json").read_bytes())
        try:
            job = finish_job(files, str(world.directory), header, "one", records)
        except ShardConflictError as error:
            world.refused += [(message, str(error)) for message in messages]
        else:
            if job.records == records:
                world.acknowledged += messages

    return body


def consolidates(times: int = 1) -> Body:
    def body(world: World) -> None:
        files = world.files()
        for _ in range(times):
            world.versions.append(consolidate(storage(world.directory), files))

    return body


def cleans(older_than: float, times: int = 1) -> Body:
    def body(world: World) -> None:
        for _ in range(times):
            world.cleaned.append(
                clean(
                    storage(world.directory),
                    remove=True,
                    older_than=older_than,
                    files=world.files(),
                )
            )

    return body


def may_fail(body: Body) -> Body:
    """What a `clean` without an age limit may do to those that run beside it: a named error."""

    def careful(world: World) -> None:
        try:
            body(world)
        except ShardConflictError:
            raise
        except WriteError as error:
            world.failed.append(str(error))

    return careful


def reads(times: int = 1) -> Body:
    """Opens the dataset and reads it, with everything in between: whole states only."""

    def body(world: World) -> None:
        seen: Shards = {}
        for _ in range(times):
            sure = [*all_of(world.before), *world.acknowledged]
            found = messages_in(world.directory, ScheduledIO()) or {}
            for shard, messages in seen.items():
                assert found.get(shard, [])[: len(messages)] == messages
            assert set(sure) <= set(all_of(found)), "acknowledged before the reader came"
            seen = found

    return body


def host_of(thread: int | None) -> str:
    return f"machine-{thread}"


@contextmanager
def same_in_every_run(patch: pytest.MonkeyPatch, *, machines: bool) -> Iterator[None]:
    """Tokens that are the same whenever a schedule is run again.

    Args:
        patch: for what is patched meanwhile.
        machines: whether each thread has a host name of its own.
    """
    real_token, real_host = secrets.token_hex, socket.gethostname

    def token_hex(nbytes: int = 32) -> str:
        thread = scheduled_thread()
        if thread is None:
            return real_token(nbytes)
        return f"{thread + 1:02x}{current_schedule().next_number():0{2 * nbytes - 2}x}"

    def gethostname() -> str:
        thread = scheduled_thread()
        return real_host() if thread is None else host_of(thread)

    with patch.context() as patched:
        patched.setattr(secrets, "token_hex", token_hex)
        if machines:
            patched.setattr(socket, "gethostname", gethostname)
        yield


@dataclass(frozen=True)
class Case:
    """Threads that share a dataset.

    Attributes:
        bodies: what they do.
        before: makes what is there at the beginning.
        check: what must hold at the end.
        owners: whether notes of owners are written; else every claim succeeds.
        machines: whether each thread is on a machine of its own.
    """

    bodies: tuple[Body, ...]
    before: Callable[[Path], None] | None = None
    check: Callable[[World], None] = World.check_end
    owners: bool = False
    machines: bool = True

    def run(
        self,
        place: Path,
        patch: pytest.MonkeyPatch,
        *,
        limit: int | None = None,
        draws: int | None = None,
        seed: int = 0,
    ) -> Explored:
        """Try all orders, at most `limit`; or so many that are drawn at random."""
        with patch.context() as patched, same_in_every_run(patched, machines=self.machines):
            if not self.owners:
                patched.setattr(
                    "guideloom_write._owners.Owners.claim", lambda _owners, _shard: False
                )
            start = self._starter(place)
            return explore(start, limit) if draws is None else sample(start, draws, seed)

    def _starter(self, place: Path) -> Start:
        origin, directory = place / "before", place / "dataset"
        if self.before is not None:
            self.before(origin)
        present = messages_in(origin) or {}

        def start() -> tuple[list[Callable[[], None]], Callable[[], None]]:
            if directory.exists():
                shutil.rmtree(directory)
            if origin.exists():
                shutil.copytree(origin, directory)
            world = World(directory, present, last=dict(present))
            return (
                [lambda b=body: b(world) for body in self.bodies],  # type: ignore[misc]
                lambda: self.check(world),
            )

        return start

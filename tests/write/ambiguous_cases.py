"""Publications whose answer is wrong: done and an error, not done and no error, or an honest error.

Network file systems do all of that. A writer that is told the truth too late must find it out by
reading, and never lose or double what it wrote.
"""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guideloom_format import Header, ShardConflictError, WriteError
from guideloom_write import StreamWriter
from guideloom_write._consolidate import consolidate
from guideloom_write._files import PosixFiles
from guideloom_write._job import finish_job
from write.faulty_files import os_error
from write.known_messages import Message, all_of, append, messages_in, storage
from write.schedule_cases import Body, World
from write.scheduled_files import ScheduledFiles

NUMBERS = (errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EEXIST)
MODES = ("done, error", "not done, error", "not done, no error")
TARGETS = {
    "header": r"guideloom\.json",
    "record": r"commits/\d{7}-\d{4}\.json",
    "version": r"manifests/\d{8}\.json",
    "copy": r"manifest\.json",
    "job": r"jobs/[^/]+\.json",
}
PUBLISH = frozenset({"link", "replace"})
Choose = Callable[[str, str], tuple[str, int] | None]
"""From the kind of a call and the name that it gives, what goes wrong: (mode, errno), or None."""


class AmbiguousFiles(ScheduledFiles):
    """Some calls that publish a file give a wrong answer.

    Attributes:
        wrong: (name, mode, errno) of those that did.
    """

    def __init__(
        self,
        directory: str,
        choose: Choose,
        after: Callable[[str, str], None] = lambda _kind, _name: None,
    ) -> None:
        super().__init__(directory, after)
        self._choose = choose
        self.wrong: list[tuple[str, str, int]] = []

    def around(self, kind: str, paths: tuple[str, ...], do: Callable[[], Any]) -> Any:
        name = paths[-1][self._inside :]
        published = any(re.fullmatch(pattern, name) for pattern in TARGETS.values())
        wrong = self._choose(kind, name) if kind in PUBLISH and published else None
        if wrong is None:
            return super().around(kind, paths, do)
        mode, number = wrong

        def act() -> None:
            self.wrong.append((name, mode, number))
            if mode == "done, error":
                do()
            if mode != "not done, no error":
                raise os_error(number, kind, paths[-1])

        return super().around(kind, paths, act)


def at(target: str, mode: str, number: int, *, forever: bool) -> Choose:
    """This goes wrong with files of one kind: the first time, or always."""
    left = [10**6 if forever else 1]

    def choose(_kind: str, name: str) -> tuple[str, int] | None:
        if re.fullmatch(TARGETS[target], name) is None or not left[0]:
            return None
        left[0] -= 1
        return mode, number

    return choose


def by_chance(seed: str, *, at_most: int) -> Choose:
    """Every second publication goes wrong in some way, until there were so many."""
    draw = random.Random(seed)
    left = [at_most]

    def choose(_kind: str, _name: str) -> tuple[str, int] | None:
        if not left[0] or draw.random() < 0.5:
            return None
        left[0] -= 1
        return draw.choice(MODES), draw.choice(NUMBERS)

    return choose


def insists(thread: int, shard: int, count: int, choose: Choose) -> Body:
    """Commits its messages; after every error it looks what is there, and goes on from there."""

    def body(world: World) -> None:
        files = AmbiguousFiles(str(world.directory), choose, world.look)
        number = 0
        for _ in range(100):
            message: Message = (thread + 1, shard, number)
            if message in all_of(messages_in(world.directory) or {}):
                world.acknowledged.append(message)  # an error said it was not, or might not be
                number += 1
            if number == count:
                return
            try:
                with StreamWriter(storage(world.directory), files=files) as writer:
                    while number < count:
                        message = (thread + 1, shard, number)
                        world.commit(writer, [message])
                        number += 1
                return
            except ShardConflictError as error:
                world.refused.append((message, str(error)))
                found = all_of(messages_in(world.directory) or {})
                assert message not in found, "refused, and committed all the same"
            except WriteError as error:
                world.failed.append(str(error))
        raise AssertionError("no end of errors")

    return body


def insists_on_a_version(choose: Choose) -> Body:
    """Consolidates until that succeeds."""

    def body(world: World) -> None:
        files = AmbiguousFiles(str(world.directory), choose, world.look)
        for _ in range(100):
            try:
                world.versions.append(consolidate(storage(world.directory), files))
                return
            except WriteError as error:
                world.failed.append(str(error))
        raise AssertionError("no end of errors")

    return body


def prepared(
    directory: Path, messages: list[Message], files: PosixFiles | None = None
) -> list[bytes]:
    """Records of durable parts, one for each message, for a job to publish."""
    with StreamWriter(storage(directory), files=files) as writer:
        records = []
        for message in messages:
            append(writer, message)
            record = writer.prepare(message[1])
            assert record is not None
            records.append(record)
    return records


def header_of(directory: Path) -> Header:
    return Header.decode((directory / "guideloom.json").read_bytes())


def finish(
    directory: Path, name: str, records: list[bytes], files: PosixFiles | None = None
) -> int:
    """Decide and publish a job; how many parts it has."""
    job = finish_job(files or PosixFiles(), str(directory), header_of(directory), name, records)
    return len(job.records)

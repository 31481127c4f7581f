"""Processes that race for one shard, one header, one manifest version, round after round.

What may go wrong around them goes wrong: see `AFFLICTIONS`. They meet before they claim the
shard and before they commit; without notes of owners, where nobody is refused early, directly
before each exclusive link as well.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

from guideloom_format import ShardConflictError
from guideloom_write import StreamWriter
from guideloom_write._consolidate import consolidate
from guideloom_write._files import PosixFiles
from guideloom_write._process import this_process
from write.known_messages import Message, append, storage
from write.writer_processes import meet

SHARDS = 50
"""Rounds in one dataset, each for a shard of its own; then comes a new dataset."""


@dataclass
class Outcome:
    """What one process saw in one dataset.

    Attributes:
        dataset_id: which header it found.
        acknowledged: messages that were committed.
        refused: messages that were not, with the text of the error.
        versions: (version, parts, created) of its consolidations.
    """

    dataset_id: str = ""
    acknowledged: list[Message] = field(default_factory=list)
    refused: list[tuple[Message, str]] = field(default_factory=list)
    versions: list[tuple[int, int, bool]] = field(default_factory=list)


class MeetAtLinks(PosixFiles):
    """All processes are at the link of a record when one of them makes it."""

    def link(self, source: str, target: str) -> None:
        if "/commits/" in target:
            meet()
        super().link(source, target)


class RacyOwners(PosixFiles):
    """A file system that does not keep its word about exclusive names in `owners/`."""

    def create(self, path: str) -> int:
        if "/owners/" not in path:
            return super().create(path)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def link(self, source: str, target: str) -> None:
        if "/owners/" not in target:
            super().link(source, target)
            return
        if os.path.lexists(target):
            raise FileExistsError(17, "File exists", target)
        time.sleep(0.0005)
        os.link(source, f"{source}.other")
        os.replace(f"{source}.other", target)


class SkewedClock(PosixFiles):
    """Times of the notes are an hour early in some processes, an hour late in others."""

    def __init__(self, rank: int) -> None:
        self._skew = 3600.0 if rank % 2 else -3600.0

    def close(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        super().close(descriptor)
        if "/owners/" in path:
            self._shift(path)

    def touch(self, path: str) -> None:
        self._shift(path)

    def _shift(self, path: str) -> None:
        now = time.time() + self._skew
        os.utime(path, (now, now))


@contextlib.contextmanager
def nothing(_rank: int) -> Iterator[PosixFiles]:
    """All is well: the note of an owner keeps the others away."""
    yield PosixFiles()


@contextlib.contextmanager
def no_notes(_rank: int) -> Iterator[PosixFiles]:
    """Every claim succeeds, and everybody links at the same moment."""
    with mock.patch("guideloom_write._owners.Owners.claim", return_value=False):
        yield MeetAtLinks()


@contextlib.contextmanager
def no_locks(rank: int) -> Iterator[PosixFiles]:
    """The same, and `flock` and `lockf` do nothing."""
    with (
        mock.patch("fcntl.flock", return_value=None),
        mock.patch("fcntl.lockf", return_value=None),
        no_notes(rank) as files,
    ):
        yield files


@contextlib.contextmanager
def racy_owners(_rank: int) -> Iterator[PosixFiles]:
    yield RacyOwners()


@contextlib.contextmanager
def skewed_clocks(rank: int) -> Iterator[PosixFiles]:
    """On machines of their own, since only there the time of a note counts."""
    me = this_process()
    with identity(lambda: replace(me, machine=f"machine {rank}", boot=f"boot {rank}")):
        yield SkewedClock(rank)


@contextlib.contextmanager
def same_identity(_rank: int) -> Iterator[PosixFiles]:
    """Every process takes itself for the same one, and the others' notes for those of a dead."""
    one = replace(this_process(), host="node", pid=42, started="1", pid_namespace="pid:[1]")
    with identity(lambda: one):
        yield PosixFiles()


@contextlib.contextmanager
def same_names(rank: int) -> Iterator[PosixFiles]:
    """Equal host names and pids on machines that differ."""
    one = replace(this_process(), host="node", pid=42, boot=f"boot {rank}", machine=f"{rank}")
    with identity(lambda: one):
        yield PosixFiles()


@contextlib.contextmanager
def identity(process: Callable[[], object]) -> Iterator[None]:
    """Every module of the writer takes this for the process that runs it."""
    with contextlib.ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("guideloom_write.") and hasattr(module, "this_process"):
                stack.enter_context(mock.patch.object(module, "this_process", process))
        yield


AFFLICTIONS = {
    affliction.__name__: affliction
    for affliction in (
        nothing,
        no_notes,
        no_locks,
        racy_owners,
        skewed_clocks,
        same_identity,
        same_names,
    )
}


def race(rank: int, directory: Path, affliction: str, datasets: int) -> list[Outcome]:
    """Datasets with `SHARDS` races each: all create it, fight for its shards, and consolidate."""
    logging.getLogger("guideloom_write").setLevel(logging.ERROR)  # shards are taken over
    outcomes = []
    with AFFLICTIONS[affliction](rank) as files:
        for number in range(datasets):
            place = directory / str(number)
            outcome = Outcome()
            meet()
            for shard in range(SHARDS):
                _fight(rank, place, shard, files, outcome)
                if shard % 10 == 9:
                    meet()
                    found = consolidate(storage(place), files)
                    outcome.versions.append((found.version, found.parts, found.created))
            outcomes.append(outcome)
    return outcomes


def _fight(rank: int, place: Path, shard: int, files: PosixFiles, outcome: Outcome) -> None:
    message = (rank + 1, shard, 0)
    writer = StreamWriter(storage(place), files=files).open()
    assert writer._header is not None
    outcome.dataset_id = writer._header.dataset_id
    meet()
    try:
        append(writer, message)
    except ShardConflictError as error:
        outcome.refused.append((message, str(error)))
    meet()
    try:
        writer.commit()
        if not outcome.refused or outcome.refused[-1][0] != message:
            outcome.acknowledged.append(message)
    except ShardConflictError as error:
        outcome.refused.append((message, str(error)))
    writer.close()

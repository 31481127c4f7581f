"""What processes do on a machine whose power fails, and what each of them is told.

A process leaves marks in the machine's log when a call returned that promises something.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guideloom_format import _names
from guideloom_write._clean import clean
from guideloom_write._consolidate import Consolidation, consolidate
from guideloom_write._files import PosixFiles
from guideloom_write._job import finish_job, read_job
from write.faulty_files import Crash
from write.known_content import COMMIT, Known
from write.power_machine import Death, Machine, MachineFiles

HOME = "/jobs"
DIRECTORY = Path(HOME, "run", "dataset")
"""`HOME` is there and durable; the rest is made by whoever comes first."""


@dataclass(frozen=True)
class Opened:
    """The dataset is there."""


@dataclass(frozen=True)
class Committed:
    """Everything that was linked to these shards is committed: a call said so."""

    shards: frozenset[int]


@dataclass(frozen=True)
class Finished:
    """The shard is committed, with the mark that it is complete."""

    shard: int


@dataclass(frozen=True)
class Consolidated:
    """This manifest version is there."""

    result: Consolidation


@dataclass(frozen=True)
class Unpinned:
    """From now on nobody needs manifest versions but these and the newest."""

    versions: frozenset[int]


class Session:
    """A process that works on the dataset; it opens a writer when it needs one."""

    def __init__(
        self,
        known: Known[Any],
        files: PosixFiles,
        directory: Path = DIRECTORY,
        mark: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self.known = known
        self.files = files
        self.directory = directory
        self.shards: set[int] = set()
        self.mark = mark
        self._writer: Any = None

    def do(self, step: Step) -> None:
        if step is COMMIT:
            self.commit()
        elif isinstance(step, tuple):
            self.append(*step)
        else:
            step(self)

    def writer(self) -> Any:
        if self._writer is None:
            self._writer = self.known.writer(self.directory, self.files)
            self._writer.open()
            self.mark(Opened())
        return self._writer

    def length(self, shard: int) -> int:
        """Of a shard; the process believes that what it is told is committed."""
        self.shards.add(shard)
        length: int = self.writer().length(shard)
        return length

    def append(self, shard: int, count: int) -> None:
        at = self.length(shard)
        self.known.append(self.writer(), shard, at, at + count)

    def commit(self) -> None:
        self.writer().commit()
        self.mark(Committed(frozenset(self.shards)))

    def end(self) -> None:
        if self._writer is not None:
            self.commit()
            self._writer.close()

    def bury(self) -> None:
        """The process was killed: its writer is no session any more."""
        owners = getattr(self._writer, "_owners", None)
        if owners is not None:
            owners.end(remove=False)

    def storage(self) -> Any:
        return storage_of(self.known, self.directory)


Step = tuple[int, int] | None | Callable[[Session], None]
"""(shard, how much to append), COMMIT, or something else."""


@dataclass(frozen=True)
class Process:
    """What one process does.

    Attributes:
        steps: in order; what was appended is committed at the end.
        die_at: it is killed at the entry of this file operation, see `MachineFiles`.
    """

    steps: Sequence[Step]
    die_at: Death | None = None

    def run(
        self,
        known: Known[Any],
        machine: Machine,
        files_class: Callable[[Machine, Death | None], MachineFiles] = MachineFiles,
    ) -> MachineFiles:
        """Run it to its end, or until it is killed."""
        files = files_class(machine, self.die_at)
        session = Session(known, files, mark=machine.mark)
        try:
            for step in self.steps:
                session.do(step)
            session.end()
        except Crash:
            session.bury()
        return files


def after_link(calls: Sequence[tuple[str, str]]) -> bool:
    """Whether the next step is the one that makes a commit record's name durable."""
    return (
        calls[-1][0] == "sync_folder"
        and calls[-1][1].endswith(f"/{_names.COMMITS}")
        and any(kind == "link" and "/commits/" in path for kind, path in calls)
    )


def finished(shard: int) -> Callable[[Session], None]:
    """The shard gets the mark that it is complete."""

    def run(session: Session) -> None:
        session.writer().finish(shard)
        session.mark(Finished(shard))

    return run


def completed(lengths: Mapping[int, int], chunk: int = 10**6) -> Callable[[Session], None]:
    """What a job does that is started again: it goes on from what is there."""

    def run(session: Session) -> None:
        for shard, total in lengths.items():
            while (at := session.length(shard)) < total:
                session.append(shard, min(chunk, total - at))

    return run


def consolidated(session: Session) -> None:
    """The next manifest version."""
    session.mark(Consolidated(consolidate(session.storage(), session.files)))


def cleaned(pinned: Collection[int] | None = None) -> Callable[[Session], None]:
    """Garbage is removed, and manifest versions but these, if given."""

    def run(session: Session) -> None:
        if pinned is not None:
            session.mark(Unpinned(frozenset(pinned)))
        clean(session.storage(), remove=True, older_than=0.0, pinned=pinned, files=session.files)

    return run


def job_done(name: str, lengths: Mapping[int, int]) -> Callable[[Session], None]:
    """New shards of these lengths, published together by a job of this name."""

    def run(session: Session) -> None:
        writer, files, directory = session.writer(), session.files, str(session.directory)
        header = writer._header
        records = []
        if read_job(files, directory, header, name) is None:
            for shard, length in lengths.items():
                session.known.append(writer, shard, 0, length)
                records.append(writer.prepare(shard))
        finish_job(files, directory, header, name, records)
        session.mark(Committed(frozenset(lengths)))

    return run


def storage_of(known: Known[Any], directory: Path) -> Any:
    """The description of the dataset."""
    return known.writer(directory, MachineFiles(Machine()))._storage

"""What `verify` reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Level = Literal["structure", "sample", "everything"]
LEVELS: tuple[Level, ...] = ("structure", "sample", "everything")


@dataclass(frozen=True)
class Fault:
    """Something that is not what was committed.

    Attributes:
        file: its name inside the dataset.
        start, stop: the bytes concerned. Both are 0 where there are none: the file is empty, is
            not there, or cannot be read.
        problem: what was found and what was expected.
    """

    file: str
    start: int
    stop: int
    problem: str

    def __str__(self) -> str:
        where = f", bytes {self.start} to {self.stop}" if self.stop else ""
        return f"{_printable(self.file)}{where}: {self.problem}"


@dataclass
class VerifyReport:
    """What `verify` found.

    Attributes:
        level: what was looked at: `structure`, `sample` or `everything`.
        parts: parts looked at.
        nbytes: bytes of data files whose checksums were computed.
        faults: structure first, then in order of the parts; empty if everything is as it was
            committed.
        orphans: files that no record, manifest or decided job refers to, which killed writers
            leave, and which writers at work have not committed yet; not a fault. None if the
            storage cannot list.
    """

    level: Level = "everything"
    parts: int = 0
    nbytes: int = 0
    faults: list[Fault] = field(default_factory=list)
    orphans: list[str] | None = None

    @property
    def clean(self) -> bool:
        """Whether there is no fault."""
        return not self.faults

    def __bool__(self) -> bool:
        """The same, so that ``assert verify(directory)`` asserts it."""
        return self.clean

    def __str__(self) -> str:
        found = "clean" if self.clean else f"{len(self.faults)} faults"
        seen = f"{found}: {self.parts} parts, {self.nbytes} bytes of data"
        if self.level != "everything":
            seen += f" (level {self.level})"
        orphans = self.orphans or []
        if orphans:
            seen += f"; {len(orphans)} files that nothing refers to, see Storage.clean"
        return "\n".join(
            [seen, *map(str, self.faults), *(f"orphan: {_printable(name)}" for name in orphans)]
        )


def _printable(name: str) -> str:
    """A file name, which may hold anything, for a terminal."""
    return name if name.isprintable() else ascii(name)

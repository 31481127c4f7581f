"""What is done with a hostile dataset, in this order, and what comes of each."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import guideloom
from guideloom import GuideLoomError
from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom_read import DocumentReader, verify
from guideloom_read._contents import read_header
from guideloom_write._files import PosixFiles
from guideloom_write._job import finish_job
from hostile.good_datasets import contents, more_data, storage
from hostile.watching import Watch, peak_mib, reset_peak

Level = Literal["everything", "structure", "sample"]
LEVELS: tuple[Level, ...] = ("everything", "structure", "sample")
RIGHT, OTHER = "right", "other"
Operation = Callable[[str, Path], str]


@dataclass(frozen=True)
class Outcome:
    """What came of one operation.

    Attributes:
        operation: its name.
        result: what it gave, in a word or as a text; empty after an error.
        error: the error's text, empty if there was none.
        own: whether the error is one of the library's own.
        cpu_seconds: how long the processor was busy.
        mib: most memory meanwhile above that of a process that did nothing yet.
        escapes: what was done outside of the dataset.
    """

    operation: str
    result: str
    error: str
    own: bool
    cpu_seconds: float
    mib: float
    escapes: list[str]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _shown(base: str, path: Path, io: Any = None, **more: Any) -> str:
    with storage(base, path, io, **more).sync_reader() as reader:
        return contents(base, reader).hex()


def _opened(base: str, path: Path) -> str:
    with storage(base, path).sync_reader() as reader:
        return f"{len(reader)} {reader.fingerprint}"


def _found(base: str, path: Path) -> str:
    """All data, in the format that the header names."""
    found = guideloom.open(path)
    with found.sync_reader() as reader:
        if isinstance(reader, DocumentReader):
            return str(len(reader.read_many(range(len(reader)))))
        return str(len(contents(base, reader)))


def _verified(level: Level) -> Operation:
    def verified(base: str, path: Path) -> str:
        del base
        return "\n".join(map(str, verify(path, level=level).faults))

    return verified


def _written(base: str, path: Path) -> str:
    """A part more of a shard that is there, and a new shard."""
    with storage(base, path).sync_writer() as writer:
        for shard in (0, 7):
            writer.append(shard, more_data(base))
        writer.commit()
        length = writer.length(0)
        writer.append(7, more_data(base))
        writer.finish(7)
    return str(length)


def _consolidated(base: str, path: Path) -> str:
    return str(storage(base, path).consolidate())


def _listed(base: str, path: Path) -> str:
    return str(storage(base, path).clean(older_than=0.0))


def _cleaned(base: str, path: Path) -> str:
    return str(storage(base, path).clean(remove=True, older_than=0.0))


def _finished(base: str, path: Path) -> str:
    """Publish a job that no process has written anything for, or that was decided before."""
    del base
    header = read_header(PosixPreadIO().open(str(path)), str(path))
    return str(len(finish_job(PosixFiles(), str(path), header, "run", []).records))


READING: dict[str, Operation] = {
    "open": _opened,
    "guideloom.open": _found,
    "read": lambda base, path: _shown(base, path, PosixPreadIO()),
    "read with maps": lambda base, path: _shown(base, path, MmapIO()),
    "read with seek": lambda base, path: _shown(base, path, SeekIO()),
    "read version 1": lambda base, path: _shown(base, path, version=1),
    **{f"verify {level}": _verified(level) for level in LEVELS},
    "report": lambda _, path: str(verify(path, level="structure")),
}
CHANGING: dict[str, Operation] = {
    "list what is left": _listed,
    "write": _written,
    "finish a job": _finished,
    "consolidate": _consolidated,
    "remove what is left": _cleaned,
}


def all_outcomes(
    watch: Watch, base: str, path: Path, *, links_allowed: bool, empty_mib: float
) -> Iterator[Outcome]:
    """Everything is tried, whatever came of what was before."""
    for name, operation in (READING | CHANGING).items():
        reset_peak()
        result = error = ""
        own = True
        begun = time.process_time()
        with watch.only_below(path, links_allowed=links_allowed) as escapes:
            try:
                result = operation(base, path)
            except GuideLoomError as caught:
                error = str(caught)
            except BaseException as caught:  # noqa: BLE001  # that is what is looked for
                error, own = f"{type(caught).__name__}: {caught}", False
        seconds = time.process_time() - begun
        yield Outcome(name, result, error, own, seconds, peak_mib() - empty_mib, list(escapes))


def without_syncs() -> None:
    """What is tested here survives no power failure and needs not wait for the disk."""

    def unsynced(descriptor: int) -> None:
        del descriptor

    os.fsync = unsynced  # type: ignore[assignment]

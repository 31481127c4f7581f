"""What `write_shards` is told, and what it did: a row for each task."""

from __future__ import annotations

import importlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args, overload

import numpy as np

from guideloom_format import MissingPackageError
from guideloom_format._integers import as_flag, as_index, shown
from guideloom_format._processes import StartMethod, check_start_method
from guideloom_format._storage import Storage
from guideloom_write._owners import STALE_AFTER
from guideloom_write._shard_writer import ShardWriter

Status = Literal["written", "resumed", "skipped", "failed", "not started"]

MAX_TASK_TEXT = 512
_ROWS_SHOWN = 100
_HEAD = ("shard", "status", "items", "length", "bytes", "seconds", "task")
_LEFT = ("status", "task")


@dataclass(frozen=True, kw_only=True)
class ShardOptions:
    """What `write_shards` is seldom told.

    Attributes:
        commit_bytes: with ``resume=True``, a shard is committed each time that it has got so many.
        start_method: of the processes. "fork" gives them all that the caller has. "forkserver" and
            "spawn" begin anew and are sent what they need, lambdas and closures too: for a caller
            with threads or a GPU, whose script has the usual ``if __name__ == "__main__":``.
        user: a JSON object for the header of a new dataset.
        stale_after: see the same argument of `sync_writer`.
        take_over: see the same argument of `sync_writer`.
    """

    commit_bytes: int = 1 << 28
    start_method: StartMethod = "fork"
    user: Mapping[str, Any] | None = None
    stale_after: float = STALE_AFTER
    take_over: bool = False

    def __post_init__(self) -> None:
        commit_bytes = as_index("commit_bytes", self.commit_bytes, 1, None)
        object.__setattr__(self, "commit_bytes", commit_bytes)
        object.__setattr__(self, "take_over", as_flag("take_over", self.take_over))
        check_start_method(self.start_method)


@dataclass(frozen=True)
class ShardJob:
    """What the tasks of a call of `write_shards` share."""

    storage: Storage
    produce: Callable[..., Iterable[Any]]
    resume: bool
    options: ShardOptions

    def writer(self) -> ShardWriter:
        """A writer, open."""
        options = self.options
        writer: ShardWriter = self.storage.sync_writer(  # type: ignore[attr-defined]
            user=options.user, stale_after=options.stale_after, take_over=options.take_over
        )
        return writer.open()


class Assignment(NamedTuple):
    """A task with its shard, and its text for the record."""

    shard: int
    task: Any
    text: str | None


class Outcome(NamedTuple):
    """How a task ended; plain values that cross processes whatever happened."""

    status: Status
    items: int = 0
    length: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    error: str | None = None


class Ended(NamedTuple):
    """A task has ended, perhaps with an error of this process."""

    assignment: Assignment
    outcome: Outcome
    cause: Exception | None = None


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What became of one task.

    Attributes:
        shard: that the task owns.
        task: as it was given.
        status: `written`; `resumed`, written from where an earlier run had come to; `skipped`,
            finished by an earlier run; `failed`; or `not started`.
        items: that were taken from `produce` and committed, in this run.
        length: elements or documents that are committed to the shard.
        nbytes: that were committed to the shard's data files in this run, without checksums.
        seconds: that the task took.
        error: of a task that failed; the first line says what it was, a traceback follows.
    """

    shard: int
    task: Any
    status: Status
    items: int = 0
    length: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    error: str | None = None


class WriteReport(Sequence[TaskResult]):
    """A `TaskResult` for each task, in the order of the tasks; as a string, a table."""

    def __init__(self, results: Iterable[TaskResult]) -> None:
        self._results = tuple(results)

    @property
    def failed(self) -> tuple[TaskResult, ...]:
        """The tasks that failed."""
        return tuple(result for result in self._results if result.status == "failed")

    def summary(self) -> str:
        """One line: how many tasks came to which end, and what was written."""
        found = Counter(result.status for result in self._results)
        counts = ", ".join(f"{found[status]:,} {status}" for status in get_args(Status))
        items, nbytes = (
            sum(getattr(result, name) for result in self._results) for name in ("items", "nbytes")
        )
        return f"{len(self):,} tasks: {counts}; {items:,} items, {readable_bytes(nbytes)}"

    @overload
    def __getitem__(self, index: int) -> TaskResult: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[TaskResult, ...]: ...

    def __getitem__(self, index: int | slice) -> TaskResult | tuple[TaskResult, ...]:
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        return f"<WriteReport of {self.summary()}>"

    def __str__(self) -> str:
        half = _ROWS_SHOWN // 2
        left_out = max(0, len(self) - _ROWS_SHOWN)
        if left_out:
            rows = [_row(result) for result in (*self[:half], *self[-half:])]
        else:
            rows = [_row(result) for result in self]
        widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
        lines = [_line(row, widths) for row in (_HEAD, *rows)]
        if left_out:
            lines.insert(half + 1, f"… {left_out:,} more …")
        return "\n".join([*lines, self.summary()])


def _row(result: TaskResult) -> tuple[str, ...]:
    why = "" if result.error is None else f": {result.error.partition(chr(10))[0]}"
    return (
        str(result.shard),
        result.status,
        f"{result.items:,}",
        f"{result.length:,}",
        f"{result.nbytes:,}",
        f"{result.seconds:.1f}",
        shown(result.task) + why,
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = zip(_HEAD, row, widths, strict=True)
    texts = [f"{cell:<{n}}" if name in _LEFT else f"{cell:>{n}}" for name, cell, n in cells]
    return "  ".join(texts).rstrip()


def task_text(task: Any) -> str | None:
    """A task as it is kept in the commit records of its shard, to be compared later.

    JSON of what has an obvious one: numbers, strings, None, paths, ranges, lists and mappings of
    them.
    None for anything else, and for what is longer than 512 characters.
    """
    try:
        text = json.dumps(task, sort_keys=True, default=_plain)
    except (TypeError, ValueError, RecursionError):
        return None
    return text if len(text) <= MAX_TASK_TEXT else None


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, range):
        return [value.start, value.stop, value.step]
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return value.item()
    raise TypeError


def readable_bytes(nbytes: float) -> str:
    """A number of bytes with a unit, three digits or more."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "bytes" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:,.1f} TB"


def parallel_package(name: str) -> Any:
    """A package of the extra ``parallel``.

    Raises:
        MissingPackageError: it is not installed; the message has the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        instead = "workers=0" if name == "multiprocess" else "progress=False"
        raise MissingPackageError(
            f"write_shards needs the package {name}, which is not installed. Install it with: "
            f'pip install "guideloom-write[parallel]". Without it: {instead}'
        ) from error

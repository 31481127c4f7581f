"""One task of `write_shards`: what `produce` yields goes to the shard, which is then finished.

::

    produce(task)          item item item …   ->  append     ->  finish         resume=False
    produce(task, length)  item item item …   ->  append, commit, append, …, finish     =True

An item is what one call of `append` takes. Where ``resume=True`` commits depends on the data alone,
so that a job that was killed any number of times leaves the very parts of one that was not.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import Any

import numpy as np

from guideloom_format import CommitRecord, GuideLoomError, MismatchError, ShardConflictError
from guideloom_format._integers import shown
from guideloom_format._stream_spans import NOT_LISTS
from guideloom_write._shard_writer import ShardWriter
from guideloom_write._task_report import Assignment, Outcome, ShardJob, Status

_TELL_EVERY = 0.5
_MOST_TOGETHER = 4096  # items between two looks at the clock
_SHORT, _LONG = 0.02, 0.2  # seconds that so many items may take
_MOST_TEXT = 8000
_HERE = os.path.join(os.path.dirname(__file__), "")


class Terminated(BaseException):
    """SIGTERM arrived."""


class TaskRunner:
    """Runs tasks one after the other with a writer that stays open.

    Args:
        job: what they share.
        tell: is called now and then with the shard, and the items and bytes that were appended.

    Attributes:
        outcome: of the last task, as far as it came.
    """

    def __init__(self, job: ShardJob, tell: Callable[[int, int, int], None]) -> None:
        self._job = job
        self._tell = tell
        self._writer: ShardWriter | None = None
        self._held = False  # while the writer opens or closes
        self._terminated = False
        self._together = 1

    def run(self, assignment: Assignment) -> Outcome:
        """Write one shard. After an error of any kind the shard is as it was last committed."""
        self._told = began = time.monotonic()
        self._items = self._nbytes = 0
        self.outcome = Outcome("failed")
        try:
            status = self._run(assignment)
        except BaseException:
            self.close()
            raise
        finally:
            self.outcome = self.outcome._replace(seconds=time.monotonic() - began)
        return self.outcome._replace(status=status)

    def close(self) -> None:
        """Roll back what is not committed."""
        self._held = True
        try:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        finally:
            self._held = False

    def terminate(self) -> None:
        """What SIGTERM does: ends the user's code, or else what runs when the writer's call ends.

        Raises:
            Terminated: at once, if the writer is in no call.
        """
        self._terminated = True
        if not (self._held or (self._writer is not None and self._writer.in_call)):
            raise Terminated

    def check_terminated(self) -> None:
        """Raises `Terminated` if SIGTERM arrived while the writer was in a call."""
        if self._terminated:
            raise Terminated

    def _open_writer(self) -> ShardWriter:
        self._held = True
        try:
            if self._writer is None:
                self._writer = self._job.writer()
        finally:
            self._held = False
        self.check_terminated()
        return self._writer

    def _run(self, assignment: Assignment) -> Status:
        writer, (shard, task, text) = self._open_writer(), assignment
        record, length = writer.last_record(shard), writer.length(shard)
        self.outcome = self.outcome._replace(length=length)
        if record is not None:
            check_task(record, text)
            if record.finished:
                return "skipped"
        if not self._job.resume and (record is not None or length):
            raise unfinished(shard, length)
        self._append_all(writer, assignment, self._produced(task, length))
        self._commit(writer, shard, lambda: writer.finish(shard, text))
        return "resumed" if length else "written"

    def _produced(self, task: Any, length: int) -> Iterator[Any]:
        produce = self._job.produce
        produced: Any = produce(task, length) if self._job.resume else produce(task)
        if isinstance(produced, (*NOT_LISTS, np.ndarray)) or not hasattr(produced, "__iter__"):
            raise TypeError(
                f"produce returned {shown(produced)} ({type(produced).__name__}); expected an "
                "iterable of what append takes: write it with yield"
            )
        return iter(produced)

    def _append_all(self, writer: ShardWriter, assignment: Assignment, data: Iterator[Any]) -> None:
        """Append it; with ``resume=True``, commit where commit_bytes are reached or nearly so."""
        most, shard = self._job.options.commit_bytes, assignment.shard
        together, since_commit = 1, 0
        try:
            while True:
                wanted = together if self._job.resume else sys.maxsize
                taken = self._append(writer, shard, data, wanted)
                if taken < wanted:
                    return
                since_commit += taken
                pending = writer.pending_bytes(shard)
                if pending >= most:
                    self._commit(writer, shard, lambda: writer.commit(assignment.text))
                    together, since_commit = 1, 0
                else:
                    likely = (most - pending) * since_commit // max(pending, 1)
                    together = max(1, min(likely, 2 * together, _MOST_TOGETHER))
        finally:
            if isinstance(data, Generator):
                data.close()

    def _append(self, writer: ShardWriter, shard: int, data: Iterator[Any], wanted: int) -> int:
        """Append so many items, or all there are; how many it were."""
        put = _extend if hasattr(writer, "extend") else _append_each
        taken = 0
        began = time.monotonic()
        while taken < wanted:
            together = min(self._together, wanted - taken)
            count = put(writer, shard, islice(data, together), self._items)
            self.check_terminated()
            taken += count
            self._items += count
            now = time.monotonic()
            if now - self._told >= _TELL_EVERY:
                self._told = now
                self._tell(shard, self._items, self._nbytes + writer.pending_bytes(shard))
            if count < together:
                break
            if now - began < _SHORT:
                self._together = min(2 * self._together, _MOST_TOGETHER)
            elif now - began > _LONG:
                self._together = max(1, self._together // 4)
            began = now
        return taken

    def _commit(self, writer: ShardWriter, shard: int, commit: Callable[[], None]) -> None:
        nbytes = self._nbytes + writer.pending_bytes(shard)
        commit()
        self._nbytes = nbytes
        self.outcome = self.outcome._replace(
            items=self._items, length=writer.length(shard), nbytes=nbytes
        )


def _append_each(writer: ShardWriter, shard: int, items: Iterable[Any], before: int) -> int:
    append = writer.append
    count = 0
    try:
        for item in items:
            append(shard, item)
            count += 1
    except BaseException as error:
        error.add_note(f"at item {before + count} of those that produce yielded")
        raise
    return count


def _extend(writer: Any, shard: int, items: Iterable[Any], before: int) -> int:
    length: int = writer.length(shard)
    try:
        writer.extend(shard, items)
    except BaseException as error:
        notes = getattr(error, "__notes__", [])
        if notes and notes[-1].startswith("at document "):  # which it counts from `length` on
            with contextlib.suppress(GuideLoomError):
                count = writer.length(shard) - length  # those before it were appended
                notes[-1] = f"at item {before + count} of those that produce yielded"
        raise
    return int(writer.length(shard)) - length


def check_task(record: CommitRecord, text: str | None) -> None:
    """Compare a task with the one that its shard was made from so far.

    Raises:
        MismatchError: it is another one.
    """
    if record.task is not None and text is not None and record.task != text:
        done = "finished" if record.finished else "begun"
        raise MismatchError(
            f"shard {record.part.shard} was {done} from the task {record.task}, and now its task "
            f"is {text}. Keep the order of the tasks and add new ones at the end, or give them as "
            "a mapping of shard to task"
        )


def unfinished(shard: int, length: int) -> ShardConflictError:
    """The error for a shard that has data and no mark, where a task would start from nothing."""
    return ShardConflictError(
        f"shard {shard} has {length:,} elements or documents and no mark that it is finished; to "
        "start over would write them twice. An earlier run with resume=True wrote them, or "
        "something else: pass resume=True, give the task another shard, or write another dataset"
    )


def failure_text(error: BaseException) -> str:
    """An error as text: what it is in the first line, then its traceback.

    The frames of this package above those of the user's code are left out.
    """
    try:
        first = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  # the error is the user's, and so is its text
        first = type(error).__name__
    if error.__traceback__ is None:
        return _cut(first)
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    trace = error.__traceback__ if trace is None else trace
    text = "".join(traceback.format_exception(type(error), error, trace))
    return f"{_cut(first)}\n\n{_cut(text.rstrip())}"


def _cut(text: str) -> str:
    half = _MOST_TEXT // 2
    return text if len(text) <= _MOST_TEXT else f"{text[:half]}\n…\n{text[-half:]}"

"""The parent's side of the processes of `write_shards`.

The parent waits for pipes and for the ends of processes together, so whatever happens to a process
is noticed at once. A process that is gone takes its task along, and a new one goes on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import Any, Self

from guideloom_format import TaskError
from guideloom_format._processes import how_it_ended, pickled
from guideloom_format._starting import not_started, start
from guideloom_write._progress import Progress
from guideloom_write._task_report import Assignment, Ended, Outcome, ShardJob, parallel_package
from guideloom_write._task_run import failure_text
from guideloom_write._task_worker import GRACE, READY, Worker, serve

_MOST_FALSE_STARTS = 10


class TaskPool:
    """Processes that run tasks; a context manager that ends them.

    Args:
        job: what the tasks share.
        assignments: the tasks.
        workers: the most processes at once.

    Raises:
        MissingPackageError: multiprocess is not installed.
        TypeError: processes must be sent `job`, and it cannot be sent.
    """

    def __init__(self, job: ShardJob, assignments: Sequence[Assignment], workers: int) -> None:
        multiprocess = parallel_package("multiprocess")
        self._wait: Callable[..., list[Any]] = parallel_package("multiprocess.connection").wait
        self._context = multiprocess.get_context(job.options.start_method)
        self._method = job.options.start_method
        self._job = job
        self._sent = job if self._method == "fork" else _pickled(job)
        self._assignments = assignments
        self._waiting = deque(range(len(assignments)))
        self._most = workers
        self._workers: list[Worker] = []
        self._false_starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def run(self, progress: Progress) -> Generator[Ended]:
        """Run all tasks: yields each as it ends.

        Raises:
            TaskError: processes end before they begin.
            WorkerError: the system does not let them start.
        """
        while self._waiting or any(worker.task is not None for worker in self._workers):
            while len(self._workers) < self._most and self._starting() < len(self._waiting):
                self._start()
            objects = [x for worker in self._workers for x in (worker.connection, *worker.ends)]
            ready = set(self._wait(objects, progress.wait_seconds()))
            progress.draw()
            for worker in self._workers.copy():
                if ready.intersection((worker.connection, *worker.ends)):
                    yield from self._hear(worker, progress)
        for worker in self._workers:
            with contextlib.suppress(OSError):
                worker.connection.send(None)
        self._wait_for_ends(GRACE)

    def stop(self) -> None:
        """End all processes; what they have not committed is rolled back."""
        deadline = time.monotonic() + GRACE
        try:
            while self._running() and time.monotonic() < deadline:
                for worker in self._workers:
                    worker.send_signal(signal.SIGTERM)
                self._wait_for_ends(1.0)
        finally:
            for worker in self._running():
                worker.send_signal(signal.SIGKILL)
            self._wait_for_ends(GRACE)
            while self._workers:
                self._workers.pop().close()

    def _start(self) -> None:
        try:
            mine, theirs = self._context.Pipe()
            try:
                process = self._process(mine, theirs)
                start(process, self._method, lambda: self._workers.append(Worker(process, mine)))
            except BaseException:
                mine.close()
                raise
            finally:
                theirs.close()
        except (OSError, EOFError, MemoryError) as error:
            what = f"the {self._most} processes of write_shards"
            raise not_started(error, what, len(self._workers)) from error

    def _process(self, mine: Any, theirs: Any) -> Any:
        """One that has one end of a pipe, and not the other."""
        forked = self._method == "fork"
        return self._context.Process(
            target=serve,
            args=(
                theirs,
                self._sent,
                self._assignments if forked else None,
                os.getpid(),
                [mine, *(worker.connection for worker in self._workers)] if forked else [],
            ),
            name="write_shards",
        )

    def _starting(self) -> int:
        return sum(not worker.ready for worker in self._workers)

    def _running(self) -> list[Worker]:
        return [worker for worker in self._workers if not self._wait(worker.ends, 0)]

    def _wait_for_ends(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (running := self._running()) and (left := deadline - time.monotonic()) > 0:
            self._wait([end for worker in running for end in worker.ends], left)

    def _hear(self, worker: Worker, progress: Progress) -> Generator[Ended]:
        """Take in what a worker sent, and its end."""
        gone = bool(self._wait(worker.ends, 0))  # if so, all that it sent is there
        try:
            while worker.connection.poll():
                message = worker.connection.recv()
                if message == READY:
                    worker.ready = True
                elif not isinstance(message, Outcome):
                    progress.running(*message)
                elif worker.task is not None:
                    assignment, worker.task = self._assignments[worker.task], None
                    self._false_starts = 0
                    yield Ended(assignment, message)
                if worker.task is None and not gone:
                    yield from self._assign(worker)
        except (EOFError, OSError):
            gone = True
        if gone:
            yield from self._bury(worker)

    def _assign(self, worker: Worker) -> Generator[Ended]:
        """Give a worker its next task."""
        while self._waiting and worker.task is None:
            number = self._waiting.popleft()
            assignment = self._assignments[number]
            try:
                worker.connection.send(number if self._method == "fork" else assignment)
            except OSError:  # it is gone
                self._waiting.appendleft(number)
                return
            except Exception as error:  # noqa: BLE001  # whatever pickling a task raises
                yield Ended(assignment, Outcome("failed", error=failure_text(error)), error)
            else:
                worker.task, worker.began = number, time.monotonic()

    def _bury(self, worker: Worker) -> Generator[Ended]:
        """A worker is gone, with the task that it had."""
        self._wait(worker.ends, GRACE)
        worker.send_signal(signal.SIGKILL)  # if it closed the pipe and lives on
        self._wait(worker.ends, GRACE)
        self._workers.remove(worker)
        code = worker.close()
        how = how_it_ended(worker.pid, code)
        if worker.task is not None:
            assignment = self._assignments[worker.task]
            yield Ended(assignment, self._lost(assignment, worker.began, how))
            return
        self._false_starts += 1
        if self._false_starts >= _MOST_FALSE_STARTS or (code is not None and code >= 0):
            raise TaskError(
                f"no task could be started: {how}, perhaps with more to read on stderr. With the "
                'start_method "spawn" or "forkserver" everything that a script does must be below '
                'its line `if __name__ == "__main__":`'
            )

    def _lost(self, assignment: Assignment, began: float, how: str) -> Outcome:
        """What a task came to whose process is gone: perhaps it had just finished its shard."""
        shard = assignment.shard
        with contextlib.closing(self._job.writer()) as writer:
            record, length = writer.last_record(shard), writer.length(shard)
        if record is not None and record.finished:
            return Outcome("written", length=length, seconds=time.monotonic() - began)
        return Outcome("failed", length=length, seconds=time.monotonic() - began, error=how)


def _pickled(job: ShardJob) -> bytes:
    pickler = parallel_package("multiprocess.reduction").ForkingPickler
    return pickled(pickler, job, "storage or produce")

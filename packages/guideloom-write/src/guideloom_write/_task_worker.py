"""The processes of `write_shards`: each is sent one task after the other.

::

    parent   ──  number of a task, or the task; None at the end  ─>   worker
             <─  READY, (shard, items, bytes) now and then, an Outcome  ──

A worker never outlives its parent. Told to end by SIGTERM it rolls back what is not committed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

from guideloom_write._task_report import Assignment, Outcome, ShardJob, parallel_package
from guideloom_write._task_run import TaskRunner, failure_text

READY = "ready"
GRACE = 5.0  # seconds for a process to roll back


class Worker:
    """A process as its parent knows it.

    Attributes:
        pid: its number.
        connection: to it; see `_task_worker`.
        task: the number of the one that it runs, or None.
        ready: whether it has said so.
        began: when it was sent its task.
    """

    def __init__(self, process: Any, connection: Any) -> None:
        self._process = process
        self.pid: int = process.pid
        self.connection = connection
        self.task: int | None = None
        self.ready = False
        self.began = 0.0
        self._pidfd = -1
        with contextlib.suppress(OSError):
            self._pidfd = os.pidfd_open(self.pid)
        # a process that the worker forked may keep the sentinel open
        self.ends = [process.sentinel, *([self._pidfd] if self._pidfd >= 0 else [])]

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, if the process is still there."""
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)
            elif self._process.exitcode is None:
                os.kill(self.pid, number)

    def close(self) -> int | None:
        """Forget the process, which must have ended; its exit code, as far as it is known."""
        if self._process.exitcode is None:  # the fork server tells a little later
            self._process.join(1.0)
        code: int | None = self._process.exitcode
        self.connection.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
        with contextlib.suppress(ValueError):
            self._process.close()
        return code


def how_it_ended(pid: int, code: int | None) -> str:
    """What a process's exit code says."""
    who = f"the worker process (pid {pid})"
    if code is None:
        return f"{who} is gone, the system did not say how"
    if code >= 0:
        return f"{who} ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else "unknown"
    why = ", as the system does when memory runs out" if -code == signal.SIGKILL else ""
    return f"{who} was killed by signal {-code} ({name}){why}"


class _Terminated(BaseException):
    """SIGTERM arrived."""


def serve(
    connection: Any,
    sent: ShardJob | bytes,
    assignments: Sequence[Assignment] | None,
    parent: int,
    inherited: Sequence[Any],
) -> None:
    """What a worker process does: says that it is ready, and runs the tasks that it is sent.

    Args:
        connection: to the parent, which sends tasks, or numbers of them, and None at the end.
        sent: what the tasks share; pickled if this process was not forked.
        assignments: the tasks, if this process was forked and has them.
        parent: process id of the parent.
        inherited: connections of the parent that a forked process must not hold open.
    """
    for other in inherited:
        other.close()
    pickler = parallel_package("multiprocess.reduction").ForkingPickler
    job: ShardJob = pickler.loads(sent) if isinstance(sent, bytes) else sent
    runner = TaskRunner(job, lambda *told: connection.send(told))
    try:
        try:
            _obey_signals()
            threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
            connection.send(READY)
            while (message := connection.recv()) is not None:
                assignment = message if assignments is None else assignments[message]
                connection.send(_outcome(runner, assignment))
        finally:
            runner.close()
    except _Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        runner.close()
        _end_by(signal.SIGTERM)
    except (EOFError, ConnectionError):  # the parent is gone
        os._exit(1)


def _outcome(runner: TaskRunner, assignment: Assignment) -> Outcome:
    try:
        return runner.run(assignment)
    except _Terminated:
        raise
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is the task's
        return runner.outcome._replace(error=failure_text(error))


def _obey_signals() -> None:
    """Ctrl-C is the parent's affair; SIGTERM rolls back and ends."""
    mine = os.getpid()

    def terminate(number: int, frame: object) -> NoReturn:
        del number, frame
        if os.getpid() != mine:  # a process that the user's code forked
            _end_by(signal.SIGTERM)
        raise _Terminated

    signal.set_wakeup_fd(-1)  # of an event loop of the parent
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, terminate)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})


def _end_by(number: signal.Signals) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(1)


def _end_with(parent: int) -> None:
    """Wait until the parent is gone; then end this process, whatever it does."""
    multiprocess = parallel_package("multiprocess")
    watched = [multiprocess.parent_process().sentinel]
    with contextlib.suppress(OSError):
        watched.append(os.pidfd_open(parent))
    multiprocess.connection.wait(watched)
    patience = threading.Event()
    for _ in range(int(GRACE)):
        os.kill(os.getpid(), signal.SIGTERM)
        patience.wait(1)
    os._exit(1)

"""The processes of `write_shards`: each is sent one task after the other.

::

    parent   ──  number of a task, or the task; None at the end  ─>   worker
             <─  READY, (shard, items, bytes) now and then, an Outcome  ──

A worker never outlives its parent. Told to end by SIGTERM it rolls back what is not committed; not
in the middle of a call of its writer, which could leave files behind that nobody knows of.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
from collections.abc import Sequence
from typing import Any

from guideloom_format._processes import Child, end_by, obey_signals, wait_until_gone
from guideloom_write._task_report import Assignment, Outcome, ShardJob, parallel_package
from guideloom_write._task_run import TaskRunner, Terminated, failure_text

READY = "ready"
GRACE = 5.0  # seconds for a process to roll back


class Worker(Child):
    """A process that runs tasks, as its parent knows it.

    Attributes:
        task: the number of the one that it runs, or None.
        ready: whether it has said so.
        began: when it was sent its task.
    """

    def __init__(self, process: Any, connection: Any) -> None:
        super().__init__(process, connection)
        self.task: int | None = None
        self.ready = False
        self.began = 0.0


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
            obey_signals(runner.terminate)
            _thread.start_new_thread(_end_with, (parent,))  # needs not wait for it
            connection.send(READY)
            while (message := connection.recv()) is not None:
                assignment = message if assignments is None else assignments[message]
                connection.send(_outcome(runner, assignment))
                runner.check_terminated()
        finally:
            runner.close()
    except Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        runner.close()
        end_by(signal.SIGTERM)
    except (EOFError, ConnectionError):  # the parent is gone
        os._exit(1)


def _outcome(runner: TaskRunner, assignment: Assignment) -> Outcome:
    try:
        return runner.run(assignment)
    except Terminated:
        raise
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is the task's
        return runner.outcome._replace(error=failure_text(error))


def _end_with(parent: int) -> None:
    """Wait until the parent is gone; then end this process, whatever it does."""
    wait_until_gone(parent, parallel_package("multiprocess").parent_process().sentinel)
    patience = threading.Event()
    for _ in range(int(GRACE)):
        os.kill(os.getpid(), signal.SIGTERM)
        patience.wait(1)
    os._exit(1)

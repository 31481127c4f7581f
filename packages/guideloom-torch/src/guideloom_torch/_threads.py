"""Threads that load: daemons, and yet not killed in the middle when the process ends.

Python stops a daemon thread at exit by unwinding it where it next asks for the interpreter. Within
C++ code, such as torch's, that aborts the process. So at exit the threads get no more tasks and
are waited for; a load that does not return within the time keeps nobody from leaving.
"""

from __future__ import annotations

import atexit
import functools
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

EXIT_SECONDS = 1.5

Task = tuple[Future[Any], Callable[[Any], Any], Any]
Tasks = SimpleQueue[Task | None]

_running: weakref.WeakKeyDictionary[Thread, Tasks] = weakref.WeakKeyDictionary()


def start_threads(tasks: Tasks, count: int) -> None:
    """Start threads that work on the tasks, each until it gets None."""
    _wait_at_exit()
    for k in range(count):
        thread = Thread(target=_work, args=(tasks,), name=f"guideloom-loader-{k}", daemon=True)
        _running[thread] = tasks
        thread.start()


@functools.cache
def _wait_at_exit() -> None:
    atexit.register(_end_threads)


def _end_threads() -> None:
    """No more tasks; wait until those that are worked on are done, or the time is over."""
    deadline = time.monotonic() + EXIT_SECONDS
    alive = [(thread, tasks) for thread, tasks in list(_running.items()) if thread.is_alive()]
    for _, tasks in alive:
        _drop_waiting(tasks)
    for _, tasks in alive:
        tasks.put(None)
    for thread, _ in alive:
        thread.join(max(0.0, deadline - time.monotonic()))


def _drop_waiting(tasks: Tasks) -> None:
    while True:
        try:
            task = tasks.get_nowait()
        except Empty:
            return
        if task is not None:
            task[0].cancel()


def _work(tasks: Tasks) -> None:
    """A thread's life."""
    while (task := tasks.get()) is not None:
        future, function, item = task
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function(item))
            except BaseException as error:  # noqa: BLE001  # next() raises it
                future.set_exception(error)
        del task, future, function, item  # hold nothing while waiting

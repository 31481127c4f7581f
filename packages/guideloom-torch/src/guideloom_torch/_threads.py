"""Threads that load: daemons, and yet not killed in the middle when the process ends.

Python stops a daemon thread at exit by unwinding it where it next asks for the interpreter. Within
C++ code, such as torch's, that aborts the process. So at exit the threads get no more tasks and
are waited for; a load that does not return within the time keeps nobody from leaving.
"""

from __future__ import annotations

import atexit
import functools
import signal
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from guideloom_format._processes import signals_blocked
from guideloom_torch._promise import Promise

EXIT_SECONDS = 1.5

Task = tuple[Promise, Callable[[Any], Any], Any]
Tasks = SimpleQueue[Task | None]

_ended: list[bool] = []  # has one as soon as no thread shall begin any more
_running: weakref.WeakKeyDictionary[Thread, Tasks] = weakref.WeakKeyDictionary()


def start_threads(tasks: Tasks, count: int) -> None:
    """Start threads that work on the tasks, each until it gets None.

    Raises:
        RuntimeError: the interpreter ends, and nobody would wait for them.
    """
    _wait_at_exit()
    if _ended:
        raise _exiting()
    for k in range(count):
        start_thread(functools.partial(_work, tasks), f"guideloom-loader-{k}", tasks)


def start_thread(life: Callable[[], None], name: str, tasks: Tasks | None = None) -> None:
    """Start a daemon thread; waited for at exit if it has tasks.

    No signal handler comes in between: an exception of one, a Ctrl-C, within `Thread.start` would
    leave a thread behind that dies or waits for ever.
    """

    def with_signals() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # which what it starts would inherit
        life()

    with signals_blocked(signal.valid_signals()) as before:
        thread = Thread(target=with_signals, name=name, daemon=True)
        if tasks is not None:
            _running[thread] = tasks
        thread.start()


@functools.cache
def _wait_at_exit() -> None:
    atexit.register(_end_threads)


def _end_threads() -> None:
    """No more tasks; wait until those that are worked on are done, or the time is over."""
    _ended.append(True)
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
            task[0].cancel(_exiting)


def _exiting() -> RuntimeError:
    return RuntimeError("the interpreter is ending; the loader loads no more batches")


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

"""Threads that load: daemons, and yet not killed in the middle when the process ends.

Python stops a daemon thread at exit by unwinding it where it next asks for the interpreter. Within
C++ code, such as torch's, that aborts the process. So at exit the threads get no more tasks and
are waited for; a load that does not return within the time keeps nobody from leaving.
"""

from __future__ import annotations

import _thread
import atexit
import functools
import mmap
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from guideloom_torch._promise import Promise

EXIT_SECONDS = 1.5
STACK_BYTES = 8 << 20  # as it is usual; what is taken of it is what a thread comes to use
BEGIN_BYTES = 8 << 20

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
        thread = new_thread(functools.partial(_work, tasks), f"guideloom-loader-{k}")
        _running[thread] = tasks
        start_thread(thread)


def new_thread(life: Callable[[], None], name: str) -> Thread:
    """A daemon thread, not started, see `start_thread`."""
    return Thread(target=life, name=name, daemon=True)


def start_thread(thread: Thread) -> None:
    """Start a thread: it begins and runs, or there is an error and no thread.

    Within `Thread.start` an exception of a signal handler, a Ctrl-C, would leave a thread behind
    that dies or waits for ever. Handlers run in the main thread alone, so another one starts it,
    which itself is started by one call in C. And Python waits for ever for a thread that has a
    stack and no memory beside it to begin with (CPython issue 140746), so that there is memory for
    both is tried before.

    Raises:
        RuntimeError: the system starts no more threads, or has no memory for one.
    """
    stack = threading.stack_size() or STACK_BYTES
    try:
        mmap.mmap(-1, 2 * (stack + BEGIN_BYTES), mmap.MAP_PRIVATE).close()
    except OSError as error:
        raise RuntimeError(f"can't start new thread: {error.strerror}") from error
    started, over = Promise(), [False]
    _thread.start_new_thread(_start, (thread, started, over))
    try:
        started.result()
    finally:  # after an interrupt as well, so that whoever ends the thread finds it alive
        while not over[0]:
            time.sleep(0.0001)


def _start(thread: Thread, started: Promise, over: list[bool]) -> None:
    try:
        thread.start()
    except BaseException as error:  # noqa: BLE001  # for who waits
        started.set_exception(error)
    else:
        started.set_result(None)
    finally:
        over[0] = True


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

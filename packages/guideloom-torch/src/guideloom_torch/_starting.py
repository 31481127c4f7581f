"""Starting a process that loads batches, and what is said when the system does not let it."""

from __future__ import annotations

import errno
import os
import warnings
from typing import Any

from guideloom_format import WorkerError
from guideloom_format._processes import StartMethod, fork_server_folder, start_of_process

_FEWER = (
    "the system lets this process start no more of them, or has no memory for one; use fewer "
    "num_workers, or raise the limit (ulimit -u, pids.max of the control group)"
)
_FILES = (
    "this process has too many open files; close some, or raise the limit (ulimit -n). A worker "
    "takes four, and some more while it starts"
)


def see_that_it_may(workers: int) -> None:
    """See that this process may have others.

    Raises:
        WorkerError: it is itself one that loads batches, or another daemonic one.
    """
    from multiprocess import current_process

    here = current_process()
    if here.daemon:
        raise WorkerError(
            f"{_of(workers)} cannot be started by {here.name} (pid {os.getpid()}), which is "
            "daemonic, as processes that load batches are, and may not have processes of its own; "
            'load with num_workers=0 or parallel_method="thread" there'
        )


def start(process: Any, method: StartMethod) -> None:
    """Start a process of multiprocess."""
    with start_of_process(method), warnings.catch_warnings():
        # to fork beside threads is the caller's choice, see `start_method`
        warnings.filterwarnings("ignore", "This process", DeprecationWarning)
        try:
            process.start()
        except ConnectionError:  # the fork server is just ending
            if method != "forkserver":
                raise
            fork_server_folder(anew=True)
            process.start()


def not_started(error: Exception, started: int, workers: int) -> WorkerError:
    """What is raised in place of an error of the system.

    Args:
        error: it.
        started: how many processes were started before.
        workers: how many were to be started.
    """
    where = f"after {started} of them" if started else "not even the first"
    return WorkerError(
        f"{_of(workers)} could not be started, {where} ({type(error).__name__}: {error}): "
        f"{_advice(error)}"
    )


def _of(workers: int) -> str:
    return f"the {workers} worker process{'es' if workers > 1 else ''} of a loader"


def _advice(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number in (errno.EMFILE, errno.ENFILE):
        return _FILES
    if number in (errno.EAGAIN, errno.ENOMEM) or isinstance(error, RuntimeError | MemoryError):
        return _FEWER
    if "AF_UNIX path too long" in str(error):
        return (
            "the fork server listens in a folder for temporary files, whose name may have some 70 "
            'bytes; set TMPDIR to one with a shorter name, or pass start_method="fork" or "spawn"'
        )
    try:
        os.getcwd()
    except OSError:
        return (
            "the folder in which this process works is gone, where processes that begin anew work "
            'as well; go to another with os.chdir, or pass start_method="fork"'
        )
    if isinstance(error, EOFError):
        return f"the process ended at once, perhaps with more to read on stderr; {_FEWER}"
    return "the error of the system is this one's cause; see that TMPDIR is there"

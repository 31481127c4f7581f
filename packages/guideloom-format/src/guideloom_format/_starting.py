"""Starting a process, and what is said when the system does not let it."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Callable
from typing import Any

from guideloom_format._errors import WorkerError
from guideloom_format._processes import StartMethod, fork_server_folder, start_of_process

_FEWER = (
    "the system lets this process start no more of them, or has no memory for one; use fewer "
    "of them, or raise the limit (ulimit -u, pids.max of the control group)"
)
_FILES = (
    "this process has too many open files; close some, or raise the limit (ulimit -n). A worker "
    "takes four, and some more while it starts"
)


def start(process: Any, method: StartMethod, started: Callable[[], None]) -> None:
    """Start a process of multiprocess.

    Args:
        process: to start.
        method: by which it starts.
        started: called at once, before a Ctrl-C could part the process from who ends it.
    """
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
        started()


def not_started(error: Exception, what: str, started: int) -> WorkerError:
    """What is raised in place of an error of the system.

    Args:
        error: it.
        what: was to be started, such as "the 2 worker processes of a loader".
        started: how many of these were started before.
    """
    where = f"after {started} of them" if started else "not even the first"
    return WorkerError(
        f"{what} could not be started, {where} ({type(error).__name__}: {error}): {_advice(error)}"
    )


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

"""Processes that work for a parent: what it knows of them, and how none outlives it.

The packages that start processes do so with `multiprocess`, which sends lambdas and closures as
well. Nothing here imports it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

StartMethod = Literal["fork", "forkserver", "spawn"]


def check_start_method(value: Any) -> StartMethod:
    """`value`, if it is one.

    Raises:
        ValueError: it is not.
    """
    if value not in get_args(StartMethod):
        raise ValueError(f'start_method is {value!r}; expected "fork", "forkserver" or "spawn"')
    method: StartMethod = value
    return method


def wait(objects: list[Any], seconds: float | None) -> list[Any]:
    """`multiprocessing.connection.wait`, imported when it is needed."""
    from multiprocessing.connection import wait as wait_for

    return wait_for(objects, seconds)


class Child:
    """A process as its parent knows it.

    Args:
        process: one of multiprocess, started.
        connection: to it.

    Attributes:
        pid: its number.
        connection: to it.
        ends: what `multiprocessing.connection.wait` reports once it is gone.
    """

    def __init__(self, process: Any, connection: Any) -> None:
        self._process = process
        self.pid: int = process.pid
        self.connection = connection
        self._pidfd = -1
        with contextlib.suppress(OSError):
            self._pidfd = os.pidfd_open(self.pid)
        # a process that the child forked may keep the sentinel open
        self.ends = [process.sentinel, *([self._pidfd] if self._pidfd >= 0 else [])]

    def is_gone(self, seconds: float = 0.0) -> bool:
        """Whether it has ended, now or within so many seconds."""
        return bool(wait(self.ends, seconds))

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
            self._pidfd = -1
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


def wait_until_gone(parent: int, sentinel: int) -> bool:
    """In a child: return when the parent is gone; True if that is certain.

    Args:
        parent: its process id.
        sentinel: ``multiprocess.parent_process().sentinel``; of the fork server, if there is one.
    """
    watched = [sentinel]
    with contextlib.suppress(OSError):
        watched.append(os.pidfd_open(parent))
    wait(watched, None)
    return bool(wait(watched[1:], 1.0))


@contextlib.contextmanager
def signals_held_back(method: StartMethod) -> Iterator[None]:
    """A new process gets no signal before it can obey it; the fork server is left as it is."""
    held = set() if method == "forkserver" else {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def obey_signals(on_terminate: Callable[[], None] | None = None) -> None:
    """In a child: Ctrl-C is the parent's affair; SIGTERM ends it, or calls the function.

    A process that the child forks is ended by SIGTERM in any case.
    """
    mine = os.getpid()

    def terminate(number: int, frame: object) -> None:
        del number, frame
        if on_terminate is None or os.getpid() != mine:
            end_by(signal.SIGTERM)
        else:
            on_terminate()

    signal.set_wakeup_fd(-1)  # of an event loop of the parent
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, terminate)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})


def end_by(number: signal.Signals) -> None:
    """End this process by a signal."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(1)


def pickled(pickler: Any, value: Any, what: str) -> bytes:
    """What a process is sent that begins anew.

    Where it cannot load the caller's main module, in a notebook, it is sent what functions use.

    Args:
        pickler: ``multiprocess.reduction.ForkingPickler``.
        value: to send.
        what: of the user's is in it, for the message.

    Raises:
        TypeError: it cannot be pickled.
    """
    alone = not hasattr(sys.modules["__main__"], "__file__")
    try:
        return bytes(pickler.dumps(value, recurse=alone))
    except Exception as error:
        raise TypeError(
            f"{what} cannot be sent to a process ({type(error).__name__}: {error}); "
            'start_method="fork" needs not send them'
        ) from error

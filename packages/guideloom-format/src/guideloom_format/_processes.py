"""Processes that work for a parent: what it knows of them, and how none outlives it.

The packages that start processes do so with `multiprocess`, which sends lambdas and closures as
well. Nothing here imports it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import shutil
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, cast, get_args

from guideloom_format._integers import shown

StartMethod = Literal["fork", "forkserver", "spawn"]


def check_start_method(value: Any) -> StartMethod:
    """`value`, if it is one.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(value, str) or value not in get_args(StartMethod):
        raise ValueError(
            f'start_method is {shown(value)}; expected "fork", "forkserver" or "spawn"'
        )
    return cast(StartMethod, value)


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
        # what `close` needs is imported now: it may be called while another import is under way
        import multiprocess.connection  # noqa: F401

        self._process = process
        _drop_in_forks()
        _started.add(process)
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


_started: weakref.WeakSet[Any] = weakref.WeakSet()


@functools.cache
def _drop_in_forks() -> None:
    """Multiprocess would have a process that `os.fork` made end its parent's processes."""
    os.register_at_fork(after_in_child=_drop)


def _drop() -> None:
    from multiprocess import process

    for one in list(_started):
        process._children.discard(one)
    _started.clear()


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
def start_of_process(method: StartMethod) -> Iterator[None]:
    """What is to be so while a process is started.

    A new process gets no signal before it can obey it; the fork server is left as it is. A process
    that begins anew does not look for a main module that it cannot load.
    """
    if method == "forkserver":
        fork_server_folder()
    main = sys.modules["__main__"]
    name = getattr(main, "__file__", None)
    hidden = method != "fork" and name is not None and not os.path.isfile(name)
    if hidden:  # it is "<stdin>", say
        del main.__file__
    try:
        held = () if method == "forkserver" else (signal.SIGINT, signal.SIGTERM)
        with signals_blocked(held):
            yield
    finally:
        if hidden:
            main.__file__ = name


# The function in C: no handler of a signal comes between the call and what it does. Behind it one
# may, and raise, with the signals blocked.
_set_mask = inspect.unwrap(signal.pthread_sigmask)


@contextlib.contextmanager
def signals_blocked(signals: Iterable[int]) -> Iterator[set[int]]:
    """Block these signals in this thread, whatever handlers raise; those that were, before."""
    before: set[int] = _set_mask(signal.SIG_BLOCK, ())
    try:
        _set_mask(signal.SIG_BLOCK, signals)
        yield before
    finally:
        _set_mask(signal.SIG_SETMASK, before)


def fork_server_folder(*, anew: bool = False) -> str:
    """Where multiprocess's fork server listens, which this process removes unless it is killed.

    multiprocess takes the server and its folder for granted. The folder may have been cleaned away;
    or this process was forked from the one whose server it is, and cannot wait for it. Then the
    next process is started by a new server.

    Args:
        anew: it is certain that this server starts no process any more.
    """
    from multiprocess import forkserver, process, util

    config, mine = process.current_process()._config, os.getpid()
    folder = config.get("tempdir")
    finalizers = list(util._finalizer_registry.values())
    is_mine = any(one._pid == mine and folder in (one._args or ()) for one in finalizers)
    if folder is not None and not (is_mine and os.path.isdir(folder)):
        config["tempdir"] = folder = None
    if folder is None:
        _remove_at_the_end_of_a_child(util.get_temp_dir())
    server = forkserver._forkserver
    with server._lock:
        pid, address = server._forkserver_pid, server._forkserver_address
        if pid is not None and (anew or not (_runs(pid) and os.path.exists(address))):
            os.close(server._forkserver_alive_fd)  # it ends with the last of its processes
            server._forkserver_pid = server._forkserver_alive_fd = None
            server._forkserver_address = None
    found: str = util.get_temp_dir()
    return found


def _runs(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return False


def _remove_at_the_end_of_a_child(folder: str) -> None:
    """One of `multiprocessing` ends without what multiprocess has put off until its end."""
    from multiprocessing import parent_process
    from multiprocessing.util import Finalize

    if parent_process() is not None:
        late, how = -100, {"ignore_errors": True}
        Finalize(None, shutil.rmtree, args=(folder,), kwargs=how, exitpriority=late)


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
    _sending.now = True
    try:
        return bytes(pickler.dumps(value, recurse=not _main_is_loaded_anew()))
    except Exception as error:
        raise TypeError(
            f"{what} cannot be sent to a process ({type(error).__name__}: {error}); "
            'start_method="fork" needs not send them'
        ) from error
    finally:
        _sending.now = False


_sending = threading.local()


def is_sending() -> bool:
    """Whether this thread is in `pickled`: what is pickled goes along and stays unused there."""
    return getattr(_sending, "now", False)


def _main_is_loaded_anew() -> bool:
    """Whether a process that begins anew has what is defined in this one's main module."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:  # `python -m`; a package, a folder or an archive has a ``__main__``
        return str(spec.name).rpartition(".")[2] != "__main__"
    script = os.path.splitext(os.path.basename(file or ""))[0]
    return file is not None and os.path.isfile(file) and script != "ipython"

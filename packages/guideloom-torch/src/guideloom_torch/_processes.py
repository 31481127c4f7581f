"""The parent's side of worker processes, which stay from epoch to epoch.

::

    training loop    submit(step) ── the worker with the fewest steps ──>  workers
                     a future     <── one thread takes in what they send, and notices their ends

A worker that is gone takes its steps along: their futures get the error.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import socket
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import wait
from typing import Any

from guideloom_format import EpochPlan, WorkerError
from guideloom_format._processes import (
    StartMethod,
    how_it_ended,
    pickled,
    signals_held_back,
)
from guideloom_torch._reads import NO_READS, Reads
from guideloom_torch._steps import describe
from guideloom_torch._transfer import loads, receive, unpack
from guideloom_torch._worker import (
    BATCH,
    HEAD,
    NO_STEP,
    READING,
    READY,
    Answer,
    Job,
    SentError,
    serve,
)
from guideloom_torch._worker_handle import Finish, Given, WorkerHandle

GRACE = 1.0  # seconds for a process to end by itself


class _Crew:
    """The workers, as the thread that hears them and the pool share them."""

    def __init__(self, advice: str) -> None:
        # a signal handler, or the garbage collector, may close a pool wherever a thread is
        self.lock = threading.RLock()
        self.workers: list[WorkerHandle] = []
        self.reads_before = NO_READS  # of workers that are gone
        # not the error itself: its traceback would keep the pool for as long as the thread runs
        self.error: Callable[[], BaseException] | None = None
        self._advice = advice
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._over = False

    def stop(self) -> None:
        """End `run`."""
        with self.lock:
            if not self._over:  # later, the number may be that of a file of others
                self._over = True
                os.eventfd_write(self._wake, 1)

    def forget(self) -> None:
        """After `stop`, and after `run` if that was called."""
        with self.lock:
            wake, self._wake = self._wake, -1
            if wake >= 0:
                os.close(wake)

    def run(self) -> None:
        """Hear the workers until `stop`."""
        while not self._over:
            workers = self.workers.copy()
            objects = [x for worker in workers for x in (worker.connection, *worker.ends)]
            ready = set(wait([self._wake, *objects]))
            for worker in workers:
                gone = bool(ready.intersection(worker.ends))  # if so, all that it sent is there
                if not self._over and (gone or worker.connection in ready):
                    self._hear(worker, gone)
        self.forget()

    def _hear(self, worker: WorkerHandle, gone: bool) -> None:
        try:
            while not gone or wait([worker.connection], 0):
                received = receive(worker.connection, HEAD.size)
                if received is None:
                    gone = True
                    break
                self._take(worker, *received)
                if not gone:
                    return
        except OSError:
            gone = True
        if gone:
            self._bury(worker)

    def _take(self, worker: WorkerHandle, head: bytes, data: bytes, descriptor: int | None) -> None:
        kind, step = HEAD.unpack(head)
        if kind == READY:
            worker.ready = True
            return
        if kind == READING:
            worker.reads_now(loads(data))
            return
        value: Any = None
        reads = worker.reads
        error: BaseException | None = None
        try:
            value, reads = Answer._make(unpack(data, descriptor))
            if kind != BATCH:
                error = _raised(worker, value)
        except BaseException as failed:  # noqa: BLE001  # the step's future gets it
            error = failed
        if step == NO_STEP:
            text = f"{worker.name} sent what cannot be received: {error!r}"
            told = isinstance(value, SentError)
            reason = functools.partial(_raised, worker, value) if told else None
            self._fail(worker, reason or functools.partial(WorkerError, text))
            return
        with self.lock:
            if not worker.told:  # the pool was closed meanwhile
                return
            given = worker.told.popleft()
            worker.answered(reads)
            worker.tell()
        if not given.future.set_running_or_notify_cancel():
            return
        try:
            if error is None:
                value = given.finish(value)
        except BaseException as failed:  # noqa: BLE001
            failed.add_note(f"while placing {describe(given.plan, given.step)}")
            error = failed
        if error is None:
            given.future.set_result(value)
        else:
            given.future.set_exception(error)

    def _bury(self, worker: WorkerHandle) -> None:
        if not worker.is_gone(GRACE):  # it closed the socket and lives on
            worker.send_signal(signal.SIGKILL)
            worker.is_gone(GRACE)
        first = worker.told[0] if worker.told else None
        what = f" while it loaded {describe(first.plan, first.step)}" if first else ""
        code = worker.close()
        advice = self._advice if code is not None and code > 0 else ""
        how = f"{how_it_ended(worker.pid, code)}, {worker.name}{what}{advice}"
        with self.lock:
            self.workers = [other for other in self.workers if other is not worker]
            self.reads_before = self.reads_before.plus(worker.reads)
        self._fail(worker, functools.partial(WorkerError, how))

    def _fail(self, worker: WorkerHandle, error: Callable[[], BaseException]) -> None:
        """A worker's steps are lost, and the pool takes no more."""
        with self.lock:
            self.error = self.error or error
            worker.lose(self.error)


class WorkerPool:
    """Processes that load batches, until `close`.

    Args:
        job: what they share.
        workers: how many, at least 1.
        start_method: see `StartMethod`.

    Raises:
        TypeError: they must be sent `job`, and it cannot be sent.
    """

    def __init__(self, job: Job, workers: int, start_method: StartMethod) -> None:
        import multiprocess
        from multiprocess.reduction import ForkingPickler

        self._context = multiprocess.get_context(start_method)
        if start_method == "forkserver":  # imported once, if no server runs yet
            self._context.set_forkserver_preload(["__main__", "guideloom_torch._worker"])
        self._method: StartMethod = start_method
        forked = start_method == "fork"
        self._sent = job if forked else pickled(ForkingPickler, job, "dataset or collate_fn")
        self._process = os.getpid()
        self._number = 0
        advice = (
            '. There may be more to read on stderr. With start_method "spawn" or "forkserver" all '
            'that a script does must be below its line `if __name__ == "__main__":`'
        )
        self._crew = _Crew("" if forked else advice)
        self._thread = threading.Thread(
            target=self._crew.run, name="guideloom-loader-receiver", daemon=True
        )
        try:
            for k in range(workers):
                self._start(k)
        except BaseException:
            self.close()
            raise
        self._thread.start()
        _close_at_exit()
        _open.add(self)

    @property
    def is_whole(self) -> bool:
        """Whether it is of this process, open, and all workers are there."""
        crew = self._crew
        return self._process == os.getpid() and crew.error is None and bool(crew.workers)

    def begin(self) -> int:
        """A new plan; its number. Steps of older ones are dropped where they were not begun."""
        self._number += 1
        return self._number

    def submit(self, number: int, plan: EpochPlan, step: int, finish: Finish) -> Future[Any]:
        """Have a step loaded; the future of what `finish` makes of the batch.

        `finish` is called by the thread that hears all workers.
        """
        future: Future[Any] = Future()
        crew = self._crew
        with crew.lock:
            if crew.error is not None or not crew.workers:
                future.set_exception((crew.error or _closed)())
                return future
            worker = min(crew.workers, key=lambda one: len(one.told) + len(one.waiting))
            worker.waiting.append(Given(plan, number, step, future, finish))
            worker.tell()
            if not crew.workers:  # closed by a signal handler, say, within the lines above
                worker.lose(_closed)
        return future

    def give_up(self, reason: str) -> None:
        """Take no more steps: a worker that hangs is not to be used again."""
        with self._crew.lock:
            self._crew.error = self._crew.error or functools.partial(WorkerError, reason)

    def at_work(self) -> str:
        """What the workers do, in words."""
        with self._crew.lock:
            return "; ".join(worker.shown() for worker in self._crew.workers if worker.told)

    def reads(self) -> Reads:
        """What the workers had read of the dataset when they last answered."""
        with self._crew.lock:
            return functools.reduce(
                Reads.plus, (one.reads for one in self._crew.workers), self._crew.reads_before
            )

    def close(self) -> None:
        """End all processes; those that do not end in time are killed. Waits get an error."""
        _open.discard(self)
        crew = self._crew
        if self._process != os.getpid():  # a fork has neither the thread nor the processes
            return
        crew.stop()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(GRACE)
        with crew.lock:
            workers, crew.workers = crew.workers, []
            for worker in workers:
                crew.reads_before = crew.reads_before.plus(worker.reads)
        for worker in workers:  # a process that was forked meanwhile may hold the same socket
            with contextlib.suppress(OSError):
                worker.connection.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + GRACE
        for worker in workers:
            if not worker.is_gone(max(0.0, deadline - time.monotonic())):
                worker.send_signal(signal.SIGKILL)
        for worker in workers:
            worker.is_gone(GRACE)
            worker.close()
            with crew.lock:
                worker.lose(_closed)
        if not self._thread.is_alive():
            crew.forget()

    def __del__(self) -> None:
        if hasattr(self, "_thread"):
            self.close()

    def _start(self, k: int) -> None:
        from multiprocess.util import get_temp_dir

        crew = self._crew
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        forked = self._method == "fork"
        held = [mine, *(worker.connection for worker in crew.workers)] if forked else []
        # the fork server listens in a folder of this process, which removes it unless it is killed
        folder = get_temp_dir() if self._method == "forkserver" else None
        process = self._context.Process(
            target=serve,
            args=(theirs, self._sent, os.getpid(), held, folder),
            name=f"guideloom-loader-{k}",
            daemon=True,
        )
        try:
            with signals_held_back(self._method), warnings.catch_warnings():
                # to fork beside threads is the caller's choice, see `start_method`
                warnings.filterwarnings("ignore", "This process", DeprecationWarning)
                process.start()
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()
        crew.workers.append(WorkerHandle(process, mine))


_open: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


@functools.cache
def _close_at_exit() -> None:
    """The threads that hear workers are in torch code now and then, see `_threads`."""
    atexit.register(_close_all)


def _close_all() -> None:
    for pool in list(_open):
        pool.close()


def _closed() -> BaseException:
    return WorkerError("the loader was closed; iter(loader) opens it again, at its position")


def _raised(worker: WorkerHandle, sent: SentError) -> BaseException:
    where = f"in {worker.name}:\n{sent.text}"
    error: BaseException | None = None
    if sent.pickled is not None:
        with contextlib.suppress(Exception):  # of a module, say, that is not to be found here
            error = loads(sent.pickled)
    if not isinstance(error, BaseException):
        return WorkerError(where)
    error.add_note(where)
    return error

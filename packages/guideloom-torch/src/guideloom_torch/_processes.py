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
import multiprocessing.util
import os
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from multiprocessing.connection import wait

from guideloom_format import EpochPlan, WorkerError
from guideloom_format._processes import (
    StartMethod,
    fork_server_folder,
    how_it_ended,
    pickled,
)
from guideloom_format._starting import not_started, start
from guideloom_torch._delivery import Delivery, Finish, Given, deliver, sent_error
from guideloom_torch._reads import NO_READS, Reads
from guideloom_torch._starting import see_that_it_may, workers_of_loader
from guideloom_torch._steps import describe
from guideloom_torch._threads import new_thread, start_thread
from guideloom_torch._transfer import Parcel, loads, receive, unpack
from guideloom_torch._worker import (
    BATCH,
    HEAD,
    NO_STEP,
    READING,
    READY,
    Job,
    serve,
)
from guideloom_torch._worker_handle import WorkerHandle

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
        kind, number, step = HEAD.unpack(head)
        if kind == READY:
            worker.ready = True
            return
        if kind == READING:
            with contextlib.suppress(OSError):  # no descriptor is left: it will say so again
                worker.reads_now(unpack(data, descriptor))
            return
        parcel: Parcel | None = None
        reads = worker.reads
        lost: BaseException | None = None
        try:
            parcel = Parcel(data, descriptor)
            reads = loads(parcel.note)
        except BaseException as failed:  # noqa: BLE001  # the step's future gets it
            lost = failed
        text = f"{worker.name} sent what cannot be received: {lost!r}"
        if step == NO_STEP:
            told = functools.partial(sent_error, worker.name, parcel) if parcel else None
            self._fail(worker, told or functools.partial(WorkerError, text))
            return
        with self.lock:
            if not worker.told:  # the pool was closed meanwhile
                return
            given = worker.told.popleft()
            in_turn = (given.number, given.step) == (number, step)
            if in_turn:
                worker.answered(reads)
                worker.tell()
        if not in_turn:  # what it should have been told was cut off by a signal handler's exception
            given.future.cancel()
            self._fail(worker, _cut_off)
            return
        if not given.future.set_running_or_notify_cancel():
            return
        if parcel is None or lost is not None:
            given.future.set_exception(lost or WorkerError(text))
        elif kind != BATCH:
            given.future.fail(functools.partial(sent_error, worker.name, parcel))
        else:
            deliver(given, parcel)

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
        WorkerError: they cannot be started.
    """

    def __init__(self, job: Job, workers: int, start_method: StartMethod) -> None:
        import multiprocess
        from multiprocess.reduction import ForkingPickler

        see_that_it_may(workers)
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
        try:
            self._crew = _Crew("" if forked else advice)
        except OSError as error:
            raise not_started(error, workers_of_loader(workers), 0) from error
        self._thread = new_thread(self._crew.run, "guideloom-loader-receiver")
        try:
            self._start_all(workers)
        except BaseException:
            self.close()
            raise
        _close_at_exit(self._process)
        _open.add(self)

    @property
    def is_whole(self) -> bool:
        """Whether it is of this process, open, and all workers are there and know their steps."""
        crew = self._crew
        if self._process != os.getpid():  # where another thread may have held the lock
            return False
        with crew.lock:
            known = all(given.sent for worker in crew.workers for given in worker.told)
            return crew.error is None and bool(crew.workers) and known

    def begin(self) -> int:
        """A new plan; its number. Steps of older ones are dropped where they were not begun."""
        self._number += 1
        return self._number

    def submit(self, number: int, plan: EpochPlan, step: int, finish: Finish | None) -> Delivery:
        """Have a step loaded; the future of the batch, or of what `finish` makes of it."""
        future = Delivery()
        crew = self._crew
        with crew.lock:
            if crew.error is not None or not crew.workers:
                future.fail(crew.error or _closed)
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
        crew = self._crew
        mine = self._process == os.getpid()  # the lock of a fork may be held for ever
        with crew.lock if mine else contextlib.nullcontext():
            return functools.reduce(
                Reads.plus, (one.reads for one in crew.workers), crew.reads_before
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
        with contextlib.ExitStack() as rest:  # all of it is done, whatever is raised
            if not self._thread.is_alive():
                rest.callback(crew.forget)
            deadline = time.monotonic() + GRACE
            for worker in workers:
                rest.callback(self._end, worker, deadline)

    def _end(self, worker: WorkerHandle, deadline: float) -> None:
        try:
            if not worker.is_gone(max(0.0, deadline - time.monotonic())):
                worker.send_signal(signal.SIGKILL)
                worker.is_gone(GRACE)
            worker.close()
        finally:
            with self._crew.lock:
                worker.lose(_closed)

    def __del__(self) -> None:
        if not hasattr(self, "_thread"):
            return
        if sys.is_finalizing():  # opened while the process ended; no module is there any more
            for worker in self._crew.workers:
                worker.connection.close()
        else:
            self.close()

    def _start_all(self, workers: int) -> None:
        for k in range(workers):
            try:
                self._start(k)
            except (OSError, EOFError, MemoryError) as error:
                raise not_started(error, workers_of_loader(workers), k) from error
        try:
            start_thread(self._thread)
        except RuntimeError as error:  # as many as the system allows
            raise not_started(error, workers_of_loader(workers), workers) from error

    def _start(self, k: int) -> None:
        crew = self._crew
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            forked = self._method == "fork"
            held = [mine, *(worker.connection for worker in crew.workers)] if forked else []
            # for the worker to remove if this process is killed
            folder = fork_server_folder() if self._method == "forkserver" else None
            process = self._context.Process(
                target=serve,
                args=(theirs, self._sent, os.getpid(), held, folder),
                name=f"guideloom-loader-{k}",
                daemon=True,
            )
            start(process, self._method, lambda: crew.workers.append(WorkerHandle(process, mine)))
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()


_open: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


@functools.cache
def _close_at_exit(process: int) -> None:
    """The threads that hear workers are in torch code now and then, see `_threads`."""
    import multiprocess.util

    del process
    atexit.register(_close_all)
    for util in (multiprocess.util, multiprocessing.util):  # their children end without `atexit`
        util.Finalize(None, _close_all, exitpriority=100)


def _close_all() -> None:
    for pool in list(_open):
        pool.close()


def _cut_off() -> BaseException:
    return WorkerError(
        "a worker was not told a step, because an exception came in between; iter(loader) begins "
        "with new workers, at the loader's position"
    )


def _closed() -> BaseException:
    return WorkerError("the loader was closed; iter(loader) opens it again, at its position")

"""Loaders with processes whose workers or parents are killed, and what must be true afterwards.

Each trial is one kill at a random time. The same trials run a few times in the tests and a thousand
times by command, see `process_campaign`.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from guideloom import WorkerError

from .process_cases import (
    Slow,
    by_processes,
    is_there,
    load,
    session_members,
    steps_of,
    workers_of,
)

SECONDS = 5.0
IMPORTS = 60.0
"""Until a process that begins anew has imported torch, on a busy machine: then it ends."""
WORKER_SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)
PARENT_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class Options:
    """How a loader of a trial loads."""

    method: str
    workers: int
    prefetch: int
    seconds: float
    nbytes: int

    @classmethod
    def drawn(cls, source: random.Random, method: str) -> Options:
        """Any of them; batches so large that sending one takes a while in some."""
        return cls(
            method,
            source.choice((1, 2, 3)),
            source.choice((0, 1, 8)),
            source.choice((0.0, 0.002, 0.01)),
            source.choice((0, 0, 100_000, 2 << 20)),
        )

    def loader(self, directory: Path) -> Any:
        options = by_processes(self.method, self.workers, prefetch=self.prefetch)
        return load("stream", directory, Slow(self.seconds, self.nbytes), **options)


def kill_a_worker(directory: Path, seed: int, method: str = "fork") -> bool:
    """Kill a worker at a random point; whether the loop had an error of it.

    The error comes within 5 s and says which worker. The next `iter` goes on exactly behind what
    was delivered, or with the next epoch if all of it was.
    """
    source = random.Random(seed)
    options = Options.drawn(source, method)
    reference = load("stream", directory, Slow(0, options.nbytes))
    wanted, following = steps_of(reference), steps_of(reference)
    with options.loader(directory) as loader:
        at, number = source.randrange(-1, len(wanted)), source.choice(WORKER_SIGNALS)
        pause = source.uniform(0, 0.02) if source.random() < 0.8 else 0.0
        iterator, found = iter(loader), 0
        victim = source.choice(workers_of(loader))
        error: WorkerError | None = None
        begin = time.monotonic()
        try:
            for step in range(len(wanted)):
                if step == at + 1:
                    time.sleep(pause)
                    os.kill(victim, number)
                    begin = time.monotonic()
                batch = next(iterator)
                assert int(batch[-1].sum()) == options.nbytes
                found += 1
                begin = time.monotonic()  # an error comes in its turn
        except WorkerError as caught:
            error = caught
            assert time.monotonic() - begin < SECONDS, time.monotonic() - begin
            text = str(error)
            assert text.startswith(f"the worker process (pid {victim}) was killed by signal "), text
            assert f"({number.name})" in text
            assert ", guideloom-loader-" in text
        if at + 1 >= len(wanted):  # between the last batch and the next epoch
            os.kill(victim, number)
        del iterator
        assert (loader.epoch, loader.position) == divmod(3 * found, 3 * len(wanted))
        rest: list[Any] = []
        try:
            steps_of(loader, steps=rest)
        except WorkerError:  # it was idle, and its end is noticed now
            if error is not None:
                raise
            steps_of(loader, steps=rest)
        assert rest == (wanted[found:] or following)
        assert not is_there(victim)
        assert len(steps_of(loader)) == len(wanted)
    return error is not None


def serve_victim(directory: Path, options: Options, said: int) -> None:
    """What a parent that will be killed does: epochs and iterators without end, with pools too."""
    kept = options.loader(directory)
    while True:
        for step, batch in enumerate(kept):
            assert int(batch[-1].sum()) == options.nbytes
            os.write(said, b".")
            if step == 5:
                break
        if options.method == "fork":
            kept.close()
            kept = options.loader(directory)


def kill_the_parent(
    directory: Path, seed: int, method: str = "fork", *, at_work: bool = False
) -> bool:
    """Kill a process with workers after a random time; whether it had delivered a batch before.

    With `at_work` it is killed by SIGKILL, that time after the first batch.
    After 5 s none of its processes is left, nor any file in its folder for temporary ones.
    """
    source = random.Random(seed)
    options, number = Options.drawn(source, method), source.choice(PARENT_SIGNALS)
    seconds = source.uniform(0, 0.4 if method == "fork" else 12.0)
    if not at_work and source.random() < 0.2:  # its workers notice nothing by themselves
        options = replace(options, seconds=3600.0)
    with tempfile.TemporaryDirectory() as temporary, tempfile.TemporaryFile() as errors:
        read, said = os.pipe()
        pid = os.fork()
        if pid == 0:
            _become_victim(directory, options, said, errors.fileno(), temporary)
        os.close(said)
        served = at_work and bool(os.read(read, 1))
        time.sleep(0.1 * seconds if at_work else seconds)
        number = signal.SIGKILL if at_work else number
        os.kill(pid, number)
        begin = time.monotonic()
        try:
            status = _end_of(pid, number)
            wanted = 1 if number == signal.SIGINT else -number
            errors.seek(0)
            assert os.waitstatus_to_exitcode(status) == wanted, (status, errors.read().decode())
            os.set_blocking(read, False)
            with suppress(BlockingIOError):
                served = bool(os.read(read, 1 << 16)) or served
            limit = SECONDS if served or method == "fork" else IMPORTS
            while left := session_members(pid):
                assert time.monotonic() - begin < limit, f"{left} are left"
                time.sleep(0.01)
            errors.seek(0)
            text = errors.read().decode()
            assert text == "" or (number == signal.SIGINT and "KeyboardInterrupt" in text), text
            if served or method == "fork":  # before the first worker, nobody can tidy up
                assert os.listdir(temporary) == []
            return served
        finally:
            os.close(read)
            for one in session_members(pid):
                os.kill(one, signal.SIGKILL)


def _end_of(pid: int, number: signal.Signals) -> int:
    """How a process ends that was sent a signal; within 5 s.

    Python loses a Ctrl-C that comes within a callback, such as those around a fork: it comes again.
    """
    begin = again = time.monotonic()
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        assert time.monotonic() - begin < SECONDS, f"not ended by {number.name}"
        if number == signal.SIGINT and time.monotonic() - again > 1:
            again = time.monotonic()
            os.kill(pid, number)
        time.sleep(0.005)


def _become_victim(
    directory: Path, options: Options, said: int, errors: int, temporary: str
) -> None:
    """In a forked process: work until killed. Never returns."""
    status = 1
    try:
        os.setsid()
        os.dup2(errors, 2)
        sys.stderr = os.fdopen(os.dup(2), "w")
        os.environ["TMPDIR"] = tempfile.tempdir = temporary
        torch.set_num_threads(1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        serve_victim(directory, options, said)
    except BaseException:  # noqa: BLE001  # it must never return into the tests
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)

"""Processes that leave a loader in every way, many of them forked from one that has imported torch.

    python -m tests.torch.exit_cases FOLDER SEED MODES …

MODES is a list of keys of `MODES`, as JSON. Each process runs to the very end of its interpreter:
exit handlers, threads, daemon threads, destructors.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch

from .process_cases import by_processes, load, plain, session_members

MODES: dict[str, dict[str, Any]] = {
    "in the loop": {},
    "one thread": {"prefetch": 16},  # so many that some are in work when it ends
    "threads": {"num_workers": 3, "prefetch": 16},
    "processes": by_processes("fork", 2, prefetch=4),
}
kept: list[Any] = []
"""What is there until the interpreter takes its modules apart."""

Loaders = list[Any]


class InTorch:
    """A collate_fn that sleeps, and then is in torch code for most of its time."""

    def __init__(self, seconds: float, rounds: int) -> None:
        self.seconds = seconds
        self.rounds = rounds

    def __call__(self, samples: list[Any]) -> Any:
        time.sleep(self.seconds)
        total = torch.zeros(64, 64)
        for _ in range(self.rounds):
            total = total + torch.tensor([1.0]).sum()
        return [plain(sample) for sample in samples], total.numpy().tobytes()


def iterate(loaders: Loaders) -> Any:
    """One iterator over all of them."""
    return zip(*map(iter, loaders), strict=True)


def while_prefetching(loaders: Loaders) -> None:
    iterator = iterate(loaders)
    kept.append(iterator)
    next(iterator)


def before_the_first_batch(loaders: Loaders) -> None:
    kept.append(iterate(loaders))


def within_the_loop(loaders: Loaders) -> None:
    for batch in iterate(loaders):
        kept.append(batch)
        sys.exit(0)


def an_exception_in_the_loop(loaders: Loaders) -> None:
    with ExitStack() as stack:
        for loader in loaders:
            stack.enter_context(loader)
        for batch in iterate(loaders):
            raise SystemExit(0 if len(batch) else 1)


def at_the_end_of_an_epoch(loaders: Loaders) -> None:
    kept.extend(iterate(loaders))


def closed_twice(loaders: Loaders) -> None:
    while_prefetching(loaders)
    for loader in loaders * 2:
        loader.close()


def closed_by_exit_handlers(loaders: Loaders) -> None:
    for loader in loaders:
        atexit.register(loader.close)
    while_prefetching(loaders)


def used_by_exit_handlers(loaders: Loaders) -> None:
    """By then the loader may refuse; it must not hang or abort."""

    def use(loader: Any) -> None:
        with suppress(RuntimeError):
            next(iter(loader))

    while_prefetching(loaders)
    for loader in loaders:
        atexit.register(use, loader)


def in_a_thread(loaders: Loaders) -> None:
    """The iterator lives and dies in a thread that has ended before."""
    thread = threading.Thread(target=while_prefetching, args=(loaders,))
    thread.start()
    thread.join()


def in_a_daemon_thread_that_still_iterates(loaders: Loaders) -> None:
    """It waits for the loaders' own threads and processes, and is no reason to wait for it.

    Loaders that load in that thread itself are left out: Python aborts a process whose daemon
    threads are in torch code when it ends, whoever started them.
    """

    def work() -> None:
        with suppress(Exception):  # of the exit, whatever it is; it is not tried again
            while ahead:
                for batch in iterate(ahead):
                    begun.set()
                    del batch
        begun.set()

    ahead = [loader for loader in loaders if loader._loading.ahead]
    begun = threading.Event()
    threading.Thread(target=work, daemon=True).start()
    begun.wait(30)


def collected_in_an_exit_handler(loaders: Loaders) -> None:
    gc.disable()
    for loader in loaders:
        iterator = iter(loader)
        cycle: list[Any] = [iterator]
        cycle.append(cycle)
        next(iterator)
    atexit.register(gc.collect)


def collected_in_signal_handlers(loaders: Loaders) -> None:
    def collect(number: int, frame: object) -> None:
        del number, frame
        gc.collect()
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.02))  # not while it collects

    signal.signal(signal.SIGALRM, collect)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    for _ in range(3):
        for loader in loaders:
            iterator = iter(loader)
            cycle: list[Any] = [iterator]
            cycle.append(cycle)
            next(iterator)
            del cycle, iterator
    while_prefetching(loaders)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)


WAYS: list[Callable[[Loaders], None]] = [
    while_prefetching,
    before_the_first_batch,
    within_the_loop,
    an_exception_in_the_loop,
    at_the_end_of_an_epoch,
    closed_twice,
    closed_by_exit_handlers,
    used_by_exit_handlers,
    in_a_thread,
    in_a_daemon_thread_that_still_iterates,
    collected_in_an_exit_handler,
    collected_in_signal_handlers,
]


def leave(
    way: Callable[[Loaders], None], modes: list[str], directory: Path, seed: int, said: int
) -> None:
    """Use loaders until they are left at a random moment; say when, and when nobody is waited for.

    Behind that is the interpreter's own end, which takes as long without a loader.
    """
    source = random.Random(seed)
    atexit.register(lambda: os.write(said, b"%f" % time.monotonic()))  # called last
    collate = InTorch(source.choice((0.0, 0.0, 0.02)), source.choice((50, 500, 2000)))
    loaders = [load("stream", directory, collate, **MODES[mode]) for mode in modes]
    if source.random() < 0.5:
        kept.append(loaders)
    try:
        way(loaders)
        time.sleep(source.uniform(0, 0.02))
    finally:
        os.write(said, b"%f " % time.monotonic())


def outcome(pid: int, read: int, errors: Any) -> dict[str, Any]:
    """How a process ended: its status, what it wrote, seconds that it waited, who is left of it."""
    deadline = time.monotonic() + 60
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    left_at, _, waited_until = os.read(read, 100).decode().partition(" ")
    os.close(read)
    errors.seek(0)
    deadline = time.monotonic() + 5
    while (left := session_members(pid)) and time.monotonic() < deadline:
        time.sleep(0.005)
    return {
        "status": os.waitstatus_to_exitcode(ended[1]),
        "stderr": errors.read().decode(),
        "seconds": float(waited_until or "inf") - float(left_at or "0"),
        "left": len(left),
    }


def main(directory: Path, seed: int, *sets: str) -> None:
    """Fork a process for every way and set of modes; there, return as a script does."""
    found = []
    gc.freeze()  # the modules that all have in common; otherwise each copies them to its end
    for way in WAYS:
        for modes in map(json.loads, sets):
            seed += 1
            read, said = os.pipe()
            with tempfile.TemporaryFile() as errors:
                pid = os.fork()
                if pid == 0:
                    os.setsid()
                    os.close(read)
                    os.dup2(errors.fileno(), 1)
                    os.dup2(errors.fileno(), 2)
                    leave(way, modes, directory, seed, said)
                    return
                os.close(said)
                found.append([way.__name__, modes, seed, outcome(pid, read, errors)])
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])

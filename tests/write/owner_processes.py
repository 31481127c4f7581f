"""Processes that own a shard, for tests of who may take it over; importable from a new one."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from guideloom_write import StreamWriter
from write.known_messages import append, storage

SECONDS = 60


@dataclass
class Holder:
    """A process that has appended to a shard and waits."""

    process: SpawnProcess
    pipe: Connection
    pid: int
    since: str

    def send(self, number: int) -> None:
        """Give it a signal, and wait until it is dead if that kills it."""
        os.kill(self.pid, number)
        if number == signal.SIGKILL:
            self.process.join(SECONDS)
            assert self.process.exitcode == -signal.SIGKILL

    def kill_and_leave(self) -> None:
        """It is dead, and nobody has asked for its exit status: a zombie."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)


def hold(directory: Path, shard: int, pipe: Connection) -> None:
    """Append to a shard, tell who this is, and wait for the end."""
    writer = StreamWriter(storage(directory)).open()
    append(writer, (1, shard, 0))
    pipe.send((os.getpid(), writer._owner.since))
    pipe.recv()
    writer.close()


@contextlib.contextmanager
def holder(directory: Path, shard: int) -> Iterator[Holder]:
    """A process that owns the shard, until the end of the block."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=hold, args=(directory, shard, there))
    process.start()
    try:
        assert here.poll(SECONDS), "the process did not begin"
        pid, since = here.recv()
        yield Holder(process, here, pid, since)
    finally:
        process.kill()
        process.join(SECONDS)

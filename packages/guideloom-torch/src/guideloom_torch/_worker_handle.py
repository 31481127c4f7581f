"""A worker process as its parent knows it, and the steps that it was given."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from guideloom_format._processes import Child
from guideloom_read.io import Reading
from guideloom_torch._delivery import Given
from guideloom_torch._reads import NO_READS, Reads
from guideloom_torch._steps import describe
from guideloom_torch._transfer import dumps, pack, send
from guideloom_torch._worker import TELL, NewPlan, NextStep

MOST_TOLD = 2
"""Steps that a worker is told at once: one to load and the next. So few that no socket is ever
full, and that hardly any is loaded which is not wanted any more."""


class WorkerHandle(Child):
    """A worker as its parent knows it.

    Attributes:
        name: for messages.
        told: what it was told and has not answered, in order.
        waiting: what it will be told.
        plan: number of the newest plan that it was told.
        since: when it began with the first of them.
        ready: whether it has opened the dataset.
        reads: that it had done when it last answered.
    """

    def __init__(self, process: Any, connection: socket.socket) -> None:
        super().__init__(process, connection)
        self.name = f"{process.name} (pid {self.pid})"
        self.told: deque[Given] = deque()
        self.waiting: deque[Given] = deque()
        self.plan = -1
        self.since = time.monotonic()
        self.ready = False
        self.reads = NO_READS
        self._reading: tuple[float, list[Reading]] | None = None  # when it last said so

    def answered(self, reads: Reads) -> None:
        """It has loaded the first of the steps that it was told, or failed to."""
        slowest = reads.slowest and reads.slowest._replace(thread=self.name)
        self.reads = reads._replace(slowest=slowest)
        self.since = time.monotonic()
        self._reading = None

    def reads_now(self, reading: list[Reading]) -> None:
        """It has said what it is reading, because the step takes long."""
        self._reading = (time.monotonic(), reading)

    def tell(self) -> None:
        """Tell it more if it has little to do."""
        while self.waiting and len(self.told) < MOST_TOLD:
            given = self.waiting.popleft()
            if given.future.cancelled():
                continue
            if not self.told:
                self.since = time.monotonic()
            self.told.append(given)
            try:
                if self.plan != given.number:
                    self._send(NewPlan(given.number, given.plan))
                    self.plan = given.number
                self._send(NextStep(given.number, given.step))
                given.sent = True
            except OSError as error:  # no file for a plan that fits in no message
                if self.told and self.told[-1] is given:
                    self.told.pop()
                    if given.future.set_running_or_notify_cancel():
                        given.future.set_exception(error)

    def lose(self, error: Callable[[], BaseException]) -> None:
        """What it has not answered is an error."""
        lost = [*self.told, *self.waiting]
        self.told.clear()
        self.waiting.clear()
        for given in lost:
            if given.future.set_running_or_notify_cancel():
                given.future.fail(error)

    def _send(self, message: NewPlan | NextStep) -> None:
        data, descriptor = pack(message, dumps)
        try:
            with contextlib.suppress(OSError):  # it is gone, as the other thread will find
                send(self.connection, TELL, data, descriptor)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def shown(self) -> str:
        """What it does."""
        first, now = self.told[0], time.monotonic()
        step = describe(first.plan, first.step)
        doing = "loading" if self.ready else "starting, to load"
        text = f"{self.name} has been {doing} {step} for {now - self.since:.1f} s"
        if self._reading is None:
            return text
        when, reading = self._reading
        read = " and ".join(map(str, reading)) or "nothing"
        return f"{text} and read, {now - when:.1f} s ago, {read}"

"""A process that loads batches: it is told steps of a plan and sends what they hold.

::

    parent  ──  a new plan, or the number of a step  ─>  worker
            <─  ready; for every step, in order: a batch, or the error; and all reads so far  ──
            <─  while a step takes long: what is being read for it  ──

A worker opens its own reader. It ends when its parent closes the socket or is gone.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import shutil
import socket
import struct
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch

from guideloom_format import EpochPlan
from guideloom_format._processes import obey_signals, wait_until_gone
from guideloom_read.io import ReadLog
from guideloom_torch._collate import LoadOf
from guideloom_torch._notes import add_note
from guideloom_torch._pinned import PinnedDataset
from guideloom_torch._reads import NO_READS, Reads
from guideloom_torch._steps import Announce, Load, LoadStep, Where, describe, where
from guideloom_torch._transfer import dumps, loads, pack, receive, send, unpack
from guideloom_torch._watchdog import Watchdog

TIDY = 0.2  # seconds
MOST_TOLD_OF = 4
"""Reads of one step at once, of which the parent is told."""
READY, BATCH, ERROR, READING = range(4)
NO_STEP = -1
HEAD = struct.Struct("<Qqq")
"""Of a message to the parent: what it is, the number of the plan, and the step."""
TELL = b"t"
"""Of a message to a worker: no message is empty, as the end of a connection is."""


@dataclass(frozen=True)
class Job:
    """What a worker must know before the first step.

    Attributes:
        dataset: that it opens.
        load_of: makes of a reader the function that loads samples.
        pad: whether steps are filled up, see `MaskedBatch`.
        lookahead: of `LoadStep`.
        patience: seconds; a step that takes longer is reported on. None for no report.
    """

    dataset: PinnedDataset
    load_of: LoadOf
    pad: bool
    lookahead: int
    patience: float | None


class NewPlan(NamedTuple):
    """From here on, steps are those of this plan."""

    number: int
    plan: EpochPlan


class NextStep(NamedTuple):
    """Load this step of the newest plan, which has this number."""

    number: int
    step: int


class SentError(NamedTuple):
    """An error on its way: itself, if it can be pickled, and as text."""

    pickled: bytes | None
    text: str

    @classmethod
    def of(cls, error: BaseException, dumps: Callable[..., bytes]) -> SentError:
        """What is sent of an error."""
        text = type(error).__name__
        try:
            text = "".join(traceback.format_exception(error)).rstrip()
            data = dumps(error)
            again = loads(data)
            as_it_was = isinstance(again, BaseException) and str(again) == str(error)
        except BaseException:  # noqa: BLE001  # whatever it is, the text remains
            return cls(None, text)
        return cls(data if as_it_was else None, text)


def serve(
    connection: socket.socket,
    sent: Job | bytes,
    parent: int,
    inherited: Sequence[socket.socket],
    folder: str | None,
) -> None:
    """What a worker process does.

    Args:
        connection: to the parent.
        sent: the job; pickled if this process was not forked.
        parent: its process id.
        inherited: sockets of the parent that a forked process must not hold open.
        folder: of the parent, to remove if it is killed.
    """
    from multiprocess import parent_process
    from multiprocess.reduction import ForkingPickler

    for other in inherited:
        other.close()
    obey_signals()
    sentinel = parent_process().sentinel
    # `threading` would wait for ever for a thread that has no memory to begin
    _thread.start_new_thread(_end_with, (parent, sentinel, folder))
    torch.set_num_threads(1)  # also: OpenMP threads of the parent are not here after a fork
    server = _Server(connection, lambda value: bytes(ForkingPickler.dumps(value)))
    try:
        try:
            job: Job = ForkingPickler.loads(sent) if isinstance(sent, bytes) else sent
            reader = job.dataset.reader()
            steps = partial(
                _steps, job, job.load_of(reader), reader.announce, partial(where, reader)
            )
        except BaseException as error:  # noqa: BLE001  # it is raised where a batch is awaited
            server.tell_of(error, 0, NO_STEP)
            return
        with contextlib.closing(job.dataset):
            send(connection, HEAD.pack(READY, 0, NO_STEP), b"", None)
            server.run(steps, job)
    except ConnectionError:  # the parent is gone, or has closed the loader
        pass
    if folder is not None:  # if it is gone, the other thread is about to tidy up
        time.sleep(TIDY)


def _steps(job: Job, load: Load, announce: Announce, where: Where, plan: EpochPlan) -> LoadStep:
    return LoadStep(plan, load, job.pad, announce, job.lookahead, where)


class _Server:
    def __init__(self, connection: socket.socket, dumps: Callable[[Any], bytes]) -> None:
        self._connection = connection
        self._dumps = dumps

    def run(self, steps: Callable[[EpochPlan], LoadStep], job: Job) -> None:
        """Work until the parent closes the socket."""
        log = job.dataset.reads
        watchdog = Watchdog(job.patience, lambda _: self._tell_what_is_read(log), again=True)
        number, plan, step = 0, None, None
        while (received := receive(self._connection, len(TELL))) is not None:
            try:
                message = unpack(*received[1:])
            except OSError as error:  # no descriptor is left for a plan that fits in no message
                self.tell_of(error, 0, NO_STEP)
                return
            if isinstance(message, NewPlan):
                number, plan = message
                step = steps(plan)
            elif plan is not None and step is not None:
                watchdog.begin()
                try:
                    self._answer(number, message.step, plan, step, log)
                finally:
                    watchdog.end()

    def _answer(self, number: int, at: int, plan: EpochPlan, step: LoadStep, log: ReadLog) -> None:
        try:
            batch = step(at)
            try:
                data, descriptor = pack(batch, self._dumps, dumps(Reads.of(log)))
            except BaseException as error:
                add_note(error, f"while sending the batch of {describe(plan, at)}")
                raise
        except BaseException as error:  # noqa: BLE001  # it is raised where the batch is awaited
            self.tell_of(error, number, at, Reads.of(log))
        else:
            self._send(BATCH, number, at, data, descriptor)

    def tell_of(
        self, error: BaseException, number: int, step: int, reads: Reads = NO_READS
    ) -> None:
        """Send an error."""
        sent = SentError.of(error, self._dumps)
        self._send(ERROR, number, step, *pack(sent, self._dumps, dumps(reads)))

    def _tell_what_is_read(self, log: ReadLog) -> None:
        with contextlib.suppress(OSError):  # the parent is gone
            self._send(READING, 0, NO_STEP, *pack(log.now()[:MOST_TOLD_OF], dumps))

    def _send(self, kind: int, number: int, step: int, data: bytes, descriptor: int | None) -> None:
        try:
            send(self._connection, HEAD.pack(kind, number, step), data, descriptor)
        finally:
            if descriptor is not None:
                os.close(descriptor)


def _end_with(parent: int, sentinel: int, folder: str | None) -> None:
    if wait_until_gone(parent, sentinel) and folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)

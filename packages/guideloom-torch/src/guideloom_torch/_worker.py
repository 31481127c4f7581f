"""A process that loads batches: it is told steps of a plan and sends what they hold.

::

    parent  ──  a new plan, or the number of a step  ─>  worker
            <─  ready; for every step, in order: a batch, or the error  ──

A worker opens its own reader. It ends when its parent closes the socket or is gone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch

from guideloom_format import EpochPlan
from guideloom_format._processes import obey_signals, wait_until_gone
from guideloom_torch._collate import LoadOf
from guideloom_torch._pinned import PinnedDataset
from guideloom_torch._steps import Announce, Load, LoadStep
from guideloom_torch._transfer import loads, pack, receive, send

TIDY = 0.2  # seconds
READY, BATCH, ERROR = range(3)
NO_STEP = -1
HEAD = struct.Struct("<QQqd")
"""Of a message to the parent: what it is, number of the plan, the step, seconds that it took."""


@dataclass(frozen=True)
class Job:
    """What a worker must know before the first step.

    Attributes:
        dataset: that it opens.
        load_of: makes of a reader the function that loads samples.
        pad: whether steps are filled up, see `MaskedBatch`.
        lookahead: of `LoadStep`.
    """

    dataset: PinnedDataset
    load_of: LoadOf
    pad: bool
    lookahead: int


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
        text = "".join(traceback.format_exception(error)).rstrip()
        try:
            data = dumps(error)
            again = loads(data)
            as_it_was = isinstance(again, BaseException) and str(again) == str(error)
        except Exception:  # noqa: BLE001  # whatever it is, the text remains
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
    watch = threading.Thread(target=_end_with, args=(parent, sentinel, folder), daemon=True)
    watch.start()
    torch.set_num_threads(1)  # also: OpenMP threads of the parent are not here after a fork
    server = _Server(connection, lambda value: bytes(ForkingPickler.dumps(value)))
    try:
        try:
            job: Job = ForkingPickler.loads(sent) if isinstance(sent, bytes) else sent
            reader = job.dataset.reader()
            steps = partial(_steps, job, job.load_of(reader), reader.announce)
        except BaseException as error:  # noqa: BLE001  # it is raised where a batch is awaited
            server.tell_of(error, ERROR, 0, NO_STEP, 0.0)
            return
        with contextlib.closing(job.dataset):
            send(connection, HEAD.pack(READY, 0, NO_STEP, 0.0), b"", None)
            server.run(steps)
    except ConnectionError:  # the parent is gone, or has closed the loader
        pass
    if folder is not None:  # if it is gone, the other thread is about to tidy up
        watch.join(TIDY)


def _steps(job: Job, load: Load, announce: Announce, plan: EpochPlan) -> LoadStep:
    return LoadStep(plan, load, job.pad, announce, job.lookahead)


class _Server:
    def __init__(self, connection: socket.socket, dumps: Callable[[Any], bytes]) -> None:
        self._connection = connection
        self._dumps = dumps

    def run(self, steps: Callable[[EpochPlan], LoadStep]) -> None:
        """Work until the parent closes the socket."""
        step: LoadStep | None = None
        number = -1
        while (received := receive(self._connection, 0)) is not None:
            message = loads(received[1])
            if isinstance(message, NewPlan):
                number, plan = message
                step = steps(plan)
            elif step is not None:
                self._answer(number, message.step, step)

    def _answer(self, number: int, at: int, step: LoadStep) -> None:
        begin = time.monotonic()
        try:
            data, descriptor = pack(step(at), self._dumps)
        except BaseException as error:  # noqa: BLE001  # it is raised where the batch is awaited
            self.tell_of(error, ERROR, number, at, time.monotonic() - begin)
        else:
            self._send(HEAD.pack(BATCH, number, at, time.monotonic() - begin), data, descriptor)

    def tell_of(self, error: BaseException, *head: Any) -> None:
        """Send an error."""
        self._send(HEAD.pack(*head), *pack(SentError.of(error, self._dumps), self._dumps))

    def _send(self, head: bytes, data: bytes, descriptor: int | None) -> None:
        try:
            send(self._connection, head, data, descriptor)
        finally:
            if descriptor is not None:
                os.close(descriptor)


def _end_with(parent: int, sentinel: int, folder: str | None) -> None:
    if wait_until_gone(parent, sentinel) and folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)

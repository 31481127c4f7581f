"""A process that does writing jobs, each in a child of its own, which others trace and kill.

    python -m write.traced_writer

Everything is imported once and each job is a fork, so that a job takes milliseconds and none of
the file operations in it belongs to the start of the interpreter. One job is a line of JSON on the
standard input. The child says its pid on the standard output, waits for SIGUSR1, so that there is
time to attach to it, and works. It says what is committed as soon as a commit has returned. At the
end the parent says how the child ended.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from guideloom_format import GuideLoomError
from guideloom_write import _checked_file, _shard_writer
from guideloom_write._consolidate import consolidate
from guideloom_write._files import PosixFiles
from write.known_content import COMMIT, KNOWN_ELEMENTS, Known, Script
from write.known_documents import KnownDocuments
from write.known_spans import KnownSpans

KINDS: Mapping[str, Known[Any]] = {
    "stream": KNOWN_ELEMENTS,
    "documents": KnownDocuments(sizes=(0, 3, 20_000, 40)),
    "spans": KnownSpans(sizes=(0, 60, 30_000)),
}

BEGIN = signal.SIGUSR1
SECONDS = 60
Say = Callable[..., None]


@dataclass(frozen=True)
class Job:
    """What a process does. The same job again goes on where a dead process left it.

    Attributes:
        kind: of the data, one of `KINDS`.
        directory: of the dataset.
        script: what to append, and when to commit; at the end there is one more commit.
        finish: whether each shard is finished instead of that last commit.
        consolidate: whether the dataset is consolidated at the end.
        most_open: how many parts may be open.
        buffer: how many bytes a file buffers.
        limits: resources such as "RLIMIT_FSIZE" that the process gets no more of.
        user: whose rights the process has.
        alarm: seconds between two signals that it gets.
    """

    kind: str
    directory: str
    script: Script
    most_open: int = 128
    buffer: int = 4 * 65536
    finish: bool = False
    consolidate: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)
    user: int | None = None
    alarm: float | None = None

    @property
    def known(self) -> Known[Any]:
        return KINDS[self.kind]

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Job:
        members = json.loads(line)
        members["script"] = [step if step is COMMIT else tuple(step) for step in members["script"]]
        return cls(**members)


def do_job(job: Job, files: PosixFiles, say: Say) -> None:
    """Do what of the job is not committed; `say` what is, as soon as that is certain."""
    _shard_writer.MOST_OPEN_PARTS = job.most_open
    _checked_file._BUFFER_BYTES = job.buffer
    wanted: dict[int, int] = {}
    with job.known.writer(Path(job.directory), files) as writer:
        for step in job.script:
            if step is COMMIT:
                writer.commit()
                say(committed={shard: writer.length(shard) for shard in wanted})
            else:
                shard, count = step
                wanted[shard] = wanted.get(shard, 0) + count
                there = writer.length(shard)
                if there < wanted[shard]:
                    job.known.append(writer, shard, there, wanted[shard])
        for shard in wanted if job.finish else ():
            if not writer.finished(shard):
                writer.finish(shard)
            say(finished=shard)
    if job.consolidate:
        say(version=consolidate(writer._storage, files).version)


def say_to_parent(**what: Any) -> None:
    """By a call that no file operation uses, so that it is never the one that goes wrong."""
    os.writev(1, [json.dumps(what).encode() + b"\n"])


def restrict(job: Job) -> list[int]:
    """Put the limits of the job in force; the list grows with the signals that arrive."""
    arrived: list[int] = []
    for name, value in job.limits.items():
        number = getattr(resource, name)
        resource.setrlimit(number, (value, resource.getrlimit(number)[1]))
    if job.user is not None:
        os.setegid(job.user)
        os.seteuid(job.user)
    if job.alarm is not None:
        signal.signal(signal.SIGALRM, lambda number, _: arrived.append(number))
        signal.setitimer(signal.ITIMER_REAL, job.alarm, job.alarm)
    return arrived


def child(job: Job) -> None:
    """The work, with the errors that a writer may raise said and not raised."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [BEGIN])
    say_to_parent(pid=os.getpid())
    if signal.sigtimedwait([BEGIN], SECONDS) is None:
        return
    arrived = restrict(job)
    try:
        do_job(job, PosixFiles(), say_to_parent)
    except GuideLoomError as error:
        number = getattr(error, "errno", None)
        say_to_parent(error={"type": type(error).__name__, "text": str(error), "number": number})
    if job.alarm is not None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        say_to_parent(signals=len(arrived))


def prepare_process() -> None:
    """Import now what is imported at the first use; say nothing of shards that are taken over."""
    logging.getLogger("guideloom_write").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as place:
        for kind in KINDS:
            job = Job(kind, f"{place}/{kind}", [(0, 5)], finish=True, consolidate=True)
            do_job(job, PosixFiles(), lambda **_: None)


def serve() -> None:
    prepare_process()
    say_to_parent(ready=True)
    for line in sys.stdin.buffer:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                child(Job.decode(line))
                status = 0
            except BaseException:  # noqa: BLE001  # a child must never return into the loop
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(status)
        _, ended = os.waitpid(pid, 0)
        say_to_parent(exit=os.waitstatus_to_exitcode(ended))


if __name__ == "__main__":
    serve()

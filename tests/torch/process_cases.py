"""Loaders whose batches come from processes, and what these processes leave behind."""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from guideloom import (
    DocumentBytesFormat,
    DocumentNumpyFormat,
    DocumentStorage,
    StatefulDataLoader,
    StreamNumpyFormat,
    StreamSpansFormat,
    StreamStorage,
    StreamWithMetaStorage,
)
from guideloom.types import IOReader

METHODS = ("fork", "forkserver", "spawn")
KINDS = ("stream", "documents", "spans")
LENGTH = 4
TOKENS = np.dtype("<u2")
FIELDS = np.dtype([("tokens", TOKENS)])
T = TypeVar("T")
Step = tuple[int, Any, str]  # epoch, the batch as plain values, the state behind it as JSON


def storage_of(kind: str, directory: Path, backend: IOReader | None = None) -> Any:
    """Where the samples of a kind are."""
    if kind == "stream":
        return StreamStorage(directory, StreamNumpyFormat(FIELDS), backend)
    if kind == "documents":
        return DocumentStorage(directory, DocumentNumpyFormat(np.dtype("<i4")), backend)
    spans = StreamSpansFormat(TOKENS, DocumentBytesFormat())
    return StreamWithMetaStorage(directory, spans, backend)


def write(kind: str, directory: Path, samples: int = 24) -> Path:
    """Samples of a kind in three shards; no two are equal."""
    with storage_of(kind, directory).sync_writer() as writer:
        for shard in range(3):
            share = range(shard, samples, 3)
            if kind == "documents":
                for k in share:
                    writer.append(shard, np.full(k % 5, k, dtype="<i4"))
                continue
            elements = np.arange(len(share) * LENGTH, dtype=TOKENS) + 1000 * shard
            if kind == "stream":
                writer.append(shard, {"tokens": elements})
            else:
                lengths = [3] * (elements.size // 3) + [elements.size % 3] * (elements.size % 3 > 0)
                payloads = [b"%d-%d" % (shard, k) for k in range(len(lengths))]
                writer.append(shard, (elements, lengths, payloads))
    return directory


def load(
    kind: str,
    directory: Path,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    *,
    backend: IOReader | None = None,
    **options: Any,
) -> StatefulDataLoader:
    """A loader of fresh objects, in shuffled order."""
    if kind != "documents":
        options["sequence_length"] = LENGTH
    options = {"local_batch_size": 3, "shuffle": True, "shuffle_seed": 5, **options}
    return StatefulDataLoader.from_storage(
        storage_of(kind, directory, backend), collate_fn, **options
    )


def plain(value: Any) -> Any:
    """A batch as values that can be compared and say their types."""
    if isinstance(value, torch.Tensor):
        values = value.detach().resolve_conj().resolve_neg().contiguous()
        flat = torch.empty(values.numel(), dtype=values.dtype).copy_(values.reshape(-1))
        raw = flat.view(torch.uint8).numpy().tobytes()
        return ("tensor", str(value.dtype), tuple(value.shape), raw)
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, memoryview):
        return ("memoryview", value.tobytes())
    if isinstance(value, Mapping):
        return (type(value).__name__, [(key, plain(one)) for key, one in value.items()])
    if isinstance(value, list | tuple):
        return (type(value).__name__, [plain(one) for one in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return (type(value).__name__, [plain(getattr(value, field.name)) for field in fields])
    return value


def steps_of(
    loader: StatefulDataLoader, most: int | None = None, steps: list[Step] | None = None
) -> list[Step]:
    """What a pass, or its beginning, delivers, with the state behind each; added to `steps`."""
    steps = [] if steps is None else steps
    iterator = iter(loader)
    epoch = loader.epoch
    for batch in iterator:
        steps.append((epoch, plain(batch), json.dumps(loader.state_dict())))
        if len(steps) == most:
            break
    return steps


def tour(loader: StatefulDataLoader) -> list[Step]:
    """A whole epoch, one with a break, a jump to a state in the middle, another epoch."""
    steps = steps_of(loader)
    steps += steps_of(loader, 2)
    iterator = iter(loader)  # and let it go at once
    del iterator
    steps += steps_of(loader)
    loader.load_state_dict(json.loads(steps[2][2]))
    steps += steps_of(loader)
    loader.set_epoch(7)
    return steps + steps_of(loader)


def workers_of(loader: StatefulDataLoader) -> list[int]:
    """The process ids of its workers, in order; none before the first batch was asked for."""
    pool = loader._workers._pool
    return [] if pool is None else [worker.pid for worker in pool._crew.workers]


def is_there(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    return _state_and_session(pid)[0] not in ("", "Z", "X")


def session_members(session: int) -> list[int]:
    """All processes of a session that have not ended."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            state, of = _state_and_session(int(name))
            if of == session and state not in ("", "Z", "X"):
                found.append(int(name))
    return found


def _state_and_session(pid: int) -> tuple[str, int]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "", -1
    state, _, _, session = text.rpartition(")")[2].split()[:4]
    return state, int(session)


def descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))


def descriptors_within(directory: str | os.PathLike[str]) -> int:
    """How many of them are of files in this directory."""
    found, folder = 0, os.path.join(os.path.realpath(directory), "")
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # of the list itself, or closed since
            found += os.readlink(f"/proc/self/fd/{name}").startswith(folder)
    return found


def resident() -> int:
    """Bytes of memory that this process has in use, without what it shares with files."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def batch_maps(pid: int | str = "self") -> int:
    """How many batches in memory without a name a process has mapped."""
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:guideloom-batch")


def in_fork(call: Callable[[], T], seconds: float = 60, *, may_say: Sequence[str] = ()) -> T:
    """What a call returns in a forked process of its own session; through JSON.

    Args:
        call: to be made there. It must write nothing but lines that have a word of `may_say`.
        seconds: that it may take.
        may_say: see `call`.
    """
    read, written = os.pipe()
    with tempfile.TemporaryFile() as said:
        pid = _forked(call, written, said.fileno())
        os.close(written)
        with suppress_late(pid, seconds), os.fdopen(read, "rb") as pipe:
            text = pipe.read()
        _, status = os.waitpid(pid, 0)
        said.seek(0)
        lines = said.read().decode().splitlines(keepends=True)
        text_said = "".join(x for x in lines if not any(word in x for word in may_say))
        ended = (os.waitstatus_to_exitcode(status), text_said)
    assert ended == (0, ""), ended
    result: T = json.loads(text)
    return result


def _forked(call: Callable[[], Any], pipe: int, said: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()
        torch.set_num_threads(1)  # OpenMP's threads are not here
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.stdout = sys.stderr = os.fdopen(os.dup(2), "w")
        os.write(pipe, json.dumps(call()).encode())
        status = 0
    except BaseException:  # noqa: BLE001  # it must never return into the tests
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


@contextmanager
def suppress_late(pid: int, seconds: float) -> Any:
    """Kill a process that takes too long, which the caller will see by how it ended."""

    def late(number: int, frame: object) -> None:
        del number, frame
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def pid_and_first(samples: list[Any]) -> tuple[int, Any]:
    """A batch that says who made it."""
    return os.getpid(), plain(samples[0])


def closure(number: int, table: dict[str, int]) -> Callable[[list[Any]], Any]:
    """A function that no other process can import."""

    def collate(samples: list[Any]) -> Any:
        table["calls"] = number
        return {"number": number, "samples": samples, **table}

    return collate


class Slow:
    """Batches that take a while, in the worker, and are large if asked."""

    def __init__(self, seconds: float, nbytes: int = 0) -> None:
        self.seconds = seconds
        self.nbytes = nbytes

    def __call__(self, samples: list[Any]) -> Any:
        faulthandler.disable()  # it may be killed by SIGSEGV, and says no more of it
        time.sleep(self.seconds)
        return (*map(plain, samples), torch.ones(self.nbytes, dtype=torch.uint8))


class Sleeper:
    """A collate_fn that sleeps at the samples that a file names, until the file is gone."""

    def __init__(self, file: Path, seconds: float = 60) -> None:
        self.file = file
        self.seconds = seconds

    def __call__(self, samples: list[Any]) -> Any:
        deadline = time.monotonic() + self.seconds
        while self.file.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        return samples


COLLATES: dict[str, Any] = {
    "none": None,
    "lambda": lambda samples: [len(samples), *samples],
    "closure": closure(3, {"offset": 7}),
}


def by_processes(method: str, workers: int = 1, **options: Any) -> dict[str, Any]:
    return {
        "parallel_method": "process",
        "start_method": method,
        "num_workers": workers,
        **options,
    }


def busy(stop: threading.Event, lock: Any) -> None:
    """Python, NumPy and torch code, and a lock that is held most of the time."""
    matrix, numbers = torch.ones(64, 64), np.ones(4096)
    while not stop.is_set():
        with lock:
            matrix = matrix @ matrix / 64
            numbers = np.sort(numbers)
            sum(range(2000))

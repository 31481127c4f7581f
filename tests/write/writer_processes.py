"""What other processes do in the tests of the writer; importable from a new interpreter."""

from __future__ import annotations

import multiprocessing
import os
import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np

from guideloom_format import ShardConflictError, StreamNumpyFormat, StreamStorage
from guideloom_write import StreamWriter, _shard_writer
from guideloom_write._owners import Owners
from write.faulty_files import Watched
from write.known_content import elements, storage

P = ParamSpec("P")
T = TypeVar("T")
SECONDS = 60

_barriers: list[Barrier] = []


def in_new_process(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The function's value, computed in an interpreter of its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *args, **kwargs).result(timeout=SECONDS)


def at_the_same_time(count: int, function: Callable[[int, Path], T], directory: Path) -> list[T]:
    """The values of ``function(rank, directory)`` in `count` processes, which meet in `meet`."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(count)
    with ProcessPoolExecutor(
        count, mp_context=context, initializer=_keep, initargs=(barrier,)
    ) as pool:
        futures = [pool.submit(function, rank, directory) for rank in range(count)]
        return [future.result(timeout=SECONDS) for future in futures]


def _keep(barrier: Barrier) -> None:
    _barriers.append(barrier)


def meet() -> None:
    """Wait until all processes are here."""
    _barriers[0].wait(SECONDS)


ROUNDS = 20


def create_and_race(rank: int, directory: Path) -> list[tuple[str, str | None]]:
    """Each round: create a new dataset at once, commit an own shard, fight for shard 0.

    Returns the dataset id that was found, and the text of the conflict if the shard was lost.
    """
    outcomes: list[tuple[str, str | None]] = []
    Owners.claim = lambda *_: False  # type: ignore[method-assign]  # the commit decides alone
    for number in range(ROUNDS):
        place = directory / str(number)
        meet()
        with StreamWriter(storage(place)) as writer:
            assert writer._header is not None
            dataset_id = writer._header.dataset_id
            writer.append(rank + 1, elements(rank + 1, 0, 100 + rank))
        writer = StreamWriter(storage(place)).open()
        writer.append(0, elements(0, 0, 10 + rank))
        meet()
        conflict = None
        try:
            writer.commit()
        except ShardConflictError as error:
            conflict = str(error)
        writer.close()
        outcomes.append((dataset_id, conflict))
    return outcomes


def write_own_shards(rank: int, directory: Path) -> int:
    """Three shards, two parts each, written side by side with the other processes."""
    meet()
    for first in (0, 50):
        with StreamWriter(storage(directory)) as writer:
            for shard in range(3 * rank, 3 * rank + 3):
                writer.append(shard, elements(shard, first, first + 50))
    return os.getpid()


def write_many_shards(directory: Path, shards: int, descriptors: int, most_open: int) -> int:
    """Two rounds over many shards with few descriptors; the most that were open at once."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    _shard_writer.MOST_OPEN_PARTS = most_open
    most = 0

    class Counted(Watched):
        def create(self, path: str) -> int:
            nonlocal most
            descriptor = super().create(path)
            most = max(most, self.open_count())
            return descriptor

        def reopen(self, path: str) -> int:
            nonlocal most
            descriptor = super().reopen(path)
            most = max(most, self.open_count())
            return descriptor

    with StreamWriter(storage(directory), files=Counted()) as writer:
        for start in (0, 7):
            for shard in range(shards):
                writer.append(shard, elements(shard, start, start + 7))
    return most


def write_64_mib(directory: Path) -> int:
    """KiB by which the peak of resident memory grew while 64 MiB went to one shard."""
    values = np.arange(1 << 18, dtype=np.uint32)
    place = StreamStorage(directory, StreamNumpyFormat([("token", "<u4")]))
    with StreamWriter(place, files=Watched()) as writer:
        writer.append(0, {"token": values})
        writer.commit()
        before = peak_kib()
        for _ in range(64):
            writer.append(0, {"token": values})
    return peak_kib() - before


def peak_kib() -> int:
    """The most memory that this process ever had; `getrusage` begins with that of its parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0])


def write_past_the_size_limit(directory: Path) -> tuple[str, int | None]:
    """The error of a real write that the operating system refuses half way."""
    with StreamWriter(storage(directory)) as writer:
        writer.append(0, elements(0, 0, 1000))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    writer = StreamWriter(storage(directory)).open()
    try:
        writer.append(0, elements(0, 1000, 301_000))
    except OSError as error:
        return str(error), error.errno
    finally:
        writer.close()
    return "no error", None

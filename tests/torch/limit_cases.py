"""Loaders in processes that may open few files, have little memory, or no shared memory at all.

As a command, it loads a dataset of 400 parts in each of the modes and prints what came out:

    python -m tests.torch.limit_cases FOLDER DESCRIPTORS MODE …
"""

from __future__ import annotations

import errno
import gc
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from guideloom import StatefulDataLoader
from guideloom_read.io._open_files import default_limit
from read.stream_cases import PLAIN, numpy_stream

from .loader_cases import wait_until
from .process_cases import by_processes, descriptors, descriptors_within, load, resident, workers_of

MODES: dict[str, dict[str, Any]] = {
    "in the loop": {},
    "one thread": {"prefetch": 3},
    "threads": {"num_workers": 3, "prefetch": 2},
    "fork": by_processes("fork", 2, prefetch=2),
}
ALL_MODES = {
    **MODES,
    "forkserver": by_processes("forkserver", 2, prefetch=2),
    "spawn": by_processes("spawn", 1, prefetch=2),
}
PARTS = {shard: [3, 7, 5, 3] for shard in range(100)}
LENGTH = 3


class Large:
    """The first numbers of all samples, and an array; of every other batch it is so large."""

    def __init__(self, nbytes: int, every: bool = False) -> None:
        self.nbytes = nbytes
        self.every = every

    def __call__(self, samples: list[Any]) -> Any:
        numbers = [int(next(iter(sample.values()))[0]) for sample in samples]
        large = self.every or sum(numbers) % 2
        return numbers, np.full(self.nbytes if large else 8, len(samples), np.uint8)


def every_mode(folder: Path, limit: int, names: list[str]) -> list[list[Any]]:
    """For each mode: batches that came as they should, the most descriptors, those kept open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    storage, elements = numpy_stream(folder / "stream", PLAIN, PARTS)
    wanted = elements["token"][::LENGTH].reshape(-1, 20).tolist()
    found = []
    for name in names:
        right = most = warm = 0
        with StatefulDataLoader.from_storage(
            storage, Large(50_000), sequence_length=LENGTH, local_batch_size=20, **ALL_MODES[name]
        ) as loader:
            for epoch in range(2):
                for (numbers, more), expected in zip(loader, wanted, strict=True):
                    right += numbers == expected and bool((more == 20).all())
                    most = max(most, descriptors())
                kept = descriptors_within(storage.directory)
                assert kept <= default_limit(), kept  # fewer if threads gave up files together
                others = descriptors() - kept
                warm = warm if epoch else others
                assert others <= warm, (others, warm)
        gc.collect()
        found.append([name, right, most, descriptors()])
    return found


# What has run out


@contextmanager
def little_memory(nbytes: int) -> Iterator[None]:
    """Within, this process and those that it forks can map so many bytes more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + nbytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


SAYS = (
    os.strerror(errno.EMFILE),  # "Too many open files"
    "too many open files",
    os.strerror(errno.ENOMEM),  # "Cannot allocate memory"
    "Unable to allocate",  # NumPy
    "can't allocate memory",  # torch
    "can't start new thread",
)


def says_what_ran_out(error: BaseException) -> bool:
    """Whether it is an error by which a user finds the limit."""
    texts = [str(error), *getattr(error, "__notes__", [])]
    texts += [str(error.__cause__)] if error.__cause__ is not None else []
    return isinstance(error, MemoryError) or any(one in text for text in texts for one in SAYS)


# What must not grow


def children_resident(loader: StatefulDataLoader) -> int:
    """Bytes of memory of this process and of its workers."""
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in workers_of(loader)]
    return resident() + sum(pages) * os.sysconf("SC_PAGE_SIZE")


def grown_by_samples(kind: str, directory: Path, mode: str, samples: int) -> list[float]:
    """Memory of all processes after so many samples as a share of that after a tenth of them."""

    def take(count: int) -> None:
        while count > 0:
            for batch in loader:
                count -= 500
                del batch

    options = {"local_batch_size": 500, **MODES[mode]}
    if kind == "documents":
        options["pad_to"] = 8
    with load(kind, directory, **options) as loader:
        take(samples // 10)
        gc.collect()
        before = [children_resident(loader), settled(threading.active_count), descriptors()]
        take(samples)
        gc.collect()
        after = [children_resident(loader), settled(threading.active_count), descriptors()]
    return [after[0] / before[0], after[1] - before[1], after[2] - before[2]]


def grown_by_iterators(directory: Path, mode: str, count: int) -> list[float]:
    """The same after so many iterators, each dropped after its first batch."""

    def drop(count: int) -> None:
        for _ in range(count):
            loader.set_epoch(loader.epoch + 1)
            next(iter(loader))

    with load("stream", directory, **MODES[mode]) as loader:
        drop(count // 5)
        threads = settled(threading.active_count)
        gc.collect()
        before = [children_resident(loader), threads, descriptors()]
        drop(count)
        gc.collect()
        assert wait_until(5, lambda: threading.active_count() <= threads), threading.enumerate()
        after = [children_resident(loader), threads, descriptors()]
    return [after[0] / before[0], after[1] - before[1], after[2] - before[2]]


def settled(value: Any) -> int:
    """A number once it has stayed the same for a while."""
    last, since = value(), time.monotonic()
    while time.monotonic() - since < 0.1:
        if value() != last:
            last, since = value(), time.monotonic()
        time.sleep(0.005)
    return int(last)


def entries(folder: str) -> list[str]:
    """What is in a folder."""
    return sorted(os.listdir(folder))


if __name__ == "__main__":
    result = every_mode(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    print(json.dumps([result, entries("/dev/shm")]))

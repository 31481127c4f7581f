"""What other processes do in the tests of readers; importable from a new interpreter."""

from __future__ import annotations

import os
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from guideloom.types import IOReader
from guideloom_format import StreamNumpyFormat, StreamStorage
from guideloom_read import verify
from read.stream_cases import PLAIN


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def read_with_few_descriptors(
    directory: Path, io: IOReader | None, descriptors: int, threads: int
) -> tuple[list[list[int]], int, int]:
    """Windows of all parts in random order, read by several threads with `ulimit -n` lowered.

    Returns the elements that each thread read, in the stream's order; the elements that `verify`
    saw; and the descriptors that are open after the reader was closed, less those before.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    storage = StreamStorage(directory, StreamNumpyFormat(PLAIN), io)
    before = open_descriptors()
    with storage.sync_reader() as reader:
        count = reader.windows(2, 2)

        def read(seed: int) -> list[int]:
            found = np.zeros((count, 2), dtype=np.uint32)
            order = np.random.default_rng(seed).permutation(count)
            for ids in np.array_split(order, 7):
                found[ids] = reader.elements(ids, 2, 2)["token"]
            return [int(token) for token in found.reshape(-1)]

        with ThreadPoolExecutor(threads) as pool:
            tokens = list(pool.map(read, range(threads)))
    report = verify(directory, io)
    assert report.clean, report.faults
    return tokens, report.nbytes // 4, open_descriptors() - before

"""What other processes do in the tests of announcing; importable from a new interpreter."""

from __future__ import annotations

import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from guideloom.types import IOReader
from guideloom_format import StreamNumpyFormat, StreamStorage
from guideloom_read import StreamDataset
from read.announce_cases import open_descriptors
from read.stream_cases import PLAIN


def announce_with_few_descriptors(
    directory: Path, io: IOReader | None, descriptors: int, threads: int
) -> tuple[list[list[int]], int, int]:
    """Each thread reads all windows in an order of its own, and announces three batches ahead.

    Returns the elements that each thread read, in the stream's order; the most descriptors that
    were open; and those open after the reader was closed; both less those before.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    storage = StreamStorage(directory, StreamNumpyFormat(PLAIN), io)
    most = before = open_descriptors()
    with StreamDataset(storage, 2).sync_reader() as reader:

        def read(seed: int) -> list[int]:
            nonlocal most
            found = np.zeros((len(reader), 2), dtype=np.uint32)
            order = np.random.default_rng(seed).permutation(len(reader))
            batches = np.array_split(order, 20)
            for number, ids in enumerate(batches):
                if number + 3 < len(batches):
                    reader.announce(batches[number + 3])
                found[ids] = reader.gather(ids)["token"]
                most = max(most, open_descriptors())
            return [int(token) for token in found.reshape(-1)]

        with ThreadPoolExecutor(threads) as pool:
            tokens = list(pool.map(read, range(threads)))
    return tokens, most - before, open_descriptors() - before

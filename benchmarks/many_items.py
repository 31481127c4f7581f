"""Resident memory while very many documents, or spans, are written and read: for memory.py.

The items are small: it is their number that counts. A writer keeps all of them in one part that is
committed at the end; a reader delivers each once, in random order, in batches of 32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from document_set import FORMAT, document_bytes, document_lengths
from guideloom import (
    DocumentBytesFormat,
    DocumentStorage,
    StreamDataset,
    StreamSpansFormat,
    StreamWithMetaStorage,
)
from machine import resident

BATCH = 32
SAMPLES = 10  # of the memory, the first one when a tenth is done
POOL = 4096  # documents in memory, written in turn
SHORTER = 8  # than the documents of the other benchmarks
SPAN = 20  # tokens
SPANS = 64  # of an append
WINDOW = 64


def sampled(call: Callable[[Any], object], arguments: Sequence[Any]) -> list[int]:
    """Resident memory after every tenth of the calls."""
    samples = []
    every = max(1, len(arguments) // SAMPLES)
    for number, argument in enumerate(arguments, 1):
        call(argument)
        if number % every == 0:
            samples.append(resident())
    return samples


def shuffled_batches(count: int) -> list[NDArray[np.int64]]:
    """All ids below `count`, in random order."""
    ids = np.random.default_rng(6).permutation(count)
    return list(ids[: count // BATCH * BATCH].reshape(-1, BATCH))


def document_samples(folder: Path, count: int) -> dict[str, list[int]]:
    """Samples of memory, by what was done with so many documents."""
    pool = list(document_bytes(document_lengths(POOL) // SHORTER))
    documents = [pool[k % POOL] for k in range(count)]
    storage = DocumentStorage(folder / "documents", FORMAT)
    samples = {}
    with storage.sync_writer() as writer:
        samples["append"] = sampled(lambda document: writer.append(0, document), documents)
    batches = shuffled_batches(count)
    with storage.sync_reader() as reader:
        samples["gather"] = sampled(reader.gather, batches)
        samples["read_many"] = sampled(reader.read_many, batches)
    return {f"{count:,} documents, {name}": values for name, values in samples.items()}


def span_samples(folder: Path, count: int) -> dict[str, list[int]]:
    """Samples of memory, by what was done with a stream of so many spans."""
    rng = np.random.default_rng(7)
    format_ = StreamSpansFormat(np.dtype("<u2"), DocumentBytesFormat())
    storage = StreamWithMetaStorage(folder / "spans", format_)
    payloads = [f"{k:016}".encode() for k in range(SPANS)]
    appends = []
    for _ in range(256):
        runs = rng.geometric(1 / SPAN, SPANS)
        appends.append((rng.integers(0, 1 << 16, runs.sum(), np.uint16), runs, payloads))
    turns = [appends[k % len(appends)] for k in range(count // SPANS)]
    samples = {}
    with storage.sync_writer() as writer:
        samples["append"] = sampled(lambda append: writer.append(0, append), turns)
    with StreamDataset(storage, WINDOW).sync_reader() as reader:
        batches = shuffled_batches(len(reader))
        samples["gather"] = sampled(reader.gather, batches)
        samples["reader[ids]"] = sampled(reader.__getitem__, batches)
    return {f"{count:,} spans, {name}": values for name, values in samples.items()}

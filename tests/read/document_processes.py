"""What other processes do in the tests of documents; importable from a new interpreter."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from guideloom import DocumentDataset, DocumentNumpyFormat, DocumentStorage
from guideloom.io import PosixPreadIO
from guideloom_write import DocumentWriter
from write.faulty_files import Watched
from write.writer_processes import peak_kib

SHARDS = 3
PER_CALL = 1000


def storage_at(directory: Path) -> DocumentStorage:
    return DocumentStorage(directory, DocumentNumpyFormat("<u2"), PosixPreadIO())


def documents(first: int, stop: int) -> list[np.ndarray]:
    """Document i has i % 5 + 1 values, all of them i % 65536."""
    return [np.full(k % 5 + 1, k % 65536, dtype="<u2") for k in range(first, stop)]


def write_many(directory: Path, count: int) -> int:
    """KiB by which the peak of memory grew while `count` documents went to three shards.

    The first three quarters by an `append` for each, the others by `extend`. Nothing is committed
    until the end.
    """
    _write(directory.with_name("before"), 10 * PER_CALL)
    before = peak_kib()
    _write(directory, count)
    return peak_kib() - before


def _write(directory: Path, count: int) -> None:
    with DocumentWriter(storage_at(directory), files=Watched()) as writer:
        for call, first in enumerate(range(0, count, PER_CALL)):
            shard = call % SHARDS
            together = documents(first, first + PER_CALL)
            if first >= count - count // 4:
                writer.extend(shard, together)
            else:
                for document in together:
                    writer.append(shard, document)


def read_many(directory: Path, count: int) -> tuple[int, int]:
    """All documents once, at random: KiB by which the peak grew, and how many were wrong."""
    numbers = np.concatenate(
        [
            np.arange(first, first + PER_CALL)
            for shard in range(SHARDS)
            for first in range(shard * PER_CALL, count, SHARDS * PER_CALL)
        ]
    )
    with DocumentDataset(storage_at(directory)).sync_reader() as reader:
        assert len(reader) == count
        order = np.random.default_rng(0).permutation(count).reshape(-1, PER_CALL)
        wrong = 0
        before = 0
        for step, ids in enumerate(order):
            if step == 10:
                before = peak_kib()
            wanted = numbers[ids]
            ragged = reader.gather(ids)
            lengths = wanted % 5 + 1
            wrong += int((ragged.lengths != lengths).sum())
            wrong += int((ragged.values != np.repeat(wanted % 65536, lengths)).sum())
            if step % 10 == 0:
                sample = reader.read_many(ids[:50])
                wrong += sum(one.tolist() != [n] * k for one, n, k in zip(
                    sample, (wanted % 65536).tolist(), lengths.tolist(), strict=False))  # fmt: skip
                reader.gather_padded(ids)
        return peak_kib() - before, wrong

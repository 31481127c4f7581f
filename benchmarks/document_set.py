"""The data of the document benchmarks: a million documents of random bytes, in the page cache."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from guideloom import DocumentBytesFormat, DocumentStorage
from guideloom.types import IOReader
from machine import kibibytes

BATCH = 32
MEDIAN = 1200  # bytes
SIGMA = 1.0  # of the logarithm of a length: the mean is 1.65 times the median
FORMAT = DocumentBytesFormat()
_POOL = 64 << 20
_LONGEST = 1 << 20


@dataclass(frozen=True)
class DocumentSet:
    """A dataset on disk: `count` documents in `shards` shards of equal length."""

    directory: Path
    count: int
    shards: int

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each document: the same ones, however many shards."""
        return document_lengths(self.count)

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Where each document ends in the file of its shard."""
        sizes = self.lengths.reshape(self.shards, -1)
        return np.cumsum(sizes, axis=1).reshape(-1)

    @property
    def per_shard(self) -> int:
        """Documents of each shard."""
        return self.count // self.shards

    @property
    def largest_batch(self) -> int:
        """Bytes that hold any batch, also one of the longest document alone."""
        return BATCH * int(self.lengths.max())

    def storage(self, backend: IOReader | None = None) -> DocumentStorage:
        """The documents, read through `backend`."""
        return DocumentStorage(self.directory, FORMAT, backend)

    def files(self, role: str) -> list[Path]:
        """The data files of a role, shard by shard."""
        return sorted(self.directory.glob(f"data/*/*.{role}"))


def document_lengths(count: int) -> NDArray[np.int64]:
    """Log-normal lengths, the same ones for the same count."""
    drawn = np.random.default_rng(0).lognormal(np.log(MEDIAN), SIGMA, count)
    lengths: NDArray[np.int64] = np.minimum(drawn, _LONGEST).astype(np.int64)
    return lengths


def document_bytes(lengths: NDArray[np.int64]) -> Iterator[bytes]:
    """Documents of these lengths, cut from random bytes; the same ones for the same lengths."""
    rng = np.random.default_rng(1)
    pool = rng.bytes(_POOL)
    firsts = rng.integers(0, _POOL - _LONGEST, lengths.size)
    for first, length in zip(firsts.tolist(), lengths.tolist(), strict=True):
        yield pool[first : first + length]


def prepare_documents(work: Path, count: int, shards: int) -> DocumentSet:
    """Write the dataset unless it is there, and read it once, so that the page cache holds it.

    It is made smaller if disk or memory are short.
    """
    disk = shutil.disk_usage(work).free // 2
    memory = kibibytes("/proc/meminfo", "MemAvailable") * 1024 // 3
    fitting = min(disk, memory) // int(MEDIAN * np.exp(SIGMA**2 / 2))
    if fitting < count:
        print(f"only {fitting:,} of {count:,} documents fit", file=sys.stderr)
    count = max(shards * BATCH, min(count, fitting) // shards * shards)
    documents = DocumentSet(work / f"guideloom-documents-{count}-{shards}", count, shards)
    if not _complete(documents):
        _write(documents)
    for role in ("documents", "ends"):
        for path in documents.files(role):
            read_through(path)
    return documents


def read_through(path: Path) -> None:
    """Read a file, so that the page cache holds it."""
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 22):
            pass


def _complete(documents: DocumentSet) -> bool:
    if not (documents.directory / "guideloom.json").exists():
        return False
    with documents.storage().sync_reader() as reader:
        return len(reader) == documents.count


def _write(documents: DocumentSet) -> None:
    shutil.rmtree(documents.directory, ignore_errors=True)
    begin = time.perf_counter()
    source = document_bytes(documents.lengths)
    with documents.storage().sync_writer() as writer:
        for shard in range(documents.shards):
            for _ in range(documents.per_shard):
                writer.append(shard, next(source))
    seconds = time.perf_counter() - begin
    print(f"wrote {documents.count:,} documents in {seconds:.1f} s", file=sys.stderr)

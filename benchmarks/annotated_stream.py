"""The data of the benchmark of annotated streams: the same tokens with spans, and without."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from document_set import read_through
from guideloom import (
    DocumentBytesFormat,
    StreamDataset,
    StreamNumpyFormat,
    StreamSpansFormat,
    StreamStorage,
    StreamWithMetaStorage,
)
from guideloom.types import IOReader
from machine import kibibytes

WINDOW = 2048
BATCH = 32
SHARDS = 8
MEAN = 1000  # tokens of a span
SIGMA = 1.0  # of the logarithm of a length
PAYLOAD = "{:04}-{:011}"  # shard, and span of the shard: 16 bytes
_APPEND = 1000  # spans


@dataclass(frozen=True)
class AnnotatedStream:
    """Two datasets on disk, `SHARDS` shards of equal length each: with spans, and plain."""

    directory: Path
    tokens: int
    dtype: np.dtype[Any]

    @cached_property
    def runs(self) -> list[NDArray[np.int64]]:
        """Lengths of the spans, shard by shard."""
        return [span_lengths(shard, self.tokens // SHARDS) for shard in range(SHARDS)]

    @property
    def spans(self) -> int:
        """Spans of the stream."""
        return sum(runs.size for runs in self.runs)

    def annotated(self, backend: IOReader | None = None) -> StreamDataset:
        """The windows of the stream with spans."""
        return StreamDataset(self._with_spans(backend), WINDOW)

    def plain(self, backend: IOReader | None = None) -> StreamDataset:
        """The windows of the stream without."""
        return StreamDataset(self._without(backend), WINDOW)

    def bytes_of(self, role: str) -> int:
        """Size of all files of a role in the dataset with spans."""
        folder = self.directory / "annotated"
        return sum(path.stat().st_size for path in folder.glob(f"data/*/*.{role}"))

    def complete(self) -> bool:
        """Whether both datasets are there."""
        for storage in (self._with_spans(), self._without()):
            if not (Path(storage.directory) / "guideloom.json").exists():
                return False
            with storage.sync_reader() as reader:
                if len(reader) != self.tokens:
                    return False
        return True

    def write(self) -> None:
        """Write both datasets."""
        rng = np.random.default_rng(0)
        high = min(1 << 17, np.iinfo(self.dtype).max)
        with (
            self._with_spans().sync_writer() as annotated,
            self._without().sync_writer() as plain,
        ):
            for shard, runs in enumerate(self.runs):
                for first in range(0, runs.size, _APPEND):
                    some = runs[first : first + _APPEND]
                    names = range(first, first + some.size)
                    payloads = [PAYLOAD.format(shard, name).encode() for name in names]
                    tokens = rng.integers(0, high, int(some.sum()), dtype=self.dtype)
                    annotated.append(shard, (tokens, some, payloads))
                    plain.append(shard, {"tokens": tokens})

    def _with_spans(self, backend: IOReader | None = None) -> StreamWithMetaStorage:
        format_ = StreamSpansFormat(self.dtype, DocumentBytesFormat())
        return StreamWithMetaStorage(self.directory / "annotated", format_, backend)

    def _without(self, backend: IOReader | None = None) -> StreamStorage:
        format_ = StreamNumpyFormat(np.dtype([("tokens", self.dtype)]))
        return StreamStorage(self.directory / "plain", format_, backend)


def span_lengths(seed: int, tokens: int) -> NDArray[np.int64]:
    """Log-normal lengths with a mean of `MEAN` that sum up to `tokens`; the last one is cut."""
    rng = np.random.default_rng(seed)
    center = np.log(MEAN) - SIGMA**2 / 2
    drawn = np.maximum(rng.lognormal(center, SIGMA, 2 * tokens // MEAN + 10), 1).astype(np.int64)
    ends = np.cumsum(drawn)
    last = int(np.searchsorted(ends, tokens))
    runs: NDArray[np.int64] = drawn[: last + 1].copy()
    runs[last] -= ends[last] - tokens
    return runs


def prepare_annotated(work: Path, tokens: int, dtype: np.dtype[Any]) -> AnnotatedStream:
    """Write the datasets unless they are there, and read them, so that the page cache holds them.

    They are made smaller if disk or memory are short.
    """
    disk = shutil.disk_usage(work).free // 2
    memory = kibibytes("/proc/meminfo", "MemAvailable") * 1024 // 2
    fitting = min(disk, memory) // (2 * dtype.itemsize)
    if fitting < tokens:
        print(f"only {fitting:,} of {tokens:,} tokens fit: half of what is free", file=sys.stderr)
    unit = SHARDS * WINDOW
    tokens = max(unit, min(tokens, fitting) // unit * unit)
    name = f"guideloom-annotated-{tokens}-{dtype.name}"
    stream = AnnotatedStream(work / name, tokens, dtype)
    if not stream.complete():
        shutil.rmtree(stream.directory, ignore_errors=True)
        begin = time.perf_counter()
        stream.write()
        seconds = time.perf_counter() - begin
        print(f"wrote {tokens:,} tokens twice in {seconds:.1f} s", file=sys.stderr)
    for path in sorted(stream.directory.glob("*/data/*/*")):
        read_through(path)
    return stream

"""The data of the reading benchmarks: a stream of random uint16 tokens, in the page cache."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from guideloom import StreamDataset, StreamNumpyFormat, StreamStorage
from guideloom.types import IOReader
from machine import kibibytes

WINDOW = 2048
BATCH = 32
SHARDS = 8
FORMAT = StreamNumpyFormat(np.dtype([("tokens", "<u2")]))
_APPEND = 1 << 20


@dataclass(frozen=True)
class TokenStream:
    """A dataset on disk: `SHARDS` shards of equal length, whole windows in each."""

    directory: Path
    tokens: int

    @property
    def windows(self) -> int:
        """Windows of the stream."""
        return self.tokens // WINDOW

    @property
    def windows_per_shard(self) -> int:
        """Windows of each shard."""
        return self.windows // SHARDS

    def dataset(self, backend: IOReader | None = None) -> StreamDataset:
        """The windows as samples."""
        return StreamDataset(StreamStorage(self.directory, FORMAT, backend), WINDOW)

    def files(self) -> list[Path]:
        """The data files, shard by shard."""
        return sorted(self.directory.glob("data/*/*.elements"))


def prepare_stream(work: Path, tokens: int) -> TokenStream:
    """Write the dataset unless it is there, and read it once, so that the page cache holds it.

    It is made smaller if disk or memory are short.
    """
    disk = shutil.disk_usage(work).free // 2
    memory = kibibytes("/proc/meminfo", "MemAvailable") * 1024 // 2
    fitting = min(disk, memory) // FORMAT.stream_dtype.itemsize
    if fitting < tokens:
        print(f"only {fitting:,} of {tokens:,} tokens fit: half of what is free", file=sys.stderr)
    unit = SHARDS * WINDOW
    tokens = max(unit, min(tokens, fitting) // unit * unit)
    stream = TokenStream(work / f"guideloom-tokens-{tokens}", tokens)
    if not _complete(stream):
        _write(stream)
    for path in stream.files():
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 22):
                pass
    return stream


def _complete(stream: TokenStream) -> bool:
    if not (stream.directory / "guideloom.json").exists():
        return False
    with StreamStorage(stream.directory, FORMAT).sync_reader() as reader:
        return len(reader) == stream.tokens


def _write(stream: TokenStream) -> None:
    shutil.rmtree(stream.directory, ignore_errors=True)
    begin = time.perf_counter()
    per_shard = stream.tokens // SHARDS
    rng = np.random.default_rng(0)
    with StreamStorage(stream.directory, FORMAT).sync_writer() as writer:
        for shard in range(SHARDS):
            for first in range(0, per_shard, _APPEND):
                count = min(_APPEND, per_shard - first)
                writer.append(shard, {"tokens": rng.integers(0, 1 << 16, count, dtype=np.uint16)})
    seconds = time.perf_counter() - begin
    print(f"wrote {stream.tokens:,} tokens in {seconds:.1f} s", file=sys.stderr)

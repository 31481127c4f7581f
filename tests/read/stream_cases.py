"""Streams cut into shards and parts in any way, the arrays they should read as, and backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from guideloom.io import MmapIO, PosixPreadIO, RangeFiles, SeekIO
from guideloom.types import IOFiles, IOReader, IOSession
from guideloom_format import (
    CommitRecord,
    FileFacts,
    Header,
    Manifest,
    Owner,
    Part,
    StreamNumpyFormat,
    StreamStorage,
    StreamStorageFormat,
    crc32c,
)
from guideloom_read._contents import read_contents, read_header
from guideloom_write import StreamWriter
from write.faulty_files import Watched

Cuts = Mapping[int, Sequence[int]]
"""For each shard the lengths of its parts."""

PLAIN = np.dtype([("token", "<u4")])
PACKED = np.dtype([("token", "<u4"), ("mask", "?")])
MIXED = np.dtype(
    [("token", "<u2"), ("mask", "?"), ("half", "<f2"), ("pair", "<i4", (2,)), ("text", "S3")]
)
GRID = np.dtype([("grid", "<i2", (2, 3))])
DTYPES = [PLAIN, PACKED, MIXED, GRID]


def values(dtype: np.dtype[Any], count: int, seed: int = 0) -> NDArray[Any]:
    """Elements of any type with bytes from 1 to 9 at random, booleans 0 or 1."""
    rng = np.random.default_rng(seed)
    out = rng.integers(1, 10, count * dtype.itemsize, dtype=np.uint8).view(dtype)
    for name in dtype.names or ():
        if dtype[name].kind == "b":
            out[name] = rng.random(count) < 0.5
    return out


def fields(elements: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Structured elements as `StreamNumpyFormat` takes and gives them."""
    return {name: elements[name] for name in elements.dtype.names or ()}


def shards_of(cuts: Cuts) -> NDArray[np.int64]:
    """The shard of every element."""
    pairs = [(shard, sum(cuts[shard])) for shard in sorted(cuts)]
    return np.repeat([shard for shard, _ in pairs], [length for _, length in pairs])


def write_cut(storage: StreamStorage, cuts: Cuts, elements: NDArray[Any]) -> None:
    """Write these elements as the dataset that is cut in this way; empty parts are left out."""
    with StreamWriter(storage, files=Watched()) as writer:
        for number in range(max(map(len, cuts.values()), default=0)):
            at = 0
            for shard in sorted(cuts):
                parts = cuts[shard]
                if number < len(parts):
                    start = at + sum(parts[:number])
                    chunk = elements[start : start + parts[number]]
                    structured = isinstance(storage.storage_format, StreamNumpyFormat)
                    writer.append(shard, fields(chunk) if structured else chunk)
                at += sum(parts)
            writer.commit()


def numpy_stream(
    directory: Path, dtype: DTypeLike, cuts: Cuts, io: IOReader | None = None, seed: int = 0
) -> tuple[StreamStorage, NDArray[Any]]:
    """A dataset of random elements that is cut in this way, and the elements."""
    storage = StreamStorage(directory, StreamNumpyFormat(dtype), io)
    total = sum(sum(parts) for parts in cuts.values())
    elements = values(storage.element_type, total, seed)
    write_cut(storage, cuts, elements)
    return storage, elements


def consolidate(directory: Path) -> None:
    """Write the manifest of what is committed."""
    session = PosixPreadIO().open(str(directory))
    header = read_header(session, str(directory))
    table = read_contents(session, str(directory), header).table
    (directory / "manifest.json").write_bytes(Manifest(header.dataset_id, 1, table).encode())


def craft(directory: Path, dtype: DTypeLike, sizes: Mapping[tuple[int, int], int]) -> StreamStorage:
    """A dataset with parts of these lengths, made by hand: sparse files full of zeros.

    The checksums are those of nothing, so it can be read and not verified, unless it is empty.
    """
    storage = StreamStorage(directory, StreamNumpyFormat(dtype))
    (directory / "commits").mkdir(parents=True)
    (directory / "data").mkdir()
    header = Header("stream", storage.element_type, {"name": "stream-numpy", "parameters": {}})
    (directory / "guideloom.json").write_bytes(header.encode())
    for (shard, part), length in sizes.items():
        stem = f"{shard}-{part}"
        nbytes = length * storage.element_type.itemsize
        facts = {"elements": nbytes, "elements.crc": 4 * -(-nbytes // 65536)}
        for role, size in facts.items():
            with open(directory / f"data/{stem}.{role}", "wb") as file:
                file.truncate(size)
        record = CommitRecord(
            header.dataset_id,
            Part(
                shard,
                part,
                "0123456789abcdef",
                length,
                stem,
                {role: FileFacts(size, crc32c(b"")) for role, size in facts.items()},
            ),
            Owner("host", 1, "2024-01-01T00:00:00+00:00"),
        )
        (directory / f"commits/{shard:07d}-{part:04d}.json").write_bytes(record.encode())
    return storage


class Origins:
    """A custom format: a sample is the window and where it came from."""

    def __init__(self, dtype: DTypeLike = "<u4") -> None:
        self.stream_dtype = np.dtype(dtype)

    def pack(self, data: NDArray[Any]) -> NDArray[Any]:
        return data

    def unpack(
        self, stream: NDArray[Any], shard_lengths: Sequence[int], shards: Sequence[int]
    ) -> tuple[NDArray[Any], list[int], list[int]]:
        return stream, list(shard_lengths), list(shards)


class BatchOrigins(Origins):
    """The same with a fast path for batches."""

    def unpack_batch(self, stream: NDArray[Any]) -> NDArray[Any]:
        return stream + 1


def is_stream_format(storage_format: StreamStorageFormat) -> StreamStorageFormat:
    """Checked by mypy: what is above fits the protocol without inheriting from it."""
    return storage_format


@dataclass(frozen=True)
class MemoryIO:
    """A backend as a user would write one: files in a dict, from `guideloom.types` alone.

    Args:
        files: name and content, relative to any directory.
        lists: whether the storage can list names.
    """

    files: Mapping[str, bytes]
    lists: bool = True
    log: list[tuple[str, int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, directory: Path, *, lists: bool = True) -> MemoryIO:
        """The files of a directory as they are now."""
        found = (path for path in directory.rglob("*") if path.is_file())
        return cls({str(path.relative_to(directory)): path.read_bytes() for path in found}, lists)

    def open(self, directory: str) -> IOSession:
        del directory
        return _MemorySession(self)


class _MemorySession:
    def __init__(self, io: MemoryIO) -> None:
        self._io = io

    def list_names(self, folder: str) -> list[str] | None:
        if not self._io.lists:
            return None
        prefix = f"{folder}/" if folder else ""
        below = [name.removeprefix(prefix) for name in self._io.files if name.startswith(prefix)]
        return sorted({name.split("/")[0] for name in below})

    def read_file(self, name: str, limit: int) -> bytes:
        if name not in self._io.files:
            raise FileNotFoundError(name)
        return self._io.files[name][: limit + 1]

    def file_size(self, name: str) -> int:
        if name not in self._io.files:
            raise FileNotFoundError(name)
        return len(self._io.files[name])

    def open_files(self, names: Sequence[str], sizes: NDArray[np.int64]) -> IOFiles:
        return RangeFiles(self._read_range, names, sizes)

    def close(self) -> None:
        pass

    def _read_range(self, name: str, offset: int, nbytes: int) -> bytes:
        self._io.log.append((name, offset, nbytes))
        return self._io.files[name][offset : offset + nbytes]


Backend = Callable[[Path], IOReader]
"""Makes a backend for a dataset that is there already."""

BACKENDS: dict[str, Backend] = {
    "pread": lambda _: PosixPreadIO(),
    "pread, 1 file": lambda _: PosixPreadIO(max_open_files=1),
    "pread, 2 files": lambda _: PosixPreadIO(max_open_files=2),
    "mmap": lambda _: MmapIO(),
    "mmap, 1 file": lambda _: MmapIO(max_open_files=1),
    "seek": lambda _: SeekIO(),
    "of a user": MemoryIO.of,
}

"""A stream whose every element says where it belongs, and scripts of what a writer does with it.

Element i of shard s is ``{"place": (s + 1) << 32 | i, "flag": (s + i) % 251}``, so a reader checks
any byte without a second copy, and a shift, a hole or a foreign part cannot pass. `Known` is what
this stream has in common with documents and streams with metadata of which every byte is known.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from guideloom_format import DatasetNotFoundError, StreamNumpyFormat, StreamStorage
from guideloom_write import StreamWriter
from guideloom_write._files import PosixFiles
from guideloom_write._shard_writer import ShardWriter
from write.faulty_files import Watched

ELEMENT = np.dtype([("place", "<u8"), ("flag", "u1")])
COMMIT = None
Script = Sequence[tuple[int, int] | None]
"""(shard, elements to append), or COMMIT. Leaving the writer commits once more."""

WriterT = TypeVar("WriterT", bound=ShardWriter)


class Known(ABC, Generic[WriterT]):
    """Data of which every byte is known, so that a reader checks it without a second copy."""

    roles: tuple[str, ...]
    """The data files of a part."""

    @abstractmethod
    def writer(self, directory: Path, files: PosixFiles) -> WriterT:
        """A writer of such data, not open yet."""

    @abstractmethod
    def append(self, writer: WriterT, shard: int, start: int, stop: int) -> None:
        """Append what the shard has from `start` to `stop`."""

    @abstractmethod
    def visible(self, directory: Path) -> dict[int, int] | None:
        """Length of each shard that a reader finds, all of it checked; None: no dataset."""

    def play(
        self,
        directory: Path,
        files: PosixFiles,
        script: Script,
        acknowledged: dict[int, int] | None = None,
    ) -> None:
        """Let a writer do this; `acknowledged` takes the lengths of shards as commits return."""
        with self.writer(directory, files) as writer:
            for step in script:
                if step is COMMIT:
                    writer.commit()
                    if acknowledged is not None:
                        acknowledged.update(
                            {shard: writer.length(shard) for shard in shards_of(script)}
                        )
                else:
                    shard, count = step
                    at = writer.length(shard)
                    self.append(writer, shard, at, at + count)

    def complete(
        self, directory: Path, files: PosixFiles, wanted: Mapping[int, int], chunk: int = 10**6
    ) -> None:
        """What a restarted job does: go on from `length(shard)` until each shard has all of it."""
        with self.writer(directory, files) as writer:
            for shard, total in wanted.items():
                for start in range(writer.length(shard), total, chunk):
                    self.append(writer, shard, start, min(start + chunk, total))


def storage(directory: str | os.PathLike[str]) -> StreamStorage:
    return StreamStorage(directory, StreamNumpyFormat(ELEMENT))


def writer_at(directory: Path) -> StreamWriter:
    return StreamWriter(storage(directory), files=Watched())


class Returned:
    """A storage format whose `pack` returns whatever it is given."""

    def __init__(self, dtype: str = "<u4") -> None:
        self.stream_dtype = np.dtype(dtype)

    def pack(self, data: Any) -> NDArray[Any]:
        return data  # type: ignore[no-any-return]

    def unpack(
        self, stream: NDArray[Any], shard_lengths: Sequence[int], shards: Sequence[int]
    ) -> NDArray[Any]:
        del shard_lengths, shards
        return stream


def elements(shard: int, start: int, stop: int) -> dict[str, NDArray[Any]]:
    """What to append so that the shard has its elements `start` to `stop`."""
    index = np.arange(start, stop, dtype=np.uint64)
    return {
        "place": index | np.uint64((shard + 1) << 32),
        "flag": ((index + np.uint64(shard)) % np.uint64(251)).astype(np.uint8),
    }


class KnownElements(Known[StreamWriter]):
    """The elements of this module."""

    roles = ("elements",)

    def writer(self, directory: Path, files: PosixFiles) -> StreamWriter:
        return StreamWriter(storage(directory), files=files)

    def append(self, writer: StreamWriter, shard: int, start: int, stop: int) -> None:
        writer.append(shard, elements(shard, start, stop))

    def visible(self, directory: Path) -> dict[int, int] | None:
        try:
            with storage(directory).sync_reader() as reader:
                found = reader.read(0, len(reader))
        except DatasetNotFoundError:
            return None
        shards = (found["place"] >> np.uint64(32)).astype(np.int64) - 1
        assert np.all(np.diff(shards) >= 0), "shards out of order"
        lengths = {}
        for shard in np.unique(shards).tolist():
            mine = shards == shard
            expected = elements(shard, 0, int(mine.sum()))
            for name, values in expected.items():
                right = np.array_equal(found[name][mine], values)
                assert right, f"{name} of shard {shard} is wrong"
            lengths[shard] = int(mine.sum())
        return lengths


KNOWN_ELEMENTS = KnownElements()
visible, play, complete = KNOWN_ELEMENTS.visible, KNOWN_ELEMENTS.play, KNOWN_ELEMENTS.complete


def shards_of(script: Script) -> list[int]:
    return sorted({step[0] for step in script if step is not COMMIT})


def parts_of(script: Script) -> dict[tuple[int, int], int]:
    """Length of each part (shard, part) that the script commits, in the order of commits."""
    parts: dict[tuple[int, int], int] = {}
    pending: dict[int, int] = {}
    for step in (*script, COMMIT):
        if step is not COMMIT:
            pending[step[0]] = pending.get(step[0], 0) + step[1]
            continue
        for shard in sorted(pending):
            if pending[shard]:
                parts[shard, sum(1 for known, _ in parts if known == shard)] = pending[shard]
        pending = {}
    return parts


def rounds(shards: int, commits: int) -> Script:
    """Append to each shard and commit, again and again."""
    steps: list[tuple[int, int] | None] = []
    for commit in range(commits):
        steps += [(shard, 10 * commit + shard + 1) for shard in range(shards)]
        steps.append(COMMIT)
    return steps


def lengths_of(parts: Mapping[tuple[int, int], int]) -> dict[int, int]:
    """Elements of each shard that has these parts."""
    lengths: dict[int, int] = {}
    for (shard, _), length in parts.items():
        lengths[shard] = lengths.get(shard, 0) + length
    return lengths


def all_files(directory: Path) -> set[str]:
    """Names of all files below a directory."""
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()}


def garbage(directory: Path) -> set[str]:
    """Names of the files that belong to no part that was committed."""
    known = set()
    if (directory / "guideloom.json").exists():
        known.add("guideloom.json")
    for path in (directory / "commits").glob("*.json"):
        known.add(f"commits/{path.name}")
        record = json.loads(path.read_text(encoding="ascii"))
        known |= {f"data/{record['stem']}.{role}" for role in record["files"]}
    present = all_files(directory)
    assert known <= present, f"committed files are missing: {known - present}"
    return present - known

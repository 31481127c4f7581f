"""A backend that reads a dataset from memory, and datasets that are made there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from guideloom_format import (
    CommitRecord,
    DamagedFileError,
    FileFacts,
    FileIdentity,
    IOFiles,
    MissingFileError,
    Owner,
    Part,
    ReadError,
    _names,
    block_checksums,
    crc32c,
)
from guideloom_read.io._ranges import RangeFiles
from targets.record import DATASET_ID, TOKEN

OWNER = Owner("host", 1, "2026-01-02T03:04:05+00:00")
DIRECTORY = "folder"


class MemoryIO:
    """Reads files from a mapping of name to content, as strictly as the backends for disks."""

    def __init__(self, files: Mapping[str, bytes], *, can_list: bool = True) -> None:
        self._contents = files
        self._can_list = can_list

    def open(self, directory: str) -> MemoryIO:
        assert directory == DIRECTORY
        return self

    def list_names(self, folder: str) -> list[str] | None:
        if not self._can_list:
            return None
        if folder in self._contents:
            raise ReadError(f"{folder} is a file and cannot be listed")
        inside = f"{folder}/" if folder else ""
        names = (name for name in self._contents if name.startswith(inside))
        return sorted({name.removeprefix(inside).split("/")[0] for name in names})

    def read_file(self, name: str, limit: int) -> bytes:
        if name not in self._contents:
            raise FileNotFoundError(name)
        if len(self._contents[name]) > limit:
            raise DamagedFileError(f"{name} has more than {limit} bytes")
        return self._contents[name]

    def file_size(self, name: str) -> int:
        if name not in self._contents:
            raise FileNotFoundError(name)
        return len(self._contents[name])

    def open_files(self, names: Sequence[str], sizes: NDArray[np.int64]) -> IOFiles:
        stated = {name: int(size) for name, size in zip(names, sizes.tolist(), strict=True)}

        def read_range(name: str, offset: int, nbytes: int) -> bytes:
            if name not in self._contents:
                raise MissingFileError(f"the file {name} is not there")
            content = self._contents[name]
            if len(content) != stated[name]:
                raise DamagedFileError(f"{name} has {len(content)} bytes, not {stated[name]}")
            assert 0 <= offset < offset + nbytes <= len(content), "a read outside the file"
            return content[offset : offset + nbytes]

        return RangeFiles(read_range, names, sizes)

    def close(self) -> None:
        pass


def part_files(
    shard: int, part: int, length: int, contents: Mapping[str, bytes]
) -> dict[str, bytes]:
    """A record and data files with right sizes and checksums, whatever they hold."""
    stem = _names.part_stem(shard, part, TOKEN)
    facts: dict[str, FileFacts] = {}
    files: dict[str, bytes] = {}
    for role, content in contents.items():
        seed = FileIdentity(DATASET_ID, shard, part, TOKEN, role).seed()
        checksums, _ = block_checksums(seed, 0, np.frombuffer(content, np.uint8), 0)
        for name, data in ((role, content), (f"{role}.crc", checksums.tobytes())):
            files[_names.data_name(stem, name)] = data
            facts[name] = FileFacts(len(data), crc32c(data))
    row = Part(shard=shard, part=part, token=TOKEN, length=length, stem=stem, files=facts)
    record = CommitRecord(DATASET_ID, row, OWNER).encode()
    return {f"commits/{_names.commit_name(shard, part)}": record, **files}

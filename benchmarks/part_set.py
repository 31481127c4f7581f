"""A stream of very many tiny parts, written faster than a writer could: for many_parts.py.

A writer makes every part durable, which takes hours for so many. Here data files and records are
written with the classes that the writer itself uses, and left to the page cache.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np

from guideloom import StreamNumpyFormat, StreamStorage
from guideloom_format import (
    CommitRecord,
    FileFacts,
    FileIdentity,
    Owner,
    Part,
    block_checksums,
    crc32c,
)

FORMAT = StreamNumpyFormat(np.dtype([("tokens", "<u2")]))
LENGTH = 8  # elements of a part
TOKEN = "9f3c21ab5d0e7711"
PER_FOLDER = 1000
_OWNER = Owner("benchmark", 1, "2026-01-01T00:00:00+00:00")


def prepare_parts(folder: Path, count: int, per_shard: int) -> StreamStorage:
    """The dataset of so many parts, so many of them in each shard; without a manifest."""
    storage = StreamStorage(folder / f"guideloom-parts-{count}-{per_shard}", FORMAT)
    commits = storage.directory / "commits"
    complete = commits.is_dir() and len(os.listdir(commits)) == count
    if not complete:
        shutil.rmtree(storage.directory, ignore_errors=True)
        begin = time.perf_counter()
        _write(storage, count, per_shard)
        print(f"wrote {count:,} parts in {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    forget_manifests(storage)
    return storage


def forget_manifests(storage: StreamStorage) -> None:
    """As it was before anybody consolidated it."""
    shutil.rmtree(storage.directory / "manifests", ignore_errors=True)
    (storage.directory / "manifest.json").unlink(missing_ok=True)


def tokens(shard: int, part: int) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """What part `part` of a shard holds."""
    return (np.arange(LENGTH) + 31 * shard + 7 * part).astype("<u2")


def _write(storage: StreamStorage, count: int, per_shard: int) -> None:
    directory = storage.directory
    with storage.sync_writer() as writer:  # creates the header
        writer.commit()
    dataset_id = storage_id(storage)
    (directory / "commits").mkdir(exist_ok=True)
    for k in range(count):
        shard, part = divmod(k, per_shard)
        if k % PER_FOLDER == 0 or part == 0:
            (directory / "data" / f"{shard // 1000:04d}").mkdir(parents=True, exist_ok=True)
        stem = f"{shard // 1000:04d}/{shard:07d}-{part:04d}-{TOKEN}"
        identity = FileIdentity(dataset_id, shard, part, TOKEN, "elements")
        data = tokens(shard, part).view(np.uint8)
        checksums, whole = block_checksums(identity.seed(), 0, data)
        stored = checksums.tobytes()
        base = f"{directory}/data/{stem}.elements"
        _put(base, data.tobytes())
        _put(base + ".crc", stored)
        facts = {
            "elements": FileFacts(data.size, whole),
            "elements.crc": FileFacts(len(stored), crc32c(stored)),
        }
        record = CommitRecord(dataset_id, Part(shard, part, TOKEN, LENGTH, stem, facts), _OWNER)
        _put(f"{directory}/commits/{shard:07d}-{part:04d}.json", record.encode())


def storage_id(storage: StreamStorage) -> str:
    """The dataset id in the header."""
    with storage.sync_reader() as reader:
        return reader.header.dataset_id


def _put(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)

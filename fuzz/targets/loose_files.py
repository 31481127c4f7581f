"""Whole datasets of hostile files: some changed and sealed again, renamed, doubled or gone.

An input is a JSON object of file name to content, each byte as the character of that number.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import guideloom
from guideloom_format import (
    CommitRecord,
    DatasetError,
    Manifest,
    MismatchError,
    PartTable,
    _names,
)
from guideloom_format._parts import DATA_ROLES, ROLES_OF_KIND
from guideloom_read import DocumentReader, verify
from targets.base import Bytes2Bytes, Target, attempt
from targets.header import header_of
from targets.memory_io import DIRECTORY, MemoryIO, part_files
from targets.mutation import LONGEST, mutate_sealed
from targets.record import DATASET_ID
from targets.span_dataset import BYTES

MOST_READ = 50
KINDS = {
    "stream": ([("a", "<u2")], {"name": "stream-numpy", "parameters": {}}),
    "document": ("|u1", {"name": "document-json", "parameters": {}}),
    "stream-with-meta": ("<u2", BYTES),
}


def feed(data: bytes) -> None:
    files = files_of(data)
    if files is None:
        return
    for can_list in (True, False):
        look(MemoryIO(files, can_list=can_list))


def look(io: MemoryIO) -> None:
    """Verify the dataset, open it as it is and at its versions, and read."""
    report = attempt(lambda: [verify(DIRECTORY, io)], DatasetError)
    assert report is None or all(len(str(fault)) < 3000 for fault in report[0].faults)
    clean = report is not None and report[0].clean
    storage = attempt(
        lambda: guideloom.open(DIRECTORY, read_interface=io), DatasetError, MismatchError
    )
    if storage is None:
        return
    found = {_names.parse_manifest_name(name) for name in io.list_names("manifests") or ()}
    versions = sorted(version for version in found if version is not None)
    for version in (None, *versions[:2]):
        reader = storage.at_version(version).sync_reader()
        if attempt(reader.open, DatasetError, MismatchError) is None:
            assert not clean
        else:
            with reader:
                read_some(reader, clean=clean)


def read_some(reader: Any, *, clean: bool) -> None:
    """A few samples from everywhere; all of them can be read if nothing is wrong."""
    count = len(reader)
    assert 0 <= count <= 1 << 62
    if not count:
        return
    starts = sorted({k * (count - 1) // MOST_READ for k in range(MOST_READ + 1)})
    for start in (*starts[:3], *starts[-3:]):
        if isinstance(reader, DocumentReader):
            attempt(partial(in_list, reader.read, start), DatasetError)
        else:
            found = attempt(partial(reader.read, start, 1), DatasetError)
            assert found is not None or not clean
    if isinstance(reader, DocumentReader):
        batch = attempt(lambda: reader.gather(starts), DatasetError)
    else:
        batch = attempt(lambda: reader.read_many(starts, 1), DatasetError)
    assert batch is not None or not clean


def in_list(read: Callable[[int], Any], start: int) -> list[Any]:
    return [read(start)]  # which may be None


def files_of(data: bytes) -> dict[str, bytes] | None:
    """The files that an input means."""
    try:
        files = json.loads(data)
        return {name: content.encode("latin-1") for name, content in files.items()}
    except (ValueError, RecursionError, AttributeError):
        return None


def input_of(files: dict[str, bytes]) -> bytes:
    """The input that means these files."""
    return json.dumps(
        {name: content.decode("latin-1") for name, content in files.items()}, indent=0
    ).encode()


def mutate(data: bytes, rng: random.Random, raw: Bytes2Bytes) -> bytes:
    files = files_of(data)
    if not files:
        return raw(data)[:LONGEST]
    for _ in range(rng.choice((1, 1, 2))):
        change_files(files, rng, raw)
    return input_of(files)[:LONGEST]


def change_files(files: dict[str, bytes], rng: random.Random, raw: Bytes2Bytes) -> None:
    """Change, rename, double, swap or remove a file."""
    if not files:
        return
    name, other = rng.choice(sorted(files)), rng.choice(sorted(files))
    kind = rng.random()
    if kind < 0.5:
        name = rng.choice([n for n in sorted(files) if n.endswith(".json")] or [name])
        files[name] = mutate_sealed(files[name], rng, raw)
    elif kind < 0.7:
        files[name] = raw(files[name])
    elif kind < 0.8:
        commit = _names.commit_name(rng.randrange(4), rng.choice((0, 1, 2, 3, 10**6)))
        manifest = f"manifests/{_names.manifest_name(rng.randrange(1, 4))}"
        target = rng.choice((f"commits/{commit}", "manifest.json", manifest))
        files[target] = files[name]
    elif kind < 0.9:
        files[name], files[other] = files[other], files[name]
    else:
        del files[name]


def dataset(kind: str, *, manifest: bool) -> dict[str, bytes]:
    """A small dataset: two parts of one shard and one of another, with a manifest or without."""
    dtype, storage_format = KINDS[kind]
    files = {"guideloom.json": header_of(kind, dtype, storage_format)}
    rows = []
    for shard, part in ((0, 0), (0, 1), (2, 0)):
        files |= (made := part_files(shard, part, 3, contents_of(kind)))
        record = made[f"commits/{_names.commit_name(shard, part)}"]
        rows.append(
            CommitRecord.decode(
                record, dataset_id=DATASET_ID, kind=kind, shard=shard, part=part
            ).part
        )
    for version in (1, 2) if manifest else ():
        table = PartTable.from_parts(rows[:version], ROLES_OF_KIND[kind])
        files["manifest.json"] = Manifest(DATASET_ID, version, table).encode()
        files[f"manifests/{_names.manifest_name(version)}"] = files["manifest.json"]
    return files


def contents_of(kind: str) -> dict[str, bytes]:
    contents = {
        "elements": np.arange(3, dtype="<u2").tobytes(),
        "spans": np.array([[2, 1], [3, 1]], dtype="<i8").tobytes(),
        "payloads": b"x",
        "documents": b"[1]2{}",
        "ends": np.array([3, 4, 6], dtype="<i8").tobytes(),
    }
    return {role: contents[role] for role in DATA_ROLES[kind]}


def seeds() -> list[bytes]:
    return [
        input_of(dataset(kind, manifest=manifest)) for kind in KINDS for manifest in (False, True)
    ]


TARGET = Target("loose_files", feed, mutate, seeds)

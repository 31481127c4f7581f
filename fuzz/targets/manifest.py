"""Manifests, of all three kinds of data, and the indexes that a reader makes from them."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np

from guideloom_format import (
    DamagedFileError,
    DocumentIndex,
    Manifest,
    PartTable,
    SpanIndex,
    StreamIndex,
)
from guideloom_format._manifest import _table
from guideloom_format._members import Members
from guideloom_format._parts import DATA_ROLES, ROLES_OF_KIND
from targets.base import Bytes2Bytes, Target, attempt
from targets.mutation import mutate_sealed
from targets.record import DATASET_ID, check_inside, part_of

ITEMSIZE = 6
WHERE = "folder/manifest.json"
MOST = 1 << 62


def decode(data: bytes, kind: str) -> Manifest:
    return Manifest.decode(data, dataset_id=DATASET_ID, kind=kind, itemsize=ITEMSIZE, where=WHERE)


def feed(data: bytes) -> None:
    for kind in DATA_ROLES:
        manifest = attempt(partial(decode, data, kind), DamagedFileError, names=WHERE)
        if manifest is None:
            continue
        table = manifest.table
        again = decode(manifest.encode(), kind)
        assert again.manifest_version == manifest.manifest_version
        assert [again.table.row(k) for k in range(len(table))] == [
            table.row(k) for k in range(len(table))
        ]
        check_table(table, kind)


def check_table(table: PartTable, kind: str) -> None:
    """What a table that was accepted must be, in plain arithmetic."""
    total, shards = 0, dict[int, int]()
    for k in range(len(table)):
        row = table.row(k)
        assert not shards or row.shard >= max(shards)
        assert row.part == shards.get(row.shard, 0)
        shards[row.shard] = row.part + 1
        sizes = {role: facts.nbytes for role, facts in row.files.items()}
        total += sum(sizes.values())
        for role in DATA_ROLES[kind]:
            assert sizes[role + ".crc"] == 4 * -(-sizes[role] // 65536)
            check_inside(table.file_name(k, role + ".crc"))
        if kind == "document":
            assert sizes["ends"] == 8 * row.length
            assert sizes["documents"] % ITEMSIZE == 0
        else:
            assert sizes["elements"] == ITEMSIZE * row.length
    assert total <= MOST
    open_table(table, kind)


def open_table(table: PartTable, kind: str) -> None:
    """Whatever is accepted can be opened."""
    if kind == "document":
        index = DocumentIndex(table.length, table.nbytes["documents"], ITEMSIZE)
        assert len(index) == int(sum(table.length.tolist()))
        if len(index):
            index.plan_ends(np.array([0, len(index) - 1]))
        return
    stream = StreamIndex(table.length)
    if kind == "stream-with-meta":
        spans = table.nbytes["spans"] // 16
        assert len(SpanIndex(spans, table.length, table.nbytes["payloads"])) == int(spans.sum())
    if len(stream):
        stream.plan(np.array([0, len(stream) - 1]), 1, ITEMSIZE)


def mend_sizes(members: dict[str, Any]) -> None:
    """Put right the sizes that follow from other columns, so that one change is not two wrongs."""
    parts = members["parts"]
    for role, columns in parts["files"].items():
        step = {"elements": ITEMSIZE, "ends": 8}.get(role)
        if step is not None:
            columns["bytes"] = [step * length for length in parts["length"]]
    for role, columns in parts["files"].items():
        if role.endswith(".crc"):
            sizes = parts["files"][role.removesuffix(".crc")]["bytes"]
            columns["bytes"] = [4 * -(-size // 65536) for size in sizes]


def mend_fingerprint(members: dict[str, Any]) -> None:
    """Put the fingerprint right, so that what comes after it is tried as well."""
    for kind, roles in DATA_ROLES.items():
        if set(roles) <= set(members["parts"]["files"]):
            table = _table(Members(members["parts"], ""), kind)
            members["fingerprint"] = table.fingerprint(DATASET_ID)
            return


def mutate(data: bytes, rng: random.Random, raw: Bytes2Bytes) -> bytes:
    def mend(members: dict[str, Any]) -> None:
        for step, share in ((mend_sizes, 0.4), (mend_fingerprint, 0.8)):
            if rng.random() < share:
                try:
                    step(members)
                except Exception:  # noqa: BLE001  # what the change has broken is wanted
                    continue

    return mutate_sealed(data, rng, raw, mend)


def seeds() -> list[bytes]:
    found = []
    for kind in DATA_ROLES:
        places = ((0, 0, 3), (0, 1, 0), (4, 0, 70000), (10**9, 0, 1))
        small = [
            part_of(kind, shard=shard, part=part, length=length) for shard, part, length in places
        ]
        large = [part_of(kind, shard=shard, length=1 << 50) for shard in range(2)]
        for parts in (small, large, []):
            table = PartTable.from_parts(parts, ROLES_OF_KIND[kind])
            found.append(Manifest(DATASET_ID, len(parts), table).encode())
    return found


TARGET = Target("manifest", feed, mutate, seeds)

"""Commit records, of all three kinds of data."""

from __future__ import annotations

import posixpath
from functools import partial

from guideloom_format import (
    CommitRecord,
    DamagedFileError,
    FileFacts,
    Owner,
    Part,
    PartTable,
    _names,
)
from guideloom_format._parts import DATA_ROLES, ROLES_OF_KIND
from targets.base import Target, attempt
from targets.mutation import mutate_sealed

DATASET_ID = "00112233445566778899aabbccddeeff"
TOKEN = "9f3c21ab5d0e7711"
SHARD, PART = 4, 0
MOST = 1 << 62


def decode(data: bytes, kind: str) -> CommitRecord:
    return CommitRecord.decode(data, dataset_id=DATASET_ID, kind=kind, shard=SHARD, part=PART)


def feed(data: bytes) -> None:
    where = _names.commit_name(SHARD, PART)
    for kind in DATA_ROLES:
        record = attempt(partial(decode, data, kind), DamagedFileError, names=where)
        if record is None:
            continue
        part = record.part
        assert (part.shard, part.part, record.dataset_id) == (SHARD, PART, DATASET_ID)
        assert _names.is_token(part.token)
        assert type(part.length) is int
        assert 0 <= part.length <= MOST
        assert tuple(part.files) == ROLES_OF_KIND[kind]
        for role, facts in part.files.items():
            check_inside(_names.data_name(part.stem, role))
            assert type(facts.nbytes) is type(facts.crc32c) is int
            assert 0 <= facts.nbytes <= MOST
            assert 0 <= facts.crc32c < 1 << 32
        assert decode(record.encode(), kind) == record
        assert len(str(record.owner)) < 3000
        assert record.task is None or len(record.task) <= 1024
        open_part(part, kind)


def open_part(part: Part, kind: str) -> None:
    """What a reader does with a record."""
    table = PartTable.from_parts([part], ROLES_OF_KIND[kind])
    for itemsize in (1, 6, 1 << 24):
        if attempt(partial(sizes_fit, table, kind, itemsize), DamagedFileError, names="commits"):
            assert part.length * (8 if kind == "document" else itemsize) <= MOST
    assert table.row(0) == part
    assert len(table.fingerprint(DATASET_ID)) == 64


def sizes_fit(table: PartTable, kind: str, itemsize: int) -> bool:
    table.check(kind, itemsize, "commits")
    return True


def check_inside(name: str) -> None:
    """A name that cannot leave the dataset, whatever the platform."""
    assert name.startswith("data/")
    assert posixpath.normpath(name) == name
    assert len(name) <= 255
    assert name.isascii()
    assert not set(name) & set("\\:%\0 ~$")
    assert all(part and part[0] != "." for part in name.split("/"))


def part_of(kind: str, *, shard: int = SHARD, part: int = PART, length: int = 70000) -> Part:
    """A part of which all numbers fit; elements have 6 bytes."""
    sizes = {
        "elements": 6 * length,
        "documents": 6 * length,
        "ends": 8 * length,
        "spans": 16 * (length // 2 + 1),
        "payloads": 1000 * (length + 1),
    }
    files = {}
    for role in DATA_ROLES[kind]:
        blocks = -(-sizes[role] // 65536)
        files[role] = FileFacts(sizes[role], 0x12345678)
        files[role + ".crc"] = FileFacts(4 * blocks, 0xFFFFFFFF)
    stem = _names.part_stem(shard, part, TOKEN)
    return Part(shard=shard, part=part, token=TOKEN, length=length, stem=stem, files=files)


def seeds() -> list[bytes]:
    owner = Owner("host-7", 4321, "2026-01-02T03:04:05+00:00")
    return [
        CommitRecord(
            DATASET_ID, part_of(kind, length=length), owner, finished=not length, task=task
        ).encode()
        for kind in DATA_ROLES
        for length, task in ((70000, None), (0, '["file", 3]'))
    ]


TARGET = Target("record", feed, mutate_sealed, seeds)

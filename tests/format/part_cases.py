"""Parts and tables of parts, small and general, and how the format page defines their print."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import numpy as np
from hypothesis import strategies as st

from guideloom_format import FileFacts, Part, PartTable
from guideloom_format._names import part_stem

ID = "00112233445566778899aabbccddeeff"
ITEMSIZE = 4
ROLES = ("elements", "elements.crc")


def make_part(shard: int, part: int, length: int, itemsize: int = ITEMSIZE) -> Part:
    token = f"{shard * 1_000_003 + part * 7919:016x}"
    size = length * itemsize
    files = {
        "elements": FileFacts(size, (shard * 31 + part) % 2**32),
        "elements.crc": FileFacts(4 * -(-size // 65536), (shard + part * 17) % 2**32),
    }
    return Part(shard, part, token, length, part_stem(shard, part, token), files)


def make_table() -> PartTable:
    rows = [(0, 0, 5), (0, 1, 0), (3, 0, 100_000), (3, 1, 1), (3, 2, 16_384), (10**9, 0, 7)]
    return PartTable.from_parts([make_part(*row) for row in rows], ROLES)


TABLE = make_table()


def assert_same_table(one: PartTable, other: PartTable) -> None:
    for name in ("shard", "part", "token", "length", "stem"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    for facts, others in ((one.nbytes, other.nbytes), (one.crc32c, other.crc32c)):
        assert facts.keys() == others.keys()
        for role in facts:
            np.testing.assert_array_equal(facts[role], others[role])


def fingerprint_by_the_format(members: dict[str, Any]) -> str:
    """As the format page words it, with `struct`."""
    parts = members["parts"]
    count = len(parts["shard"])
    tokens = [int(token, 16) for token in parts["token"]]
    text = b"guideloom-fingerprint-1\n" + members["dataset_id"].encode("ascii")
    for column in (parts["shard"], parts["part"], tokens, parts["length"]):
        text += struct.pack(f"<{count}Q", *column)
    for role in sorted(parts["files"]):
        text += role.encode("ascii")
        text += struct.pack(f"<{count}Q", *parts["files"][role]["bytes"])
        text += struct.pack(f"<{count}I", *parts["files"][role]["crc32c"])
    return hashlib.sha256(text).hexdigest()


@st.composite
def tables(draw: st.DrawFn) -> tuple[PartTable, int]:
    itemsize = draw(st.integers(1, 70_000))
    shards = draw(st.lists(st.integers(0, 10**9), max_size=5, unique=True))
    parts = []
    for shard in shards:
        for part in range(draw(st.integers(1, 4))):
            length = draw(st.integers(0, 40) | st.integers(0, 2**50 // itemsize))
            token = f"{draw(st.integers(0, 2**64 - 1)):016x}"
            size = length * itemsize
            files = {
                "elements": FileFacts(size, draw(st.integers(0, 2**32 - 1))),
                "elements.crc": FileFacts(-(-size // 65536) * 4, draw(st.integers(0, 2**32 - 1))),
            }
            stem = draw(st.sampled_from([part_stem(shard, part, token), f"a/b/{shard}-{part}"]))
            parts.append(Part(shard, part, token, length, stem, files))
    return PartTable.from_parts(draw(st.permutations(parts)), ROLES), itemsize

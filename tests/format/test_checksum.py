"""Checksums of blocks and whole files, against the format page taken literally."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guideloom_format import BLOCK_BYTES, FileIdentity, block_checksums, crc32c

IDENTITY = FileIdentity("00112233445566778899aabbccddeeff", 4, 1, "9f3c21ab5d0e7711", "elements")
SIZES = [0, 1, 65535, 65536, 65537, 2 * 65536 - 1, 2 * 65536, 3 * 65536 + 17]


def crc_by_bits(data: bytes) -> int:
    """CRC32C as RFC 3720 defines it, reflected, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def blocks_by_the_format(identity: FileIdentity, data: bytes) -> list[int]:
    fields = (identity.dataset_id, identity.shard, identity.part, identity.token, identity.role)
    prefix = "/".join(map(str, fields))
    return [
        crc32c(f"{prefix}/{k}/".encode() + data[begin : begin + 65536])
        for k, begin in enumerate(range(0, len(data), 65536))
    ]


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=60), more=st.binary(max_size=60))
def test_crc32c_is_that_of_the_definition(data: bytes, more: bytes) -> None:
    assert crc32c(data) == crc_by_bits(data)
    assert crc32c(more, crc32c(data)) == crc_by_bits(data + more)
    assert crc32c(np.frombuffer(data, np.uint8)) == crc_by_bits(data)


def test_the_example_of_the_format() -> None:
    data = (np.arange(100_000) % 251).astype(np.uint8)
    blocks, whole = block_checksums(IDENTITY.seed(), 0, data)
    assert [f"{block:08x}" for block in blocks] == ["9042a39e", "89f91989"]
    assert f"{whole:08x}" == f"{crc32c(data):08x}" == "7247f66b"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("content", ["zeros", "ones", "random"])
def test_blocks_of_every_length(size: int, content: str) -> None:
    random = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    data = {"zeros": 0 * random, "ones": 0 * random + np.uint8(255), "random": random}[content]
    blocks, whole = block_checksums(IDENTITY.seed(), 0, data)
    assert blocks.dtype == np.dtype("<u4")
    assert blocks.tolist() == blocks_by_the_format(IDENTITY, data.tobytes())
    assert whole == crc32c(data)


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 3), max_size=4),
    last=st.integers(0, BLOCK_BYTES),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_file_written_piece_by_piece(counts: list[int], last: int, seed: int) -> None:
    """Whole blocks in any pieces, then a rest: the same as all at once."""
    size = sum(counts) * BLOCK_BYTES + last
    data = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    found: list[int] = []
    whole = begin = 0
    for nbytes in [*(count * BLOCK_BYTES for count in counts), last]:
        piece = data[begin : begin + nbytes]
        blocks, whole = block_checksums(IDENTITY.seed(), begin // BLOCK_BYTES, piece, whole)
        found += blocks.tolist()
        begin += nbytes
    assert found == blocks_by_the_format(IDENTITY, data.tobytes())
    assert whole == crc32c(data)


def test_a_block_is_bound_to_its_place() -> None:
    """The same bytes in another dataset, shard, part, session, role or position differ."""
    data = np.arange(1000, dtype=np.uint8)
    places = [
        IDENTITY,
        FileIdentity("0" * 32, 4, 1, IDENTITY.token, "elements"),
        FileIdentity(IDENTITY.dataset_id, 5, 1, IDENTITY.token, "elements"),
        FileIdentity(IDENTITY.dataset_id, 41, 1, IDENTITY.token, "elements"),
        FileIdentity(IDENTITY.dataset_id, 4, 11, IDENTITY.token, "elements"),
        FileIdentity(IDENTITY.dataset_id, 1, 4, IDENTITY.token, "elements"),
        FileIdentity(IDENTITY.dataset_id, 4, 1, "0" * 16, "elements"),
        FileIdentity(IDENTITY.dataset_id, 4, 1, IDENTITY.token, "spans"),
    ]
    sums = {int(block_checksums(place.seed(), k, data)[0][0]) for place in places for k in range(9)}
    assert len(sums) == 9 * len(places)

"""CRC32C of blocks and files. A block's checksum also says where the block belongs.

The checksum of block k of a file is the CRC32C of the ASCII text
``dataset_id/shard/part/token/role/k/`` followed by the block's bytes, so that a block that is
intact but lies in the wrong file, part or dataset is found as surely as a damaged one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import google_crc32c
import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 65536
CRC_SUFFIX = ".crc"


def crc32c(data: bytes | NDArray[np.uint8], start: int = 0) -> int:
    """CRC32C (Castagnoli) of `data`, going on from `start`."""
    return int(google_crc32c.extend(start, data))


def block_count(nbytes: int) -> int:
    """Number of checksum blocks of a file: the last one may be short, an empty file has none."""
    return -(-nbytes // BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Where a file belongs: what its block checksums are bound to."""

    dataset_id: str
    shard: int
    part: int
    token: str
    role: str

    def seed(self) -> int:
        """CRC32C of the text that all blocks of the file share."""
        text = f"{self.dataset_id}/{self.shard}/{self.part}/{self.token}/{self.role}/"
        return crc32c(text.encode("ascii"))


def block_checksums(
    seed: int, first_block: int, data: NDArray[np.uint8], whole: int = 0
) -> tuple[NDArray[np.uint32], int]:
    """Checksums of consecutive blocks, and of the file up to their end, in one pass.

    The checksum of the file follows from those of the blocks, since CRCs are linear:
    crc(A + B) = shift(crc(A), len(B)) xor crc(B), where shift(c, n) takes c past n zero bytes.

    Args:
        seed: `FileIdentity.seed` of the file.
        first_block: number of the block that `data` begins with.
        data: uint8, 1-d; whole blocks, the last one may be short.
        whole: CRC32C of the file before `data`.

    Returns:
        little-endian uint32, one per block; and the CRC32C of the file with `data`.
    """
    out = np.empty(block_count(data.size), dtype="<u4")
    extend = google_crc32c.extend
    t0, t1, t2, t3 = _shift_tables()
    for k in range(out.size):
        block = data[k * BLOCK_BYTES : (k + 1) * BLOCK_BYTES]
        start = extend(seed, b"%d/" % (first_block + k))
        out[k] = bound = extend(start, block)
        if block.size == BLOCK_BYTES:
            c = whole ^ start
            whole = t0[c & 255] ^ t1[c >> 8 & 255] ^ t2[c >> 16 & 255] ^ t3[c >> 24] ^ bound
        else:
            whole = extend(whole, block)
    return out, whole


@functools.cache
def _shift_tables() -> list[list[int]]:
    """shift(c, BLOCK_BYTES) as the xor of four entries, one for each byte of c."""
    zeros = bytes(BLOCK_BYTES)
    of_nothing = crc32c(zeros)
    shifted_bits = [crc32c(zeros, 1 << bit) ^ of_nothing for bit in range(32)]
    tables = []
    for byte in range(4):
        table = [0]
        for bit in shifted_bits[8 * byte : 8 * byte + 8]:
            table += [value ^ bit for value in table]
        tables.append(table)
    return tables

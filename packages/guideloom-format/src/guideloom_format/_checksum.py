"""CRC32C of blocks and files. A block's checksum also says where the block belongs.

The checksum of block k of a file is the CRC32C of the ASCII text
``dataset_id/shard/part/token/role/k/`` followed by the block's bytes, so that a block that is
intact but lies in the wrong file, part or dataset is found as surely as a damaged one.
"""

from __future__ import annotations

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


def block_checksums(seed: int, first_block: int, data: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Checksums of consecutive blocks.

    Args:
        seed: `FileIdentity.seed` of the file.
        first_block: number of the block that `data` begins with.
        data: uint8, 1-d; whole blocks, the last one may be short.

    Returns:
        little-endian uint32, one per block.
    """
    out = np.empty(block_count(data.size), dtype="<u4")
    extend = google_crc32c.extend
    for k in range(out.size):
        start = extend(seed, b"%d/" % (first_block + k))
        out[k] = extend(start, data[k * BLOCK_BYTES : (k + 1) * BLOCK_BYTES])
    return out

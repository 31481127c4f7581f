"""Numbers and choices from an input, for decoders that need more than one string of bytes."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from targets.base import Bytes2Bytes
from targets.mutation import LONGEST, mutate_bytes

BOUNDS = [
    0,
    1,
    -1,
    7,
    8,
    15,
    16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) + 1,
    1 << 59,
    (1 << 62) - 1,
    1 << 62,
    (1 << 63) - 1,
    -(1 << 63),
    -(1 << 62),
]


class Taking:
    """Takes an input apart from its front; what is behind the end is zeros."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes that were not taken yet."""
        return max(0, len(self._data) - self._at)

    def byte(self) -> int:
        """0 to 255."""
        at, self._at = self._at, self._at + 1
        return self._data[at] if at < len(self._data) else 0

    def below(self, stop: int) -> int:
        """0 to stop - 1."""
        return self.byte() % stop

    def take(self, count: int) -> bytes:
        """So many bytes."""
        at, self._at = self._at, self._at + count
        return self._data[at : at + count].ljust(count, b"\0")

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(self.left)

    def number(self, usual: int) -> int:
        """A 64-bit integer: below `usual` most often, at some border, or any."""
        kind = self.byte()
        if kind < 192:
            return kind % usual
        if kind < 240:
            return BOUNDS[kind % len(BOUNDS)]
        return int.from_bytes(self.take(8), "little", signed=True)

    def numbers(self, count: int, usual: int) -> NDArray[np.int64]:
        """So many of them."""
        return np.array([self.number(usual) for _ in range(count)], dtype=np.int64)


def mutate_plain(data: bytes, rng: random.Random, raw: Bytes2Bytes) -> bytes:
    """Any change of bytes: every input of these targets means something."""
    changed = raw(data) if rng.random() < 0.7 else mutate_bytes(data, rng)
    return changed[:LONGEST]

"""The order `feistel-1` and the order of delivery, made from `docs/reference/format.md` alone.

Python integers only: no `numpy.random`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isqrt

ROUNDS = 10
_32 = 2**32 - 1
_64 = 2**64 - 1


def _words(number: int) -> list[int]:
    """The 32-bit words of `number`, least significant first, at least one."""
    words = [number & _32]
    while number := number >> 32:
        words.append(number & _32)
    return words


class _Hash:
    """Multiplies with a constant that changes at each call."""

    def __init__(self, constant: int, factor: int) -> None:
        self.constant = constant
        self.factor = factor

    def __call__(self, value: int) -> int:
        value ^= self.constant
        self.constant = self.constant * self.factor & _32
        value = value * self.constant & _32
        return value ^ value >> 16


def _mix(x: int, y: int) -> int:
    value = (0xCA01F9DD * x - 0x4973F715 * y) & _32
    return value ^ value >> 16


def philox_key(seed: int, epoch: int) -> tuple[int, int]:
    """The key that the seed sequence gives."""
    entropy = _words(seed)
    entropy += [0] * (4 - len(entropy))
    entropy += _words(epoch)
    hashed = _Hash(0x43B0D7E5, 0x931E8875)
    pool = [hashed(word) for word in entropy[:4]]
    for source in range(4):
        for destination in range(4):
            if source != destination:
                pool[destination] = _mix(pool[destination], hashed(pool[source]))
    for word in entropy[4:]:
        for destination in range(4):
            pool[destination] = _mix(pool[destination], hashed(word))
    output = _Hash(0x8B51F9DD, 0x58F38DED)
    words = [output(word) for word in pool]
    return words[0] | words[1] << 32, words[2] | words[3] << 32


def philox_words(seed: int, epoch: int) -> Iterator[int]:
    """The 64-bit words of Philox-4x64-10 for a seed and an epoch, without end."""
    counter = 0
    while True:
        counter += 1
        x0, x1, x2, x3 = counter & _64, 0, 0, 0
        k0, k1 = philox_key(seed, epoch)
        for turn in range(10):
            if turn:
                k0 = (k0 + 0x9E3779B97F4A7C15) & _64
                k1 = (k1 + 0xBB67AE8584CAA73B) & _64
            p = 0xD2E7470EE14C6C93 * x0
            q = 0xCA5A826395121157 * x2
            x0, x1, x2, x3 = q >> 64 ^ x1 ^ k0, q & _64, p >> 64 ^ x3 ^ k1, p & _64
        yield from (x0, x1, x2, x3)


def feistel_keys(seed: int, epoch: int) -> tuple[int, ...]:
    """The ten keys of a seed and an epoch."""
    words = [word & _32 for word in islice(philox_words(seed, epoch), 2 * ROUNDS)]
    return tuple(words[2 * i] << 32 | words[2 * i + 1] for i in range(ROUNDS))


def _round(value: int, key: int, size: int) -> int:
    z = (value ^ key) * 0xBF58476D1CE4E5B9 & _64
    z ^= z >> 32
    z = z * 0x94D049BB133111EB & _64
    return z * size >> 64


@dataclass(frozen=True)
class IndependentOrder:
    """The permutation of `size` samples under ten keys."""

    size: int
    keys: Sequence[int]

    def _sides(self) -> tuple[int, int]:
        root = isqrt(self.size)
        a = max(16, root if root * root == self.size else root + 1)
        return a, max(16, -(-self.size // a))

    def sample(self, position: int) -> int:
        """The sample at `position` of the order."""
        if self.size < 2:
            return position
        a, b = self._sides()
        value = position
        while True:
            left, right = divmod(value, b)
            for turn, key in enumerate(self.keys):
                if turn % 2 == 0:
                    left = (left + _round(right, key, a)) % a
                else:
                    right = (right + _round(left, key, b)) % b
            value = left * b + right
            if value < self.size:
                return value

    def position(self, sample: int) -> int:
        """Where `sample` stands in the order."""
        if self.size < 2:
            return sample
        a, b = self._sides()
        value = sample
        while True:
            left, right = divmod(value, b)
            for turn, key in reversed(list(enumerate(self.keys))):
                if turn % 2 == 0:
                    left = (left - _round(right, key, a)) % a
                else:
                    right = (right - _round(left, key, b)) % b
            value = left * b + right
            if value < self.size:
                return value


def order(size: int, seed: int, epoch: int) -> IndependentOrder:
    """The order of `size` samples in an epoch."""
    return IndependentOrder(size, feistel_keys(seed, epoch))


@dataclass(frozen=True)
class IndependentDelivery:
    """Which positions a rank gets, step by step, in a run that began or resumed at `start`."""

    length: int
    world_size: int
    local_batch_size: int
    drop_last: bool
    start: int = 0

    @property
    def steps(self) -> int:
        left = self.length - self.start
        whole, rest = divmod(left, self.world_size * self.local_batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def positions(self, step: int, rank: int) -> list[int]:
        first = self.start + step * self.world_size * self.local_batch_size
        positions = [first + rank + i * self.world_size for i in range(self.local_batch_size)]
        return [position for position in positions if position < self.length]

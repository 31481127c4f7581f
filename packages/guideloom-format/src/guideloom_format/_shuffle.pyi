from typing import Any, Final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

MAX_LENGTH: Final[int]
DEFAULT_ROUNDS: Final[int]

class FeistelShuffler:
    """A pseudo-random permutation of [0, length), computed per index: the algorithm `feistel-1`.

    A Feistel network over a rectangle: an index x is a cell (left, right) of a table of
    ``ceil(sqrt(length))`` rows, at least 16 by 16, and each round adds to one half, modulo its
    size, a keyed hash of the other half. From a length of 256 on the table has fewer than
    ``sqrt(length)`` spare cells; an index that lands on one is sent through again until it comes
    back inside (cycle walking). Nothing is stored but the keys, whatever the length.

    Sources: M. Luby and C. Rackoff, "How to construct pseudorandom permutations from pseudorandom
    functions" (1988); J. Black and P. Rogaway, "Ciphers with arbitrary finite domains" (2002), for
    the rectangle and the cycle walking. The multipliers of the round's hash are those of
    SplitMix64 (G. Steele, D. Lea, C. Flood, 2014). It is a statistical shuffle and not a cipher.

    The exact definition and its test vectors are part of the format, see the page
    `reference/format`: the order of a running job is the same on every platform and after upgrades.

    Args:
        length: number of indexes, 0 to 2**62.
        rng: a numpy ``Generator`` or ``BitGenerator``; ``2 * rounds`` raw words are drawn from it
            for the keys, and nothing else.
        rounds: 2 to 32. The default, 10, is part of `feistel-1`.

    Raises:
        ValueError: length or rounds outside their interval.
        TypeError: rng has no raw words to give.
    """

    rounds: int

    def __init__(
        self,
        length: int,
        rng: np.random.Generator | np.random.BitGenerator,
        rounds: int = ...,
    ) -> None: ...
    @classmethod
    def from_seed(
        cls, length: int, seed: int, *, epoch: int = 0, rounds: int = ...
    ) -> FeistelShuffler:
        """The shuffler of one epoch: keys from ``Philox(SeedSequence(seed, spawn_key=(epoch,)))``.

        Args:
            length: number of indexes, 0 to 2**62.
            seed: any non-negative integer.
            epoch: any non-negative integer; other epochs give other orders.
            rounds: 2 to 32.
        """

    @overload
    def shuffle(self, index: int) -> int: ...
    @overload
    def shuffle(self, index: ArrayLike) -> NDArray[np.int64]:
        """The value at `index` of the permuted order: an int, or int64 of the same shape.

        The array form runs without the GIL and allocates the result only.

        Raises:
            IndexError: an index outside [0, length).
            TypeError: not an integer, or not an array of integers.
            ValueError: an array with values beyond 64 bits.
        """

    @overload
    def unshuffle(self, value: int) -> int: ...
    @overload
    def unshuffle(self, value: ArrayLike) -> NDArray[np.int64]:
        """The inverse: ``unshuffle(shuffle(i)) == i``. Shapes and errors as for `shuffle`."""

    def __len__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

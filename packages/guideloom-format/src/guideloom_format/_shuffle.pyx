# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=False
"""The permutation `feistel-1`; its description for callers is in the stub `_shuffle.pyi`.

One value's way: x -> (left, right) = divmod(x, right_size) -> `rounds` additions modulo a size ->
left * right_size + right, and again from there while the result lies outside [0, length).
"""

from libc.stdint cimport int64_t, uint64_t

import math

import numpy as np

from guideloom_format._integers import as_index, index_array

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(_MSC_VER)
    #include <intrin.h>
    static __inline uint64_t high_product(uint64_t a, uint64_t b) { return __umulh(a, b); }
    #else
    static inline uint64_t high_product(uint64_t a, uint64_t b) {
        return (uint64_t)(((unsigned __int128)a * b) >> 64);
    }
    #endif
    """
    uint64_t high_product(uint64_t a, uint64_t b) noexcept nogil

MAX_LENGTH = 1 << 62
DEFAULT_ROUNDS = 10
MIN_SIDE = 16  # few cells make few round functions; short orders would be visibly uneven
cdef enum:
    MAX_ROUNDS = 32

cdef struct Network:
    uint64_t length
    uint64_t left_size
    uint64_t right_size
    int rounds
    uint64_t keys[MAX_ROUNDS]


cdef inline uint64_t round_value(uint64_t half, uint64_t key, uint64_t size) noexcept nogil:
    """A pseudo-random number in [0, size) from one half and the key of the round."""
    cdef uint64_t z = (half ^ key) * <uint64_t>0xBF58476D1CE4E5B9
    z ^= z >> 32
    z = z * <uint64_t>0x94D049BB133111EB
    return high_product(z, size)


cdef inline uint64_t forward_once(const Network* net, uint64_t x) noexcept nogil:
    cdef uint64_t left = x // net.right_size
    cdef uint64_t right = x - left * net.right_size
    cdef int i
    for i in range(net.rounds):
        if i & 1:
            right += round_value(left, net.keys[i], net.right_size)
            if right >= net.right_size:
                right -= net.right_size
        else:
            left += round_value(right, net.keys[i], net.left_size)
            if left >= net.left_size:
                left -= net.left_size
    return left * net.right_size + right


cdef inline uint64_t backward_once(const Network* net, uint64_t y) noexcept nogil:
    cdef uint64_t left = y // net.right_size
    cdef uint64_t right = y - left * net.right_size
    cdef uint64_t value
    cdef int i
    for i in range(net.rounds - 1, -1, -1):
        if i & 1:
            value = round_value(left, net.keys[i], net.right_size)
            right = right - value if right >= value else right + net.right_size - value
        else:
            value = round_value(right, net.keys[i], net.left_size)
            left = left - value if left >= value else left + net.left_size - value
    return left * net.right_size + right


cdef inline uint64_t permute(const Network* net, uint64_t x, bint backward) noexcept nogil:
    """One value through the network, as often as it takes to land inside [0, length)."""
    cdef uint64_t y = x
    if net.length < 2:
        return x
    while True:
        y = backward_once(net, y) if backward else forward_once(net, y)
        if y < net.length:
            return y


cdef int64_t permute_many(
    const Network* net, const int64_t[::1] values, int64_t[::1] out, bint backward
) noexcept nogil:
    """Fill `out`; the position of the first value outside [0, length), or -1 when there is none."""
    cdef Py_ssize_t k
    for k in range(values.shape[0]):
        if values[k] < 0 or <uint64_t>values[k] >= net.length:
            return k
        out[k] = <int64_t>permute(net, <uint64_t>values[k], backward)
    return -1


cdef class FeistelShuffler:
    """FeistelShuffler(length, rng, rounds=10)

    A pseudo-random permutation of [0, length), computed per index: the algorithm `feistel-1`.
    Nothing is stored but its keys, 2 * rounds raw words of `rng` (a numpy Generator or
    BitGenerator). `FeistelShuffler.from_seed(length, seed, epoch=0)` gives the order that
    `EpochPlan` and the loader use.
    """

    cdef Network _net
    cdef readonly int rounds

    def __init__(self, length, rng, rounds=DEFAULT_ROUNDS):
        length = as_index("length", length, 0, MAX_LENGTH)
        rounds = as_index("rounds", rounds, 2, MAX_ROUNDS)
        bit_generator = getattr(rng, "bit_generator", rng)
        if isinstance(bit_generator, type) or not hasattr(bit_generator, "random_raw"):
            name = rng.__name__ if isinstance(rng, type) else type(rng).__name__
            raise TypeError(
                f"rng is {name}; expected a numpy.random.Generator or BitGenerator, "
                "for example numpy.random.default_rng(seed)"
            )
        # The low halves of two raw words per key: the same rule for 32-bit and 64-bit generators.
        words = np.asarray(bit_generator.random_raw(2 * rounds), dtype=np.uint64)
        if words.shape != (2 * rounds,):
            raise TypeError(f"rng gave raw words of shape {words.shape}; expected {(2 * rounds,)}")
        words = words & np.uint64(0xFFFFFFFF)
        keys = (words[0::2] << np.uint64(32)) | words[1::2]
        self._net.length = length
        left_size = max(MIN_SIDE, math.isqrt(max(length, 1) - 1) + 1)
        self._net.left_size = left_size
        self._net.right_size = max(MIN_SIDE, -(-length // left_size))
        self._net.rounds = rounds
        self.rounds = rounds
        for i in range(rounds):
            self._net.keys[i] = keys[i]

    @classmethod
    def from_seed(cls, length, seed, *, epoch=0, rounds=DEFAULT_ROUNDS):
        """The shuffler of one epoch; any integers from 0 up are seeds and epochs."""
        seed = as_index("seed", seed, 0, None)
        epoch = as_index("epoch", epoch, 0, None)
        sequence = np.random.SeedSequence(seed, spawn_key=(epoch,))
        return cls(length, np.random.Philox(sequence), rounds)

    def shuffle(self, index):
        """The value at `index` of the permuted order; an int, or an int64 array of any shape."""
        return self._apply(index, False, "index")

    def unshuffle(self, value):
        """The inverse of `shuffle`."""
        return self._apply(value, True, "value")

    def __len__(self):
        return self._net.length

    def __reduce__(self):
        keys = [self._net.keys[i] for i in range(self.rounds)]
        return (_restore, (self._net.length, tuple(keys)))

    def __repr__(self):
        return f"FeistelShuffler(length={self._net.length}, rounds={self.rounds})"

    cdef object _apply(self, object given, bint backward, str name):
        cdef const int64_t[::1] values
        cdef int64_t[::1] results
        cdef int64_t bad
        if isinstance(given, int) and not isinstance(given, bool):
            if not 0 <= given < len(self):
                raise self._outside(name, given, "")
            return permute(&self._net, <uint64_t>given, backward)
        array = index_array(name, given)
        out = np.empty(array.shape, dtype=np.int64)
        values = array.reshape(-1)
        results = out.reshape(-1)
        with nogil:
            bad = permute_many(&self._net, values, results, backward)
        if bad >= 0:
            raise self._outside(name, values[bad], f" at position {bad}")
        return int(out) if out.ndim == 0 else out

    cdef object _outside(self, str name, object value, str where):
        return IndexError(
            f"{name} {value}{where} is outside [0, {self._net.length}), the shuffler's length"
        )


class _StoredKeys:
    """Stands in for a bit generator when a pickled shuffler is restored."""

    def __init__(self, keys):
        self._words = [half for key in keys for half in (key >> 32, key & 0xFFFFFFFF)]

    def random_raw(self, count):
        return self._words[:count]


def _restore(length, keys):
    return FeistelShuffler(length, _StoredKeys(keys), len(keys))

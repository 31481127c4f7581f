"""FeistelShuffler: a permutation at every length, the same everywhere, without memory."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from format.gil_cases import ticks_meanwhile
from guideloom_format import FeistelShuffler

BIT_GENERATORS = [
    np.random.MT19937,
    np.random.PCG64,
    np.random.PCG64DXSM,
    np.random.Philox,
    np.random.SFC64,
]
KINDS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", ">i4", ">i8", ">u8"]
LARGE = [10**5, 10**6 + 3, 2**31 - 1, 2**31 + 1, 2**32, 2**32 + 1, 10**10, 2**53 + 1, 2**61 - 1]
LARGE += [2**62 - 1, 2**62]


class Words:
    """Stands in for a bit generator: gives these raw words."""

    def __init__(self, words: Any) -> None:
        self.words = words

    def random_raw(self, size: int) -> Any:
        return self.words[:size]


def order(shuffler: FeistelShuffler) -> NDArray[np.int64]:
    return shuffler.shuffle(np.arange(len(shuffler)))


def test_a_bijection_with_its_inverse_at_every_length() -> None:
    for n in range(2001):
        shuffler = FeistelShuffler.from_seed(n, seed=n)
        positions = np.arange(n)
        values = shuffler.shuffle(positions)
        np.testing.assert_array_equal(np.sort(values), positions, err_msg=f"length {n}")
        np.testing.assert_array_equal(shuffler.unshuffle(values), positions, err_msg=f"length {n}")


@pytest.mark.parametrize("rounds", range(2, 33))
def test_a_bijection_at_every_number_of_rounds(rounds: int) -> None:
    for n in (1, 2, 3, 16, 17, 255, 256, 257, 1000):
        shuffler = FeistelShuffler(n, np.random.PCG64(n), rounds)
        assert shuffler.rounds == rounds
        values = order(shuffler)
        np.testing.assert_array_equal(np.sort(values), np.arange(n), err_msg=f"length {n}")
        np.testing.assert_array_equal(shuffler.unshuffle(values), np.arange(n))


@settings(max_examples=300, deadline=None)
@given(
    n=st.sampled_from(LARGE) | st.integers(1, 2**62),
    seed=st.integers(0, 2**130),
    epoch=st.integers(0, 2**70),
    sampling=st.integers(0, 2**32 - 1),
)
def test_large_lengths(n: int, seed: int, epoch: int, sampling: int) -> None:
    shuffler = FeistelShuffler.from_seed(n, seed, epoch=epoch)
    assert len(shuffler) == n
    rng = np.random.default_rng(sampling)
    indexes = np.unique(np.append(rng.integers(0, n, 200), [0, n - 1]))
    values = shuffler.shuffle(indexes)
    assert values.min() >= 0
    assert values.max() < n
    assert np.unique(values).size == indexes.size
    np.testing.assert_array_equal(shuffler.unshuffle(values), indexes)
    np.testing.assert_array_equal(shuffler.shuffle(shuffler.unshuffle(indexes)), indexes)


@settings(max_examples=200, deadline=None)
@given(n=st.integers(1, 2**62), data=st.data(), seed=st.integers(0, 9))
def test_int_and_array_agree(n: int, data: st.DataObject, seed: int) -> None:
    shuffler = FeistelShuffler.from_seed(n, seed)
    indexes = data.draw(st.lists(st.integers(0, n - 1), max_size=12))
    for call in (shuffler.shuffle, shuffler.unshuffle):
        singly = [call(index) for index in indexes]
        assert all(type(value) is int for value in singly)
        assert call(indexes).tolist() == singly
        assert [call(np.int64(index)) for index in indexes] == singly


@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (0, 3), (2, 3), (2, 0, 3), (2, 3, 4), (1, 1)])
def test_results_have_the_shape_of_what_is_asked(shape: tuple[int, ...]) -> None:
    shuffler = FeistelShuffler.from_seed(1000, 1)
    indexes = np.random.default_rng(0).integers(0, 1000, shape)
    for call in (shuffler.shuffle, shuffler.unshuffle):
        result = call(indexes)
        assert result.shape == shape
        assert result.dtype == np.int64
        assert result.flags.c_contiguous
        assert result.flags.writeable
        assert result.ravel().tolist() == [call(index) for index in indexes.ravel().tolist()]
        assert not np.shares_memory(result, indexes)


@pytest.mark.parametrize("kind", KINDS)
def test_indexes_of_every_integer_type(kind: str) -> None:
    shuffler = FeistelShuffler.from_seed(1000, 1)
    indexes = np.array([[0, 100], [7, 3]], dtype=kind)
    expected = [[shuffler.shuffle(0), shuffler.shuffle(100)], [shuffler.shuffle(k) for k in (7, 3)]]
    for same in (indexes, indexes.tolist(), [list(row) for row in indexes]):
        assert shuffler.shuffle(same).tolist() == expected
    columns = np.asfortranarray(indexes)
    for array in (indexes.T, indexes[::-1], indexes[:, ::2], indexes[:, 1], columns):
        singly = [shuffler.shuffle(k) for k in array.ravel().tolist()]
        assert shuffler.shuffle(array).ravel().tolist() == singly
        assert shuffler.shuffle(array).shape == array.shape


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_integer_of_every_type_gives_an_int(kind: str) -> None:
    """As a NumPy scalar and as an array without dimensions."""
    shuffler = FeistelShuffler.from_seed(1000, 1)
    for single in (np.array(100, dtype=kind), np.array(100, dtype=kind)[()]):
        for call in (shuffler.shuffle, shuffler.unshuffle):
            value: object = call(single)
            assert type(value) is int
            assert value == call(100)


def test_read_only_and_unaligned_indexes() -> None:
    shuffler = FeistelShuffler.from_seed(1000, 1)
    indexes = np.arange(10)
    indexes.flags.writeable = False
    raw = np.zeros(81, dtype=np.uint8)
    shifted = raw[1:].view(np.int64)
    shifted[:] = indexes
    expected = [shuffler.shuffle(k) for k in range(10)]
    assert shuffler.shuffle(indexes).tolist() == expected
    assert shuffler.shuffle(shifted).tolist() == expected


@pytest.mark.parametrize("bit_generator", BIT_GENERATORS)
def test_every_bit_generator_alone_or_in_a_generator(bit_generator: Any) -> None:
    alone = order(FeistelShuffler(1000, bit_generator(5)))
    np.testing.assert_array_equal(np.sort(alone), np.arange(1000))
    inside = order(FeistelShuffler(1000, np.random.Generator(bit_generator(5))))
    np.testing.assert_array_equal(alone, inside)
    assert (alone != order(FeistelShuffler(1000, bit_generator(6)))).any()


@pytest.mark.parametrize("bit_generator", BIT_GENERATORS)
@pytest.mark.parametrize("rounds", [2, 3, 10, 32])
def test_keys_are_the_lower_halves_of_two_raw_words_each_and_nothing_else_is_drawn(
    bit_generator: Any, rounds: int
) -> None:
    used, reference = bit_generator(5), bit_generator(5)
    shuffler = FeistelShuffler(1000, used, rounds)
    words = reference.random_raw(2 * rounds)
    assert used.random_raw() == reference.random_raw()
    rng: Any = Words(words & np.uint64(0xFFFFFFFF) | np.uint64(0xABCDEF0100000000))
    np.testing.assert_array_equal(order(shuffler), order(FeistelShuffler(1000, rng, rounds)))


def test_from_seed_is_philox_of_the_seed_sequence() -> None:
    sequence = np.random.SeedSequence(42, spawn_key=(3,))
    expected = FeistelShuffler(1000, np.random.Philox(sequence))
    made = FeistelShuffler.from_seed(1000, 42, epoch=3)
    np.testing.assert_array_equal(order(made), order(expected))
    assert made.rounds == 10


def test_epochs_and_seeds_differ() -> None:
    """No two of 400 orders agree at more than a few of 1,000 positions, as for random ones."""
    orders = [
        order(FeistelShuffler.from_seed(1000, seed, epoch=epoch))
        for seed in (0, 1, 2**32, 2**64, 2**64 + 1)
        for epoch in (*range(70), 2**31, 2**32, 2**32 + 1, 2**40, 2**63, 2**64, 2**64 + 1, 2**65,
                      2**90, 2**128)
    ]  # fmt: skip
    table = np.stack(orders)
    for k in range(1, len(table)):
        agreeing = (table[k:] == table[:-k]).sum(axis=1)
        assert agreeing.max() < 15, f"two orders agree at {agreeing.max()} positions"


PROGRAM = """
import numpy as np
from guideloom_format import FeistelShuffler
np.random.seed({seed})
np.random.random(5)
s = FeistelShuffler.from_seed(10**12, 7, epoch=2)
print([s.shuffle(k) for k in range(50)])
"""


def test_the_same_in_every_call_and_process() -> None:
    expected = [FeistelShuffler.from_seed(10**12, 7, epoch=2).shuffle(k) for k in range(50)]
    for seed, hashing in ((1, "0"), (2, "12345")):
        printed = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(seed=seed)],
            env=os.environ | {"PYTHONHASHSEED": hashing},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert printed == f"{expected}\n"


def test_global_seeds_neither_matter_nor_move() -> None:
    orders = []
    for seed in (0, 1, 2):
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        before = (repr(np.random.get_state()), torch.get_rng_state())  # noqa: NPY002
        orders.append(order(FeistelShuffler.from_seed(1000, 3, epoch=1)).tolist())
        orders.append(order(FeistelShuffler(1000, np.random.PCG64(9))).tolist())
        assert repr(np.random.get_state()) == before[0]  # noqa: NPY002
        assert torch.equal(torch.get_rng_state(), before[1])
    assert orders[0::2] == [orders[0]] * 3
    assert orders[1::2] == [orders[1]] * 3


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("n", [0, 1, 1000, 2**62])
def test_pickles(n: int, protocol: int) -> None:
    for rounds in (2, 10, 32):
        shuffler = FeistelShuffler(n, np.random.SFC64(4), rounds)
        pickled = pickle.dumps(shuffler, protocol)
        assert len(pickled) < 1000
        for other in (pickle.loads(pickled), copy.copy(shuffler), copy.deepcopy(shuffler)):
            assert (len(other), other.rounds) == (n, rounds)
            indexes = np.arange(min(n, 500))
            np.testing.assert_array_equal(other.shuffle(indexes), shuffler.shuffle(indexes))
            np.testing.assert_array_equal(other.unshuffle(indexes), shuffler.unshuffle(indexes))


@pytest.mark.parametrize("n", [10**3, 10**10, 2**62])
def test_memory_does_not_grow_with_the_length(n: int) -> None:
    few = np.arange(10)
    FeistelShuffler.from_seed(n, 1).shuffle(few)  # what NumPy builds once
    tracemalloc.start()
    try:
        shuffler = FeistelShuffler.from_seed(n, 2)
        shuffler.shuffle(few)
        shuffler.unshuffle(few)
        shuffler.shuffle(n - 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000


def test_an_array_costs_its_result_only() -> None:
    shuffler = FeistelShuffler.from_seed(2**62, 1)
    many = np.arange(100_000)
    tracemalloc.start()
    try:
        shuffler.shuffle(many)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert many.nbytes <= peak < many.nbytes + 20_000


def test_threads_share_a_shuffler() -> None:
    shuffler = FeistelShuffler.from_seed(10**6, 1)
    expected = order(shuffler)
    found = np.zeros(10**6, dtype=np.int64)

    def work(first: int) -> None:
        for begin in range(first * 10_000, 10**6, 40_000):
            found[begin : begin + 10_000] = shuffler.shuffle(np.arange(begin, begin + 10_000))

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(found, expected)


def test_other_threads_run_while_an_array_is_shuffled() -> None:
    shuffler = FeistelShuffler.from_seed(2**62, 1)
    many = np.arange(4_000_000)
    ticks, seconds = ticks_meanwhile(lambda: shuffler.shuffle(many))
    assert ticks > 0, f"no other thread ran in the middle of {seconds:.2f} s"


def test_the_type_says_what_it_is() -> None:
    assert repr(FeistelShuffler.from_seed(10, 1)) == "FeistelShuffler(length=10, rounds=10)"

"""FeistelShuffler: what is refused, with which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from guideloom_format import FeistelShuffler

NAMES = {"shuffle": "index", "unshuffle": "value"}


@pytest.mark.parametrize("call", NAMES)
@pytest.mark.parametrize("n", [0, 1, 2, 10, 256, 2**62])
def test_an_index_outside_is_named(call: str, n: int) -> None:
    method: Any = getattr(FeistelShuffler.from_seed(n, 1), call)
    tail = rf"is outside \[0, {n}\), the shuffler's length$"
    for index in (-1, n, n + 1, -(2**63), 2**63 - 1):
        with pytest.raises(IndexError, match=rf"^{NAMES[call]} {index} {tail}"):
            method(index)
        for position in range(3 if n else 1):
            indexes = [0] * (3 if n else 1)
            indexes[position] = index
            message = rf"^{NAMES[call]} {index} at position {position} {tail}"
            with pytest.raises(IndexError, match=message):
                method(indexes)
            with pytest.raises(IndexError, match=message):
                method(np.array([indexes], dtype=np.int64))


@pytest.mark.parametrize("call", NAMES)
@pytest.mark.parametrize("index", [2**63, 2**64 - 1, 2**64, 2**64 + 1, 2**70, -(2**63) - 1])
def test_an_index_beyond_64_bits_is_outside(call: str, index: int) -> None:
    """It does not come round to an index inside."""
    method: Any = getattr(FeistelShuffler.from_seed(10, 1), call)
    with pytest.raises(IndexError, match=rf"^{NAMES[call]} {index} is outside \[0, 10\), "):
        method(index)
    for many in ([index], [0, index]):
        with pytest.raises((IndexError, ValueError, TypeError), match=rf"^{NAMES[call]} "):
            method(many)


@pytest.mark.parametrize("call", NAMES)
@pytest.mark.parametrize(
    "index, dtype",
    [
        (1.0, "float64"),
        ([1.0], "float64"),
        (np.float32(1), "float32"),
        ([True, False], "bool"),
        (np.True_, "bool"),
        (True, "bool"),
        ("1", "<U1"),
        (None, "object"),
        ([None], "object"),
        (np.zeros(0), "float64"),
        (np.zeros(3, dtype=complex), "complex128"),
        (np.zeros(3, dtype="m8[s]"), r"timedelta64\[s\]"),
    ],
    ids=repr,
)
def test_what_is_no_integer_is_refused(call: str, index: Any, dtype: str) -> None:
    method: Any = getattr(FeistelShuffler.from_seed(10, 1), call)
    with pytest.raises(TypeError, match=rf"^{NAMES[call]} (has dtype {dtype}|is True); expected "):
        method(index)


@pytest.mark.parametrize("n", [-1, -(2**63), 2**62 + 1, 2**63, 2**64, 10**30])
def test_a_length_outside_its_interval_is_refused(n: int) -> None:
    message = rf"^length is {n}; expected between 0 and {2**62}$"
    with pytest.raises(ValueError, match=message):
        FeistelShuffler(n, np.random.PCG64(1))
    with pytest.raises(ValueError, match=message):
        FeistelShuffler.from_seed(n, 1)


@pytest.mark.parametrize("rounds", [-1, 0, 1, 33, 34, 2**31, 2**64 + 10])
def test_rounds_outside_their_interval_are_refused(rounds: int) -> None:
    message = rf"^rounds is {rounds}; expected between 2 and 32$"
    with pytest.raises(ValueError, match=message):
        FeistelShuffler(10, np.random.PCG64(1), rounds)
    with pytest.raises(ValueError, match=message):
        FeistelShuffler.from_seed(10, 1, rounds=rounds)


@pytest.mark.parametrize("name", ["seed", "epoch"])
def test_negative_seeds_and_epochs_are_refused(name: str) -> None:
    asked: dict[str, Any] = {"seed": 0, "epoch": 0, name: -1}
    with pytest.raises(ValueError, match=rf"^{name} is -1; expected at least 0$"):
        FeistelShuffler.from_seed(10, **asked)


@pytest.mark.parametrize("value", [1.0, "1", None, True, np.False_, [1], np.array([1.0])], ids=repr)
@pytest.mark.parametrize("name", ["length", "seed", "epoch", "rounds"])
def test_arguments_that_are_no_integers_are_refused(name: str, value: Any) -> None:
    asked: dict[str, Any] = {"length": 10, "seed": 1, "epoch": 1, "rounds": 10, name: value}
    with pytest.raises(TypeError, match=rf"^{name} is .*; expected an integer$"):
        FeistelShuffler.from_seed(**asked)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint16, np.int64, np.uint64])
def test_arguments_of_every_integer_type_are_accepted(dtype: Any) -> None:
    made = FeistelShuffler.from_seed(dtype(100), dtype(7), epoch=dtype(3), rounds=dtype(9))
    expected = FeistelShuffler.from_seed(100, 7, epoch=3, rounds=9)
    everything = np.arange(100)
    np.testing.assert_array_equal(made.shuffle(everything), expected.shuffle(everything))


@pytest.mark.parametrize(
    "rng",
    [None, 1, "seed", object(), np.random.RandomState(1), np.random.SeedSequence(1)],
    ids=lambda rng: type(rng).__name__,
)
def test_a_generator_without_raw_words_is_refused(rng: Any) -> None:
    with pytest.raises(
        TypeError,
        match=rf"^rng is {type(rng).__name__}; expected a numpy\.random\.Generator or "
        r"BitGenerator, for example numpy\.random\.default_rng\(seed\)$",
    ):
        FeistelShuffler(10, rng)

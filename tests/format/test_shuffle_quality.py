"""Orders are as even as random ones; and the questions asked would find one that is not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest

from format.order_statistics import (
    Orders,
    feistel_epochs,
    feistel_orders,
    random_orders,
    statistics,
    z_of_counts,
)

LIMIT = 6.0  # random orders pass it in all but 2 of a billion cases
COUNTS = {2: 10_000, 5: 10_000, 16: 8_000, 64: 5_000, 257: 1_500, 1000: 600}
QUESTIONS = [(n, name) for n in COUNTS for name in statistics(n)]

seeds = lru_cache(maxsize=None)(feistel_orders)
epochs = lru_cache(maxsize=None)(feistel_epochs)


@pytest.mark.parametrize("n, question", QUESTIONS)
def test_the_orders_of_many_seeds_are_even(n: int, question: str) -> None:
    assert abs(statistics(n)[question](seeds(n, COUNTS[n]))) < LIMIT


@pytest.mark.parametrize("n, question", QUESTIONS)
def test_the_orders_of_many_epochs_are_even(n: int, question: str) -> None:
    assert abs(statistics(n)[question](epochs(n, COUNTS[n]))) < LIMIT


@pytest.mark.parametrize("n, question", QUESTIONS)
def test_random_orders_pass(n: int, question: str) -> None:
    orders = random_orders(n, COUNTS[n], seed=20_000)
    assert abs(statistics(n)[question](orders)) < LIMIT


@pytest.mark.parametrize(
    "make", [feistel_orders, feistel_epochs, lambda n, c: random_orders(n, c, 5)]
)
def test_all_120_orders_of_five_samples_are_equally_frequent(
    make: Callable[[int, int], Orders],
) -> None:
    number = {order: k for k, order in enumerate(itertools.permutations(range(5)))}
    counts = np.zeros(120, dtype=np.int64)
    for order in make(5, 12_000).tolist():
        counts[number[tuple(order)]] += 1
    assert abs(z_of_counts(counts, np.full(120, 1 / 120))) < LIMIT


@pytest.mark.parametrize(
    "n, rounds, question",
    [
        (1000, 2, "position to value"),
        *((64, 2, f"differences at lag {lag}") for lag in (1, 2, 3, 8, 32)),
        *((257, rounds, f"differences at lag {lag}") for rounds in (2, 3) for lag in (1, 2, 3)),
        *((257, rounds, f"differences at lag {lag}") for rounds in (2, 3) for lag in (16, 128)),
        *((1000, rounds, f"differences at lag {lag}") for rounds in (2, 3) for lag in (1, 2, 3)),
        *((1000, rounds, f"differences at lag {lag}") for rounds in (2, 3) for lag in (31, 500)),
    ],
)
def test_too_few_rounds_are_found(n: int, rounds: int, question: str) -> None:
    z = statistics(n)[question](seeds(n, COUNTS[n], rounds))
    assert abs(z) > 1.5 * LIMIT


def rotations(n: int, count: int) -> Orders:
    starts = np.random.default_rng(1).integers(0, n, (count, 1))
    return (np.arange(n) + starts) % n


def small_buffer(n: int, count: int) -> Orders:
    """What a shuffle buffer gives: values stay near their positions."""
    width = max(2, n // 4)
    keys = np.arange(n) + np.random.default_rng(2).uniform(0, width, (count, n))
    return np.argsort(keys, axis=1)


def every_order_twice(n: int, count: int) -> Orders:
    return np.repeat(random_orders(n, count // 2, seed=3), 2, axis=0)


@pytest.mark.parametrize("n", [n for n in COUNTS if n > 2])
@pytest.mark.parametrize(
    "make, questions",
    [
        (rotations, ["first two values", "differences"]),
        (small_buffer, ["position to value", "first two values"]),
        (every_order_twice, ["next order"]),
    ],
)
def test_other_bad_orders_are_found(
    make: Callable[[int, int], Orders], questions: list[str], n: int
) -> None:
    """Each question has an answer that is wrong, at each length."""
    orders = make(n, COUNTS[n])
    np.testing.assert_array_equal(np.sort(orders, axis=1)[0], np.arange(n))
    asked = [name for name in statistics(n) if name.startswith(tuple(questions))]
    assert asked
    for name in asked:
        assert abs(statistics(n)[name](orders)) > 1.5 * LIMIT, name


@pytest.mark.parametrize("n", [2, 3, 5, 16, 17, 100, 255, 256, 257])
def test_every_sample_comes_first_equally_often(n: int) -> None:
    firsts = seeds(n, 4000)[:, 0]
    assert abs(z_of_counts(np.bincount(firsts, minlength=n), np.full(n, 1 / n))) < LIMIT

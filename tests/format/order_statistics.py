"""How far a family of orders is from uniformly random orders: one z value per question.

For a shuffler that is as good as random, each z is about standard normal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_format import FeistelShuffler

Orders = NDArray[np.int64]  # (orders, n), each row a permutation of 0 … n-1
MAX_BUCKETS = 16


def feistel_orders(n: int, count: int, rounds: int = 10) -> Orders:
    """The orders of `count` seeds."""
    positions = np.arange(n)
    return np.stack(
        [FeistelShuffler.from_seed(n, seed, rounds=rounds).shuffle(positions)
         for seed in range(count)]
    )  # fmt: skip


def feistel_epochs(n: int, count: int, rounds: int = 10) -> Orders:
    """The orders of `count` epochs of one seed."""
    positions = np.arange(n)
    return np.stack(
        [FeistelShuffler.from_seed(n, 7, epoch=epoch, rounds=rounds).shuffle(positions)
         for epoch in range(count)]
    )  # fmt: skip


def random_orders(n: int, count: int, seed: int) -> Orders:
    """NumPy's permutations: what the others are compared with."""
    rng = np.random.default_rng(seed)
    return rng.permuted(np.tile(np.arange(n), (count, 1)), axis=1)


def buckets(n: int) -> NDArray[np.int64]:
    """Each of 0 … n-1 to one of at most 16 buckets of neighbours, about equally large."""
    return np.arange(n) * min(n, MAX_BUCKETS) // n


def z_of_counts(counts: NDArray[Any], probabilities: NDArray[np.float64]) -> float:
    """Pearson's chi-square of independent draws, standardized by its exact mean and variance."""
    counts, probabilities = counts[probabilities > 0], probabilities[probabilities > 0]
    total, cells = counts.sum(), probabilities.size
    expected = total * probabilities
    chi_square = ((counts - expected) ** 2 / expected).sum()
    spread = 2 * (cells - 1) + ((1 / probabilities).sum() - cells**2 - 2 * cells + 2) / total
    return float((chi_square - (cells - 1)) / math.sqrt(spread))


def position_to_value(orders: Orders) -> float:
    """Does every position get every value equally often?

    A table of positions by values, in buckets. Its margins are fixed, so (n-1)/n times its
    chi-square has (buckets-1)**2 degrees of freedom.
    """
    count, n = orders.shape
    bucket = buckets(n)
    k = bucket[-1] + 1
    cell = bucket[None, :] * k + bucket[orders]
    table = np.bincount(cell.ravel(), minlength=k * k).reshape(k, k)
    sizes = np.bincount(bucket)
    expected = count * np.outer(sizes, sizes) / n
    chi_square = (n - 1) / n * ((table - expected) ** 2 / expected).sum()
    freedom = (k - 1) ** 2
    return float((chi_square - freedom) / math.sqrt(2 * freedom))


def first_two_values(orders: Orders) -> float:
    """Is every ordered pair of values equally often at positions 0 and 1?"""
    n = orders.shape[1]
    bucket = buckets(n)
    k = int(bucket[-1]) + 1
    cell = bucket[orders[:, 0]] * k + bucket[orders[:, 1]]
    sizes = np.bincount(bucket).astype(np.float64)
    pairs = np.outer(sizes, sizes) - np.diag(sizes)
    return z_of_counts(np.bincount(cell, minlength=k * k), pairs.ravel() / (n * (n - 1)))


def clustering(orders: Orders, lag: int) -> NDArray[np.float64]:
    """For each order: how unevenly its value differences at `lag`, modulo n, are spread."""
    count, n = orders.shape
    differences = (np.roll(orders, -lag, axis=1) - orders) % n
    cell = np.arange(count)[:, None] * n + differences
    table = np.bincount(cell.ravel(), minlength=count * n)
    spread: NDArray[np.float64] = (table.reshape(count, n).astype(np.float64) ** 2).mean(axis=1)
    return spread


def differences(orders: Orders, lag: int) -> float:
    """Are differences at `lag` as unevenly spread in each order as in random ones?

    Two samples: against as many permutations of NumPy.
    """
    count, n = orders.shape
    ours = clustering(orders, lag)
    theirs = clustering(random_orders(n, count, seed=lag), lag)
    spread = math.sqrt((ours.var() + theirs.var()) / count)
    return float((ours.mean() - theirs.mean()) / max(spread, 1e-12))


def next_order(orders: Orders) -> float:
    """Is an order independent of the one before? Buckets of values at one position, in pairs."""
    n = orders.shape[1]
    bucket = buckets(n)
    k = int(bucket[-1]) + 1
    cell = bucket[orders[:-1:2, 0]] * k + bucket[orders[1::2, 0]]
    sizes = np.bincount(bucket) / n
    return z_of_counts(np.bincount(cell, minlength=k * k), np.outer(sizes, sizes).ravel())


def lags(n: int) -> list[int]:
    return sorted({lag for lag in (1, 2, 3, math.isqrt(n), n // 2) if 0 < lag < n})


def statistics(n: int) -> dict[str, Callable[[Orders], float]]:
    """All questions that make sense at this length, by name."""
    named: dict[str, Callable[[Orders], float]] = {
        "position to value": position_to_value,
        "first two values": first_two_values,
        "next order": next_order,
    }
    for lag in lags(n):
        named[f"differences at lag {lag}"] = lambda orders, lag=lag: differences(orders, lag)  # type: ignore[misc]
    return named

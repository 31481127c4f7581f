"""EpochPlan against lists: who gets what when, for every small job, and its inverse."""

from __future__ import annotations

import itertools
import pickle
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guideloom_format import Delivery, EpochPlan, FeistelShuffler

Steps = list[list[list[int]]]  # [step][rank] = sample ids, in order of the rows


def steps_by_lists(
    order: Sequence[int], world_size: int, batch: int, drop_last: bool, start: int = 0
) -> Steps:
    """The reference: cut the global order into global batches and deal each to the ranks."""
    size = world_size * batch
    global_batches = [order[k : k + size] for k in range(start, len(order), size)]
    if drop_last and global_batches and len(global_batches[-1]) < size:
        global_batches.pop()
    return [
        [list(dealt[rank::world_size]) for rank in range(world_size)] for dealt in global_batches
    ]


def steps_of(plans: Sequence[EpochPlan]) -> Steps:
    """The same from one plan per rank; every rank must have as many steps."""
    (count,) = {len(plan) for plan in plans}
    return [[plan.sample_ids(step).tolist() for plan in plans] for step in range(count)]


def plans_of(world_size: int, **fields: Any) -> list[EpochPlan]:
    return [EpochPlan(world_size=world_size, rank=k, **fields) for k in range(world_size)]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_every_small_job(shuffle: bool, drop_last: bool) -> None:
    """All lengths to 64, world sizes to 9, batches to 8: equal steps, each sample exactly once."""
    for n in range(65):
        shuffler = FeistelShuffler.from_seed(n, 5, epoch=2)
        order = shuffler.shuffle(np.arange(n)).tolist() if shuffle else list(range(n))
        for world_size, batch in itertools.product(range(1, 10), range(1, 9)):
            plans = plans_of(
                world_size, length=n, seed=5, epoch=2, shuffle=shuffle, local_batch_size=batch,
                drop_last=drop_last,
            )  # fmt: skip
            steps = steps_of(plans)
            job = f"n {n}, world size {world_size}, batch {batch}"
            assert steps == steps_by_lists(order, world_size, batch, drop_last), job
            delivered = [sample for step in steps for ids in step for sample in ids]
            dropped = n % (world_size * batch) if drop_last else 0
            assert sorted(delivered) == sorted(order[: n - dropped]), job
            assert plans[0].stop == n - dropped, job
            assert plans[0].global_batch_size == world_size * batch, job
            if drop_last:
                assert all(len(ids) == batch for step in steps for ids in step), job


@pytest.mark.parametrize("drop_last", [False, True])
def test_delivery_is_the_inverse_in_every_small_job(drop_last: bool) -> None:
    for n in range(65):
        for world_size, batch in itertools.product(range(1, 10), range(1, 9)):
            plan = EpochPlan(
                n, seed=3, epoch=7, shuffle=True, world_size=world_size, local_batch_size=batch,
                drop_last=drop_last,
            )  # fmt: skip
            order = FeistelShuffler.from_seed(n, 3, epoch=7).shuffle(np.arange(n)).tolist()
            expected = [[7, -1, -1, -1] for _ in range(n)]
            steps = steps_by_lists(order, world_size, batch, drop_last)
            for step, dealt in enumerate(steps):
                for rank, ids in enumerate(dealt):
                    for row, sample in enumerate(ids):
                        expected[sample] = [7, step, rank, row]
            found = plan.delivery(np.arange(n))
            assert found.dtype == np.int64
            assert found.tolist() == expected, f"n {n}, world size {world_size}, batch {batch}"


jobs = st.fixed_dictionaries(
    {
        "length": st.integers(0, 300),
        "seed": st.integers(0, 2**70),
        "epoch": st.integers(0, 2**40),
        "shuffle": st.booleans(),
        "local_batch_size": st.integers(1, 20),
        "drop_last": st.booleans(),
    }
)


@settings(max_examples=300, deadline=None)
@given(job=jobs, world_size=st.integers(1, 12), data=st.data())
def test_delivery_of_one_sample_is_that_of_many(
    job: dict[str, Any], world_size: int, data: st.DataObject
) -> None:
    n = job["length"]
    start = data.draw(st.integers(0, n))
    rank = data.draw(st.integers(0, world_size - 1))
    plan = EpochPlan(world_size=world_size, rank=rank, start=start, **job)
    table = plan.delivery(np.arange(n))
    singly = [plan.delivery(sample) for sample in range(n)]
    assert all(one is None or type(one) is Delivery for one in singly)
    assert [list(one or (job["epoch"], -1, -1, -1)) for one in singly] == table.tolist()
    for step in range(len(plan)):
        for row, sample in enumerate(plan.sample_ids(step).tolist()):
            assert plan.delivery(sample) == Delivery(job["epoch"], step, rank, row)


@settings(max_examples=300, deadline=None)
@given(job=jobs, sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 20)), min_size=2,
                                max_size=5), data=st.data())  # fmt: skip
def test_a_resumed_job_goes_on_in_the_same_global_order(
    job: dict[str, Any], sizes: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Several legs, each with another world size and batch; together they are one epoch."""
    n = job["length"]
    whole = EpochPlan(**(job | {"local_batch_size": 1, "drop_last": False}))
    order = [int(whole.sample_ids(step)[0]) for step in range(n)]
    start = 0
    delivered: list[int] = []
    for leg, (world_size, batch) in enumerate(sizes):
        fields = job | {"local_batch_size": batch, "start": start}
        plans = plans_of(world_size, **fields)
        steps = steps_of(plans)
        assert steps == steps_by_lists(order, world_size, batch, job["drop_last"], start)
        last = leg == len(sizes) - 1
        count = len(steps) if last else data.draw(st.integers(0, len(steps)))
        for dealt in steps[:count]:
            in_order = itertools.chain(*itertools.zip_longest(*dealt))
            delivered += [sample for sample in in_order if sample is not None]
        start = min(start + count * world_size * batch, n)
    left = n - len(delivered)
    assert delivered == order[: n - left]
    assert left < sizes[-1][0] * sizes[-1][1] if job["drop_last"] else left == 0


def test_positions_are_counted_before_the_shuffle() -> None:
    plan = EpochPlan(10, shuffle=True, seed=1, world_size=2, rank=1, local_batch_size=2)
    shuffler = FeistelShuffler.from_seed(10, 1, epoch=0)
    for step in range(len(plan)):
        positions = plan.positions(step)
        assert positions.dtype == plan.sample_ids(step).dtype == np.int64
        assert positions.tolist() == [4 * step + 1, 4 * step + 3]
        np.testing.assert_array_equal(plan.sample_ids(step), shuffler.shuffle(positions))


def test_the_picture_of_the_format() -> None:
    """World size 2, batch 3, 14 samples."""
    plans = plans_of(2, length=14, local_batch_size=3, drop_last=False)
    assert steps_of(plans) == [
        [[0, 2, 4], [1, 3, 5]],
        [[6, 8, 10], [7, 9, 11]],
        [[12], [13]],
    ]


@pytest.mark.parametrize("shuffle", [False, True])
def test_huge_epochs_cost_nothing(shuffle: bool) -> None:
    n = 2**62
    tracemalloc.start()
    try:
        plan = EpochPlan(n, shuffle=shuffle, world_size=1000, rank=999, local_batch_size=7)
        assert len(plan) == n // 7000
        last = plan.sample_ids(len(plan) - 1)
        found = plan.delivery(last)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.tolist() == [[0, len(plan) - 1, 999, row] for row in range(7)]
    assert plan.positions(len(plan) - 1).tolist() == [
        (len(plan) - 1) * 7000 + 999 + 1000 * row for row in range(7)
    ]
    assert plan.stop == n - n % 7000
    assert peak < 50_000
    assert len(EpochPlan(n, drop_last=False, world_size=2**31, local_batch_size=2**31)) == 1


@pytest.mark.parametrize("step", [0, 2**29, 2**30, 2**31, 2**32, 2**40, 2**52 + 1])
def test_positions_beyond_32_bits_are_exact(step: int) -> None:
    plan = EpochPlan(2**62, world_size=100, rank=99, local_batch_size=9, start=5)
    first = 5 + step * 900
    assert plan.positions(step).tolist() == [first + 99 + 100 * k for k in range(9)]
    assert plan.delivery(first + 99) == Delivery(0, step, 99, 0)
    assert plan.delivery(first + 899) == Delivery(0, step, 99, 8)


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_integers_of_every_type(kind: str) -> None:
    """A step, an id or a size of type uint8 does not go round at 256."""
    number = np.dtype(kind).type
    plain = EpochPlan(100_000, shuffle=True, seed=1, world_size=20, rank=3, local_batch_size=50)
    fields = {"seed": 1, "world_size": 20, "rank": 3, "local_batch_size": 50, "epoch": 0}
    typed: dict[str, Any] = {name: number(value) for name, value in fields.items()}
    plan = EpochPlan(100_000, shuffle=True, **typed)
    assert plan == plain
    assert plan.sample_ids(number(99)).tolist() == plain.sample_ids(99).tolist()
    assert plan.positions(number(99)).tolist() == plain.positions(99).tolist()
    ids = np.array([[1, 100], [0, 99]])
    assert plan.delivery(ids.astype(kind)).tolist() == plain.delivery(ids).tolist()
    assert plan.delivery(ids.astype(kind).T).tolist() == plain.delivery(ids.T).tolist()


@pytest.mark.parametrize("kind", ["i1", "u1", "i4", "u4", "i8", "u8"])
def test_a_single_id_of_every_type_has_one_delivery(kind: str) -> None:
    plan = EpochPlan(100, world_size=2, local_batch_size=5)
    found: object = plan.delivery(np.dtype(kind).type(13))
    assert found == Delivery(0, 1, 1, 1)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (4,), (2, 3), (2, 0, 1), (1, 2, 3)])
def test_delivery_has_the_shape_of_what_is_asked(shape: tuple[int, ...]) -> None:
    ids = np.random.default_rng(0).integers(0, 50, shape)
    plan = EpochPlan(50, shuffle=True, world_size=3, local_batch_size=4)
    found = plan.delivery(ids)
    assert found.shape == (*shape, 4)
    singly = [list(plan.delivery(k) or (0, -1, -1, -1)) for k in ids.ravel().tolist()]
    assert found.reshape(-1, 4).tolist() == singly


def test_epochs_and_seeds_differ() -> None:
    """Same fields, same order; another epoch or seed, another order."""

    def order(seed: int, epoch: int) -> tuple[int, ...]:
        plan = EpochPlan(1000, seed=seed, epoch=epoch, shuffle=True, local_batch_size=1000)
        return tuple(plan.sample_ids(0).tolist())

    orders = [order(seed, epoch) for seed in range(5) for epoch in range(5)]
    assert len(set(orders)) == 25
    assert orders == [order(seed, epoch) for seed in range(5) for epoch in range(5)]


def test_plans_are_values() -> None:
    plan = EpochPlan(100, seed=2, epoch=1, shuffle=True, world_size=2, local_batch_size=5)
    back = pickle.loads(pickle.dumps(plan))
    assert back == plan
    assert hash(back) == hash(plan)
    assert back.sample_ids(3).tolist() == plan.sample_ids(3).tolist()
    assert plan != EpochPlan(100, seed=2, epoch=2, shuffle=True, world_size=2, local_batch_size=5)

"""Steps of full size, and where so many steps lead: EpochPlan against lists and a simulation."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guideloom_format import Delivery, EpochPlan, FeistelShuffler

Rows = list[list[list[tuple[int, bool]]]]  # [step][rank] = (sample, valid), in order of the rows

WORLDS = list(itertools.product(range(1, 10), range(1, 9)))  # (ranks, batch)


def plans_of(world_size: int, **fields: Any) -> list[EpochPlan]:
    return [EpochPlan(world_size=world_size, rank=k, **fields) for k in range(world_size)]


def order_of(n: int, shuffle: bool) -> list[int]:
    if not shuffle:
        return list(range(n))
    return list(map(int, FeistelShuffler.from_seed(n, 5, epoch=2).shuffle(np.arange(n))))


def padded_by_lists(order: Sequence[int], world_size: int, batch: int, start: int) -> Rows:
    """The reference: what is left, filled up from a loop over all, dealt like cards."""
    size = world_size * batch
    cards = [(sample, True) for sample in order[start:]]
    loop = itertools.cycle(order)
    while len(cards) % size:
        cards.append((next(loop), False))
    return [
        [cards[k : k + size][rank::world_size] for rank in range(world_size)]
        for k in range(0, len(cards), size)
    ]


def check_padded(n: int, starts: Iterable[int], shuffle: bool) -> None:
    order = order_of(n, shuffle)
    for start, (world_size, batch) in itertools.product(starts, WORLDS):
        job = f"n {n}, start {start}, world size {world_size}, batch {batch}"
        plans = plans_of(
            world_size, length=n, seed=5, epoch=2, shuffle=shuffle, local_batch_size=batch,
            drop_last=False, start=start,
        )  # fmt: skip
        (count,) = {len(plan) for plan in plans}
        assert count == -(-(n - start) // (world_size * batch)), job
        steps: Rows = []
        for step in range(count):
            steps.append([])
            for plan in plans:
                ids, valid = plan.padded(step)
                assert ids.shape == valid.shape == (batch,), job
                assert (ids.dtype.str, valid.dtype.str) == ("<i8", "|b1"), job
                steps[-1].append(list(zip(ids.tolist(), valid.tolist(), strict=True)))
        assert steps == padded_by_lists(order, world_size, batch, start), job
        dealt = [row for step in steps for rows in step for row in rows]
        assert sorted(sample for sample, valid in dealt if valid) == sorted(order[start:]), job
        for plan in plans:
            with pytest.raises(IndexError):
                plan.padded(count)


@pytest.mark.parametrize("shuffle", [False, True])
def test_every_small_job_is_filled_up(shuffle: bool) -> None:
    """All lengths to 64, world sizes to 9, batches to 8: each sample is valid exactly once."""
    for n in range(65):
        check_padded(n, {0, n // 2, n}, shuffle)


@pytest.mark.parametrize("n", [1, 2, 5, 12, 33])
def test_every_start_is_filled_up(n: int) -> None:
    check_padded(n, range(n + 1), shuffle=True)


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_start_of_every_small_job_is_filled_up(shuffle: bool) -> None:
    for n in range(65):
        check_padded(n, range(n + 1), shuffle)


def test_the_picture_of_padding() -> None:
    """World size 2, batch 3, 14 samples; and an epoch of 2 samples, on 3 ranks of 2 rows."""
    plans = plans_of(2, length=14, local_batch_size=3, drop_last=False)
    assert [plan.padded(2)[0].tolist() for plan in plans] == [[12, 0, 2], [13, 1, 3]]
    assert [plan.padded(2)[1].tolist() for plan in plans] == [[True, False, False]] * 2
    plans = plans_of(3, length=2, local_batch_size=2, drop_last=False)
    assert [plan.padded(0)[0].tolist() for plan in plans] == [[0, 1], [1, 0], [0, 1]]
    assert [plan.padded(0)[1].tolist() for plan in plans] == [[True, False]] * 2 + [[False, False]]


def test_an_empty_epoch_has_no_step_to_fill() -> None:
    for plan in (EpochPlan(0, drop_last=False), EpochPlan(7, drop_last=False, start=7)):
        assert len(plan) == 0
        with pytest.raises(IndexError, match=r"^step 0 is outside \[0, 0\), the steps of this"):
            plan.padded(0)


jobs = st.fixed_dictionaries(
    {
        "length": st.integers(0, 300),
        "seed": st.integers(0, 2**70),
        "epoch": st.integers(0, 2**40),
        "shuffle": st.booleans(),
        "local_batch_size": st.integers(1, 20),
        "world_size": st.integers(1, 12),
        "drop_last": st.booleans(),
    }
)


@settings(max_examples=200, deadline=None)
@given(job=jobs, data=st.data())
def test_all_ranks_at_once_and_row_by_row(job: dict[str, Any], data: st.DataObject) -> None:
    """`all_sample_ids` and `sample_at` say what `sample_ids` says; `delivery` leads back."""
    start = data.draw(st.integers(0, job["length"]))
    world_size, batch = job.pop("world_size"), job["local_batch_size"]
    plans = plans_of(world_size, start=start, **job)
    for step in range(len(plans[0])):
        table = plans[data.draw(st.integers(0, world_size - 1))].all_sample_ids(step)
        assert table.dtype == np.int64
        assert table.shape == (world_size, batch)
        for rank, plan in enumerate(plans):
            ids = plan.sample_ids(step).tolist()
            assert table[rank].tolist() == ids + [-1] * (batch - len(ids))
            padded, valid = plan.padded(step)
            assert padded[valid].tolist() == ids
            assert valid.tolist() == [row < len(ids) for row in range(batch)]
            if job["drop_last"]:
                assert valid.all()
            for row in range(batch):
                sample = plans[0].sample_at(step, rank, row)
                assert sample == (ids[row] if row < len(ids) else None)
                assert sample is None or type(sample) is int
                if sample is not None:
                    found = plan.delivery(sample)
                    assert found == Delivery(job["epoch"], step, rank, row)


def test_padding_beyond_32_bits_is_exact() -> None:
    n, world_size, batch = 2**62, 2**31, 1000
    plan = EpochPlan(
        n, start=n - 5, world_size=world_size, rank=world_size - 1, local_batch_size=batch,
        drop_last=False,
    )  # fmt: skip
    ids, valid = plan.padded(0)
    assert ids.tolist() == [world_size * (k + 1) - 6 for k in range(batch)]
    assert not valid.any()
    first = replace(plan, rank=4)
    assert first.padded(0)[0][0] == n - 1
    assert first.padded(0)[1].tolist() == [True] + [False] * (batch - 1)
    assert replace(plan, rank=5).padded(0)[0][0] == 0
    one = EpochPlan(1, world_size=world_size, rank=77, local_batch_size=batch, drop_last=False)
    assert one.padded(0)[0].tolist() == [0] * batch


@pytest.mark.parametrize("shuffle", [False, True])
def test_no_python_runs_per_sample(shuffle: bool) -> None:
    def calls(batch: int) -> int:
        plan = EpochPlan(10, shuffle=shuffle, world_size=3, local_batch_size=batch, drop_last=False)
        count = 0

        def note(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(note)
        try:
            plan.padded(0)
            plan.all_sample_ids(0)
        finally:
            sys.setprofile(None)
        return count

    assert calls(100_000) == calls(5) < 100


# Where so many steps lead.


def states(n: int, size: int, drop_last: bool, epoch: int, start: int) -> Iterator[tuple[int, int]]:
    """The states of a loader, step by step: first this one, then that after each batch."""
    yield epoch, start
    idle = 0
    while idle < 3:  # epochs without a batch
        left = list(range(start, n))
        batches = []
        while left and not (drop_last and len(left) < size):
            batches.append(left[:size])
            del left[:size]
        idle = 0 if batches else idle + 1
        for number, batch in enumerate(batches, 1):
            yield (epoch, batch[-1] + 1) if number < len(batches) else (epoch + 1, 0)
        epoch, start = epoch + 1, 0


def test_where_steps_lead_in_every_small_job() -> None:
    """All lengths to 12, batches to 14, every start, over three epochs and more."""
    for n, size, drop_last in itertools.product(range(13), range(1, 15), [False, True]):
        for start in range(n + 1):
            plan = EpochPlan(n, epoch=4, start=start, local_batch_size=size, drop_last=drop_last)
            expected = list(itertools.islice(states(n, size, drop_last, 4, start), 3 * n + 4))
            found = [plan.after(steps) for steps in range(len(expected))]
            job = f"n {n}, batch {size}, start {start}, drop_last {drop_last}"
            assert found == expected, job
            assert all(type(number) is int for at in found for number in at), job
            if len(expected) < 3 * n + 4:  # no epoch has a batch
                for steps in (len(expected), len(expected) + 1, 10**12, 10**100):
                    with pytest.raises(ValueError, match=rf" {n} samples has no batch "):
                        plan.after(steps)


@pytest.mark.parametrize(("world_size", "batch"), [(1, 6), (2, 3), (3, 2), (6, 1)])
def test_only_the_global_batch_counts(world_size: int, batch: int) -> None:
    one = EpochPlan(50, start=7, local_batch_size=6, drop_last=False)
    plan = EpochPlan(
        50, start=7, local_batch_size=batch, world_size=world_size, rank=world_size - 1,
        drop_last=False, shuffle=True,
    )  # fmt: skip
    assert [plan.after(steps) for steps in range(40)] == [one.after(steps) for steps in range(40)]


plans = st.builds(
    lambda length, start, **fields: EpochPlan(length, start=min(start, length), **fields),
    length=st.integers(0, 50) | st.integers(0, 2**62),
    start=st.integers(0, 50) | st.integers(0, 2**62),
    epoch=st.integers(0, 2**62),
    local_batch_size=st.integers(1, 20) | st.integers(1, 2**31),
    world_size=st.integers(1, 20) | st.integers(1, 2**31),
    drop_last=st.booleans(),
)
counts = st.integers(0, 20) | st.integers(0, 2**60)


@settings(max_examples=500, deadline=None)
@given(plan=plans, first=counts, second=counts)
def test_steps_add_up_at_any_size(plan: EpochPlan, first: int, second: int) -> None:
    """Stopped after some steps and gone on from there, a job stands where it would have stood."""
    empty = len(replace(plan, start=0)) == 0
    if empty and first + second > len(plan):
        with pytest.raises(ValueError, match="has no batch"):
            plan.after(first + second)
        return
    epoch, start = plan.after(first)
    assert 0 <= start < max(plan.length, 1) or first == 0
    between = replace(plan, epoch=epoch, start=start)
    if first and second and not len(between):
        # Right behind an epoch there is always a whole one, but where none has a batch.
        assert empty
    assert between.after(second) == plan.after(first + second)
    assert plan.after(first + second) >= plan.after(first)


@settings(max_examples=300, deadline=None)
@given(plan=plans, data=st.data())
def test_a_step_begins_where_the_steps_before_it_lead(plan: EpochPlan, data: st.DataObject) -> None:
    if not len(plan):
        return
    step = data.draw(st.integers(0, len(plan) - 1))
    position = plan.position_at(step)
    assert (plan.epoch, position) == plan.after(step)
    assert type(position) is int
    assert plan.after(len(plan)) == (plan.epoch + 1, 0)


@settings(max_examples=200, deadline=None)
@given(job=jobs, data=st.data())
def test_the_rest_of_an_epoch_has_steps_numbered_from_its_start(
    job: dict[str, Any], data: st.DataObject
) -> None:
    """From any position on: the plan that starts at position % batch has the same steps."""
    position = data.draw(st.integers(0, job["length"]))
    rest = EpochPlan(start=position, **job)
    passed, start = divmod(position, rest.global_batch_size)
    whole = EpochPlan(start=start, **job)
    assert len(whole) == passed + len(rest)
    for step in range(len(rest)):
        assert whole.position_at(passed + step) == rest.position_at(step)
        found, expected = whole.all_sample_ids(passed + step), rest.all_sample_ids(step)
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("steps", [10**12, 10**12 + 1, 2**70])
def test_far_ahead(steps: int) -> None:
    plan = EpochPlan(10**6 + 7, epoch=3, start=1000, world_size=10, local_batch_size=100)
    left, whole = 999, 1000
    epochs, into = divmod(steps - left, whole)
    assert plan.after(steps) == (4 + epochs, into * 1000)


# What is refused.


def test_an_epoch_without_a_batch_is_named() -> None:
    plan = EpochPlan(7, world_size=2, local_batch_size=4)
    assert plan.after(0) == (0, 0)
    with pytest.raises(
        ValueError,
        match=r"^steps is 1, and there is no step to do: an epoch of 7 samples has no batch with "
        r"global batch size 8 and drop_last=True\. Use smaller batches, drop_last=False, or more ",
    ):
        plan.after(1)
    with pytest.raises(ValueError, match=r"an epoch of 0 samples has no batch .*drop_last=False"):
        EpochPlan(0, drop_last=False).after(1)
    with pytest.raises(ValueError, match=r"^steps is an integer of 3322 bits, "):
        plan.after(10**1000 - 1)


@pytest.mark.parametrize("steps", [-1, -(2**63), -(2**64)])
def test_a_negative_count_is_named(steps: int) -> None:
    with pytest.raises(ValueError, match=rf"^steps is {steps}; expected at least 0$"):
        EpochPlan(10).after(steps)


@pytest.mark.parametrize("value", [1.0, 1.5, "1", None, True, np.True_, np.float32(1)], ids=repr)
def test_what_is_no_integer_is_refused(value: Any) -> None:
    plan = EpochPlan(100, world_size=2, local_batch_size=10)
    with pytest.raises(TypeError, match=r"^steps is .*; expected an integer$"):
        plan.after(value)
    for call in (plan.padded, plan.all_sample_ids, plan.position_at):
        with pytest.raises(TypeError, match=r"^step is .*; expected an integer$"):
            call(value)
    for place, name in [((value, 0, 0), "step"), ((0, value, 0), "rank"), ((0, 0, value), "row")]:
        with pytest.raises(TypeError, match=rf"^{name} is .*; expected an integer$"):
            plan.sample_at(*place)


@pytest.mark.parametrize("number", [-1, -(2**63), -(2**64), 2**31, 2**63, 2**64, 10**30])
def test_what_lies_outside_is_named(number: int) -> None:
    """Nor does a negative number count from the end."""
    plan = EpochPlan(100, world_size=2, local_batch_size=10)
    for call in (plan.padded, plan.all_sample_ids, plan.position_at):
        with pytest.raises(IndexError, match=rf"^step {number} is outside \[0, 5\), the steps"):
            call(number)
    with pytest.raises(IndexError, match=rf"^step {number} is outside \[0, 5\), the steps"):
        plan.sample_at(number, 0, 0)
    with pytest.raises(IndexError, match=rf"^rank {number} is outside \[0, 2\)$"):
        plan.sample_at(0, number, 0)
    with pytest.raises(IndexError, match=rf"^row {number} is outside \[0, 10\)$"):
        plan.sample_at(0, 0, number)


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_numpy_integers_do_not_go_round(kind: str) -> None:
    number = np.dtype(kind).type
    plan = EpochPlan(99_950, shuffle=True, world_size=20, local_batch_size=50, drop_last=False)
    assert plan.padded(number(99))[0].tolist() == plan.padded(99)[0].tolist()
    assert plan.all_sample_ids(number(99)).tolist() == plan.all_sample_ids(99).tolist()
    assert plan.position_at(number(99)) == 99_000
    assert plan.after(number(99)) == (0, 99_000)
    assert plan.after(number(120)) == (1, 20_000)
    assert plan.sample_at(number(99), number(19), number(46)) == plan.sample_at(99, 19, 46)
    assert plan.sample_at(number(99), number(19), number(47)) is None

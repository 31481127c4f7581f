"""EpochPlan: what is refused, with which words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from guideloom_format import EpochPlan

INTERVALS: dict[str, tuple[int, int | None]] = {
    "length": (0, 2**62),
    "seed": (0, None),
    "epoch": (0, 2**63 - 1),
    "world_size": (1, 2**31),
    "rank": (0, None),
    "local_batch_size": (1, 2**31),
    "start": (0, None),
}


@pytest.mark.parametrize("name", INTERVALS)
def test_a_field_outside_its_interval_is_named(name: str) -> None:
    low, high = INTERVALS[name]
    interval = f"at least {low}" if high is None else f"between {low} and {high}"
    for value in [low - 1, -(2**63), -(2**64)] + ([] if high is None else [high + 1, 2**64 + 5]):
        fields: dict[str, Any] = {"length": 10, name: value}
        with pytest.raises(ValueError, match=rf"^{name} is {value}; expected {interval}$"):
            EpochPlan(**fields)


@pytest.mark.parametrize("name", INTERVALS)
@pytest.mark.parametrize("value", [1.0, np.float64(1), "1", None, True, np.True_, [1]], ids=repr)
def test_a_field_that_is_no_integer_is_named(name: str, value: Any) -> None:
    fields: dict[str, Any] = {"length": 10, name: value}
    with pytest.raises(TypeError, match=rf"^{name} is .*; expected an integer$"):
        EpochPlan(**fields)


def test_a_rank_outside_the_world_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^rank is 4; expected less than world_size 4$"):
        EpochPlan(10, rank=4, world_size=4)
    with pytest.raises(ValueError, match=r"^rank is 2147483648; expected less than world_size 1$"):
        EpochPlan(10, rank=2**31)


@pytest.mark.parametrize("name", [*INTERVALS, "shuffle", "drop_last"])
@pytest.mark.parametrize("value", [10**400, 10**5000], ids=int.bit_length)
def test_a_number_of_many_digits_is_not_printed(name: str, value: int) -> None:
    fields: dict[str, Any] = {"length": 10, name: value}
    if name == "seed" and value.bit_length() <= 8192:
        assert EpochPlan(**fields).seed == value
        return
    with pytest.raises(ValueError, match=rf"^{name} is an integer of \d+ bits; expected "):
        EpochPlan(**fields)
    with pytest.raises(ValueError, match=r"^steps is an integer of \d+ bits"):
        EpochPlan(10).after(value)


@pytest.mark.parametrize("name", ["shuffle", "drop_last"])
@pytest.mark.parametrize(
    "value",
    ["no", "False", "", b"", math.nan, 0.0, 1.0, None, [], (), np.zeros(2), np.array(True)],
    ids=repr,
)
def test_a_flag_that_is_none_is_refused(name: str, value: Any) -> None:
    fields: dict[str, Any] = {"length": 10, name: value}
    with pytest.raises(TypeError, match=rf"^{name} is .*; expected True or False$"):
        EpochPlan(**fields)


@pytest.mark.parametrize("name", ["shuffle", "drop_last"])
def test_a_flag_is_a_bool_or_0_or_1(name: str) -> None:
    good: list[Any] = [True, False, np.True_, np.False_, 0, 1, np.int64(1), np.uint8(0)]
    for value in good:
        fields: dict[str, Any] = {"length": 10, name: value}
        assert getattr(EpochPlan(**fields), name) is bool(value)
    for value in (-1, 2, np.int8(5)):
        fields = {"length": 10, name: value}
        with pytest.raises(ValueError, match=rf"^{name} is .*; expected True or False$"):
            EpochPlan(**fields)


def test_steps_beyond_the_last_epoch() -> None:
    last = 2**63 - 1
    plan = EpochPlan(10, epoch=last, local_batch_size=2)
    assert plan.after(4) == (last, 8)
    assert plan.delivery(3) == (last, 1, 0, 1)
    assert plan.delivery([3]).tolist() == [[last, 1, 0, 1]]
    text = rf"^steps is 5, which leads from epoch {last} beyond epoch {last}, the last one$"
    with pytest.raises(ValueError, match=text):
        plan.after(5)
    assert EpochPlan(10).after(10 * last + 9) == (last, 9)
    with pytest.raises(ValueError, match=r"^steps is \d+, which leads from epoch 0 beyond"):
        EpochPlan(10).after(10 * last + 10)


def test_a_start_behind_the_end_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^start is 11; expected at most the length 10$"):
        EpochPlan(10, start=11)
    assert len(EpochPlan(10, start=10)) == 0
    assert len(EpochPlan(10, start=10, drop_last=False)) == 0
    assert len(EpochPlan(0)) == 0


@pytest.mark.parametrize("step", [-1, -2, 5, 6, 2**31, 2**63, 2**64, -(2**64)])
def test_a_step_outside_is_named(step: int) -> None:
    plan = EpochPlan(100, world_size=2, local_batch_size=10)
    for call in (plan.positions, plan.sample_ids):
        with pytest.raises(
            IndexError, match=rf"^step {step} is outside \[0, 5\), the steps of this epoch$"
        ):
            call(step)


@pytest.mark.parametrize("step", [1.0, 1.5, "1", None, True, np.float32(1)], ids=repr)
def test_a_step_that_is_no_integer_is_refused(step: Any) -> None:
    """Step 1.5 would deliver samples of two steps."""
    plan = EpochPlan(100, world_size=2, local_batch_size=10)
    for call in (plan.positions, plan.sample_ids):
        with pytest.raises(TypeError):
            call(step)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("sample", [-1, 100, 101, -(2**63), 2**63 - 1])
def test_a_sample_outside_is_named(sample: int, shuffle: bool) -> None:
    plan = EpochPlan(100, shuffle=shuffle, world_size=2, local_batch_size=10)
    for asked in (sample, [sample], [[0, sample]], np.array([99, sample])):
        with pytest.raises(IndexError, match=rf"^sample id {sample} is outside \[0, 100\)$"):
            plan.delivery(asked)


@pytest.mark.parametrize("sample", [2**63, 2**64 - 1, 2**64, 2**70, -(2**63) - 1, -(2**64)])
def test_a_sample_beyond_64_bits_is_outside(sample: int) -> None:
    """Neither an overflow nor, come round, a sample inside."""
    plan = EpochPlan(100, world_size=2, local_batch_size=10)
    with pytest.raises(IndexError, match=rf"^sample id {sample} is outside \[0, 100\)$"):
        plan.delivery(sample)
    for many in ([sample], [0, sample]):
        with pytest.raises((IndexError, ValueError, TypeError), match=r"^sample[ _]ids? "):
            plan.delivery(many)


@pytest.mark.parametrize(
    "asked", [1.0, [1.0], "1", None, [None], [True], True, np.True_, np.zeros(0)], ids=repr
)
def test_a_sample_that_is_no_integer_is_refused(asked: Any) -> None:
    plan = EpochPlan(100, world_size=2, local_batch_size=10)
    with pytest.raises(TypeError, match=r"^sample_ids? .*expected (an integer|integers)$"):
        plan.delivery(asked)

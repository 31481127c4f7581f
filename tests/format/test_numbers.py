"""Numbers at the boundary: what is taken for an integer, and what is kept of it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from guideloom import io
from guideloom_format import EpochPlan
from guideloom_format._integers import as_index, as_integer, shown

TYPES = [np.dtype(kind).type for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")]


@pytest.mark.parametrize("kind", TYPES)
def test_integers_of_every_type(kind: Any) -> None:
    """At the ends of the type, where the next product would overflow."""
    for number in (int(np.iinfo(kind).min), 0, 1, int(np.iinfo(kind).max)):
        for value in (kind(number), np.array(number, dtype=kind)):
            found = as_integer("x", value)
            assert (type(found), found) == (int, number)
            assert type(as_index("x", value, number, number)) is int


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integers_in_tensors(dtype: torch.dtype) -> None:
    value = torch.tensor(100, dtype=dtype)
    found = as_index("x", value, 0, 100)
    value += 1
    assert (type(found), found) == (int, 100)


class Bits:
    """An integer of another library, with a dtype."""

    def __init__(self, dtype: object) -> None:
        self.dtype = dtype

    def __index__(self) -> int:
        return 1


class Failing:
    """An integer that fails."""

    def __index__(self) -> NoReturn:
        raise RuntimeError("not here")

    def __repr__(self) -> NoReturn:
        raise RuntimeError("nor here")


def test_what_is_a_bool_is_no_integer() -> None:
    """Whatever holds it."""
    values: list[Any] = [True, False, np.True_, np.array(True), np.array([True])]
    values += [torch.tensor(True), torch.tensor([False]), Bits(np.dtype(bool)), Bits("bool")]
    for value in values:
        with pytest.raises(TypeError, match=r"^x is .*; expected an integer$"):
            as_integer("x", value)
    assert as_integer("x", Bits(np.dtype(np.int8))) == 1


def test_an_integer_that_fails_is_none() -> None:
    with pytest.raises(TypeError, match=r"^x is of the type Failing, whose repr fails"):
        as_integer("x", Failing())
    with pytest.raises(TypeError, match=r"^x is .*meta.*; expected an integer$"):
        as_integer("x", torch.ones((), dtype=torch.int64, device="meta"))


values = st.integers() | st.text() | st.builds(Failing) | st.builds(pow, st.just(10), st.just(5000))


@given(st.recursive(values, st.lists))
def test_anything_can_be_shown(value: Any) -> None:
    assert len(shown(value)) <= 80


@given(st.sampled_from(TYPES), st.integers(1, 100), st.integers(1, 100))
def test_a_plan_has_plain_integers(kind: Any, batch: int, world: int) -> None:
    plan = EpochPlan(
        kind(100), seed=kind(5), epoch=kind(3), shuffle=True, rank=kind(world - 1),
        world_size=kind(world), local_batch_size=kind(batch), drop_last=False, start=kind(7),
    )  # fmt: skip
    kinds = {type(getattr(plan, one.name)) for one in fields(plan) if one.init}
    assert kinds == {int, bool}
    assert plan.global_batch_size == batch * world


def test_a_backend_has_plain_integers() -> None:
    limit = torch.tensor(8)
    for backend in (io.PosixPreadIO, io.MmapIO):
        kept = backend(max_open_files=limit).max_open_files  # type: ignore[arg-type]
        assert (type(kept), kept) == (int, 8)
        assert backend(max_open_files=limit) == backend(max_open_files=8)  # type: ignore[arg-type]

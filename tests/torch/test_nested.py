"""What is inside a batch, and objects that move themselves."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch

from guideloom_torch._placement import Placement

from .placement_cases import LatePlacement, Other


def test_a_batch_that_contains_itself() -> None:
    batch: list[Any] = [torch.zeros(1)]
    batch.append({"again": batch})
    with pytest.raises(ValueError, match=r"contains itself: batch\[1\]\['again'\]"):
        Placement(widen=True).place(batch)


def test_what_is_cached_of_a_dataclass_is_computed_anew() -> None:
    @dataclass(frozen=True)
    class Batch:
        tokens: torch.Tensor

        @cached_property
        def last(self) -> torch.Tensor:
            return self.tokens[-1:]

    batch = Batch(torch.tensor([1, 2], dtype=torch.uint16))
    assert batch.last.dtype == torch.uint16
    after = Placement(widen=True).place(batch).ready()
    assert after.last.dtype == torch.int64
    assert batch.last.dtype == torch.uint16


# Objects with methods of their own


class Moving:
    """Has both methods, and notes what is called."""

    def __init__(self, calls: list[Any], pinned: bool = False) -> None:
        self.calls = calls
        self.pinned = pinned

    def pin_memory(self) -> Any:
        self.calls.append("pin")
        return type(self)(self.calls, pinned=True)

    def to(self, device: torch.device, non_blocking: bool = False) -> Any:
        self.calls.append((device, non_blocking, self.pinned))
        return type(self)(self.calls)


class MovingMapping(UserDict[str, Any], Moving):
    """A mapping that moves itself: what it holds is its own matter."""

    def __init__(self, calls: list[Any], pinned: bool = False) -> None:
        super().__init__(tokens=torch.zeros(1, dtype=torch.uint16))
        self.calls, self.pinned = calls, pinned


class Recorded(Moving):
    """Can tell the allocator of its tensors."""

    def record_stream(self, stream: Any) -> None:
        raise AssertionError(f"the stand-in notes it, not {stream}")


class WithDeviceAlone(Moving):
    def to(self, device: torch.device) -> Any:  # type: ignore[override]
        return super().to(device)


class Tokenized(UserDict[str, Any]):
    """Has `to` alone, and parts: as the batches of a tokenizer."""

    def to(self, device: torch.device) -> Any:
        raise AssertionError(f"its parts are moved to {device} one by one")


@pytest.mark.parametrize("kind", [Moving, MovingMapping])
@pytest.mark.parametrize("pin_memory", [False, True])
def test_objects_that_move_themselves(kind: type[Moving], pin_memory: bool) -> None:
    """Pinned where batches are placed; copied by training's own stream, once."""
    calls: list[Any] = []
    one = kind(calls)
    placement = LatePlacement(pin_memory, widen=True)
    placed = placement.place({"a": one, "b": [one, torch.zeros(1)]})
    assert calls == ["pin"] * pin_memory
    after = placed.ready()
    assert calls == ["pin"] * pin_memory + [(torch.device("cuda:0"), True, pin_memory)]
    assert type(after["a"]) is kind
    assert after["b"][0] is after["a"] is not one
    copied = [stream for what, value, stream in placement.late.log if value is after["a"]]
    assert copied == [placement.late.current()]


def test_objects_that_record_streams_are_copied_beside() -> None:
    calls: list[Any] = []
    placement = LatePlacement(pin_memory=True)
    placed = placement.place([Recorded(calls)])
    assert calls == ["pin", (torch.device("cuda:0"), True, True)]
    (after,) = placed.ready()
    assert placement.late.noted("keep") == [after]
    assert len(calls) == 2


def test_objects_on_a_cpu() -> None:
    calls: list[Any] = []
    assert type(Placement("cpu", True).place(Moving(calls)).ready()) is Moving
    assert type(Placement("cpu", True).place(WithDeviceAlone(calls)).ready()) is WithDeviceAlone
    assert calls == [(torch.device("cpu"), False, False)] * 2
    one = Moving(calls)
    assert Placement(None, True, True).place(one).ready() is one
    assert len(calls) == 2


def test_a_mapping_with_to_alone_is_taken_apart() -> None:
    placement = LatePlacement(widen=True)
    after = placement.place(Tokenized(tokens=torch.ones(2, dtype=torch.uint16))).ready()
    assert type(after) is Tokenized
    assert after["tokens"].tolist() == [1, 1]
    assert after["tokens"].dtype == torch.int64


class Wrapper(torch.Tensor):
    """A tensor around others, as distributed and jagged ones are."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape)

    @classmethod
    def __torch_dispatch__(cls, *_: Any) -> Any:
        raise AssertionError("nothing is done with it before it is asked for")


def test_sparse_tensors_and_wrappers_are_copied_by_training() -> None:
    """`record_stream` knows plain tensors alone."""
    sparse = torch.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse()
    wrapper = Wrapper(torch.ones(2))
    placement = LatePlacement()
    placed = placement.place([sparse, wrapper, torch.zeros(2), torch.nn.Parameter(torch.ones(1))])
    assert len(placement.late.noted("copy")) == 2
    assert set(placed._later) == {id(sparse), id(wrapper)}


def test_classes_arrays_and_functions_are_left_alone() -> None:
    class Quantity(np.ndarray):
        def to(self, unit: str) -> None:
            raise AssertionError(unit)

    batch = [Moving, np.zeros(2).view(Quantity), np.float32(1), torch.int64, torch.Size([1]), Other]
    assert LatePlacement(True, True).place(batch).ready() is batch

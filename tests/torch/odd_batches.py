"""Batches of every odd kind that a collate_fn may return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Half:
    """A dataclass with a field that nobody has set."""

    given: Any
    unset: torch.Tensor = field(init=False)


class Grumpy(Mapping[str, Any]):
    """A mapping that cannot be looked into."""

    def __getitem__(self, key: str) -> Any:
        raise ValueError(key)

    def __iter__(self) -> Iterator[str]:
        raise ValueError

    def __len__(self) -> int:
        return 1


class GrumpyList(list[Any]):
    """A list that cannot be looked into."""

    def __iter__(self) -> Iterator[Any]:
        raise ValueError

    def __getitem__(self, key: Any) -> Any:
        raise ValueError


class GrumpyTensor(torch.Tensor):
    """A tensor that does not say how large it is."""

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        raise ValueError


def cycle() -> Any:
    batch: list[Any] = [torch.zeros(2)]
    batch.append({"again": batch})
    return batch


def deep() -> Any:
    batch: Any = torch.zeros(2)
    for _ in range(100_000):
        batch = [batch]
    return batch


def shared() -> Any:
    """2 ** 60 ways to its one tensor."""
    batch: Any = torch.zeros(2)
    for _ in range(60):
        batch = [batch, batch]
    return batch


def released() -> Any:
    view = memoryview(bytes(8))
    view.release()
    return view


ODD: dict[str, Callable[[], Any]] = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "half": lambda: Half(torch.zeros(2)),
    "mapping": Grumpy,
    "list": lambda: GrumpyList([1]),
    "tensor": lambda: torch.zeros(2).as_subclass(GrumpyTensor),
    "cycle": cycle,
    "deep": deep,
    "shared": shared,
    "released": released,
    "none": lambda: None,
    "class": lambda: Half,
    "numbers": lambda: [*range(1000), torch.zeros(3)],
}

"""The options of a loader, in groups: which samples, how they are loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

import torch

from guideloom_format import EpochPlan
from guideloom_format._integers import as_index, as_seconds, shown
from guideloom_format._processes import StartMethod, check_start_method

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

ParallelMethod = Literal["thread", "process"]


class LoaderOptions(TypedDict, total=False):
    """The keyword arguments of `StatefulDataLoader`, described there."""

    local_batch_size: int
    rank: int | None
    world_size: int | None
    mesh: DeviceMesh | None
    shuffle: bool
    shuffle_seed: int | None
    drop_last: bool
    pad: Literal["mask"] | None
    pad_to: int | Literal["longest"] | None
    pad_value: float
    num_workers: int
    parallel_method: ParallelMethod
    start_method: StartMethod
    prefetch: int
    prefetch_bytes: int | None
    lookahead: int
    device: torch.device | str | int | None
    pin_memory: bool
    widen: torch.dtype | bool | None
    stall_after: float | None
    timeout: float | None


@dataclass(frozen=True)
class Order:
    """Which samples come when: everything of an `EpochPlan` but the dataset and the position."""

    seed: int
    shuffle: bool
    rank: int
    world_size: int
    local_batch_size: int
    drop_last: bool

    def __post_init__(self) -> None:
        plan = self.plan(0)
        for name in vars(self):  # plain integers and bools, as a plan has them
            object.__setattr__(self, name, getattr(plan, name))

    def plan(self, length: int, *, epoch: int = 0, start: int = 0) -> EpochPlan:
        """The plan of an epoch, from a position on."""
        return EpochPlan(length, epoch=epoch, start=start, **vars(self))

    @property
    def global_batch_size(self) -> int:
        """Samples per step over all ranks."""
        return self.local_batch_size * self.world_size


@dataclass(frozen=True)
class Loading:
    """How batches are loaded; no option changes what they hold."""

    num_workers: int
    parallel_method: ParallelMethod
    start_method: StartMethod
    prefetch: int
    prefetch_bytes: int | None
    lookahead: int
    stall_after: float | None
    timeout: float | None

    def __post_init__(self) -> None:
        counts = {"num_workers": 4096, "prefetch": 1 << 20, "lookahead": 1 << 20}
        for name, high in counts.items():
            self._set(name, as_index(name, getattr(self, name), 0, high))
        if self.prefetch_bytes is not None:
            self._set("prefetch_bytes", as_index("prefetch_bytes", self.prefetch_bytes, 1, None))
        method: Any = self.parallel_method
        if not isinstance(method, str) or method not in get_args(ParallelMethod):
            raise ValueError(f'parallel_method is {shown(method)}; expected "thread" or "process"')
        check_start_method(self.start_method)
        for name in ("stall_after", "timeout"):
            self._set(name, as_seconds(name, getattr(self, name)))
        if self.timeout is not None and not self.ahead:
            raise ValueError(
                "timeout is given, and batches are loaded in the thread that waits for them, which "
                "nothing can wake; set prefetch or num_workers to 1 or more"
            )

    def _set(self, name: str, value: float | None) -> None:
        object.__setattr__(self, name, value)

    @property
    def ahead(self) -> int:
        """Steps that are in work or ready; 0 to load in the thread that iterates."""
        return self.num_workers + self.prefetch

    @property
    def patience(self) -> float | None:
        """Seconds after which a worker says what it reads, in time for whoever waits for it."""
        return min((s / 4 for s in (self.stall_after, self.timeout) if s is not None), default=None)

    @property
    def by_processes(self) -> bool:
        """Whether processes load."""
        return self.parallel_method == "process" and self.num_workers > 0


def differing(options: Mapping[str, Any]) -> str:
    """Options as arguments in a call."""
    return ", ".join(f"{name}={value!r}" for name, value in options.items())

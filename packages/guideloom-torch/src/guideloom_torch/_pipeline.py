"""The stages between plan and training loop, built from torchdata nodes.

::

    PlanSteps (ids of each step) -> ParallelMapper (load, in worker threads) -> Prefetcher

No stage keeps the loader's position: that counts what came out at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torchdata.nodes import BaseNode, ParallelMapper, Prefetcher

from guideloom_format import EpochPlan

Load = Callable[[NDArray[np.int64]], Any]


class Loaded(NamedTuple):
    """What loading a step gave: a batch, or the error."""

    batch: Any
    error: Exception | None


class PlanSteps(BaseNode[tuple[int, NDArray[np.int64]]]):  # type: ignore[misc]
    """The source node: step numbers and this rank's sample ids, from step 0 of a plan."""

    def __init__(self, plan: EpochPlan) -> None:
        super().__init__()
        self._plan = plan
        self._step = 0
        self._steps = len(plan)

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begin again at the state's step, or at step 0."""
        super().reset(initial_state)
        self._step = 0 if initial_state is None else initial_state["step"]

    def next(self) -> tuple[int, NDArray[np.int64]]:
        """The next step."""
        step = self._step
        if step >= self._steps:
            raise StopIteration
        self._step = step + 1
        return step, self._plan.sample_ids(step)

    def get_state(self) -> dict[str, Any]:
        """The next step's number."""
        return {"step": self._step}


class LoadStep:
    """Loads one step. An error becomes a value, so that it arrives in its turn and unchanged."""

    def __init__(self, load: Load, epoch: int, rank: int) -> None:
        self._load = load
        self._epoch = epoch
        self._rank = rank
        self._torch_threads = torch.get_num_threads()

    def __call__(self, item: tuple[int, NDArray[np.int64]]) -> Loaded:
        step, ids = item
        if torch.get_num_threads() != self._torch_threads:
            # torchdata sets 1 in its worker threads, which every thread started later inherits.
            torch.set_num_threads(self._torch_threads)
        try:
            return Loaded(self._load(ids), None)
        except Exception as error:  # noqa: BLE001  # whatever user code raises belongs to the loop
            shown = ", ".join(map(str, ids[:8].tolist())) + (", …" if ids.size > 8 else "")
            error.add_note(
                f"while loading samples {shown} (epoch {self._epoch}, rank {self._rank}, step "
                f"{step} since the epoch began or was resumed)"
            )
            return Loaded(None, error)


def batches(plan: EpochPlan, load: Load, *, num_workers: int, prefetch: int) -> Iterator[Loaded]:
    """The loaded steps of a plan, in order.

    Args:
        plan: which samples come when.
        load: makes a batch of sample ids; called from `num_workers` threads at once.
        num_workers: threads that load; 0 to load in the thread that iterates.
        prefetch: loaded steps held ready besides those that the workers have in hand.
    """
    step = LoadStep(load, plan.epoch, plan.rank)
    if num_workers == 0 and prefetch == 0:
        return map(step, PlanSteps(plan))
    node = ParallelMapper(
        PlanSteps(plan), step, num_workers=num_workers, method="thread", snapshot_frequency=0
    )
    return iter(Prefetcher(node, prefetch, snapshot_frequency=0) if prefetch else node)

"""Chains of resumes: legs on any number of ranks, each of which goes on from the last state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from guideloom_torch import MaskedBatch

from .kind_cases import Samples
from .loader_cases import global_order

Step = tuple[int, list[int]]  # an epoch, and the samples of all ranks in the global order
Place = tuple[int, int]


@dataclass(frozen=True)
class Job:
    """What stays the same over a chain."""

    seed: int | None
    drop_last: bool
    masked: bool

    def __post_init__(self) -> None:
        assert not (self.masked and self.drop_last)


@dataclass(frozen=True)
class Leg:
    """What may change.

    Attributes:
        world_size: all ranks of it are run, step by step.
        batch: samples per rank.
        steps: that it delivers, over the borders of epochs.
        state_of: the rank whose state is saved at its end.
        loading: options such as `num_workers`.
    """

    world_size: int
    batch: int
    steps: int
    state_of: int
    loading: dict[str, Any]


def run_leg(
    samples: Samples, job: Job, leg: Leg, state: str | None, *, asks: bool = True
) -> tuple[list[Step], str]:
    """Fresh loaders go on from a state; what they deliver, and the state behind it, as JSON.

    With `asks`, the state is asked for all the time, which must change nothing.
    """
    loaders = [
        samples.loader(
            seed=job.seed,
            rank=rank,
            world_size=leg.world_size,
            local_batch_size=leg.batch,
            drop_last=job.drop_last,
            pad="mask" if job.masked else None,
            **leg.loading,
        )
        for rank in range(leg.world_size)
    ]
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(json.loads(state))
            assert json.dumps(loader.state_dict()) == state
    found: list[Step] = []
    while len(found) < leg.steps:
        epoch = loaders[0].epoch
        for batches in zip(*loaders, strict=True):
            found.append((epoch, merged([rows_of(samples, batch) for batch in batches])))
            if asks:
                states = {json.dumps(loader.state_dict()) for loader in loaders}
                assert len(states) == 1, states
            if len(found) == leg.steps:
                break
    saved = json.dumps(loaders[leg.state_of].state_dict())
    for loader in loaders:
        loader.close()
    return found, saved


def rows_of(samples: Samples, batch: Any) -> list[int]:
    """The samples of one rank's batch that count."""
    if not isinstance(batch, MaskedBatch):
        return samples.ids_of(batch)
    valid = batch.valid.tolist()
    ids = samples.ids_of(batch.batch)
    assert len(ids) == len(valid)
    assert valid == sorted(valid, reverse=True)
    return ids[: sum(valid)]


def merged(hands: Sequence[Sequence[int]]) -> list[int]:
    """What the ranks have, in the order in which it was dealt to them in turn."""
    cards = [hand[row] for row in range(len(hands[0])) for hand in hands if row < len(hand)]
    assert len(cards) == sum(map(len, hands)), hands
    return cards


def expected_leg(count: int, job: Job, leg: Leg, at: Place) -> tuple[list[Step], Place]:
    """The same in plain Python: a walk along the orders of the epochs."""
    epoch, position = at
    size = leg.world_size * leg.batch
    found: list[Step] = []
    while len(found) < leg.steps:
        some = global_order(count, epoch, job.seed)[position : position + size]
        if len(some) == size or (some and not job.drop_last):
            found.append((epoch, some))
            position += len(some)
        left = count - position
        if left == 0 or (job.drop_last and left < size):
            epoch, position = epoch + 1, 0
    return found, (epoch, position)


def check_chain(samples: Samples, job: Job, legs: Sequence[Leg], run: Any = run_leg) -> None:
    """Leg after leg, what is delivered and where it ends is as expected."""
    state: str | None = None
    at: Place = (0, 0)
    for number, leg in enumerate(legs):
        found, state = run(samples, job, leg, state)
        expected, at = expected_leg(samples.count, job, leg, at)
        where = (number, legs, job)
        assert [(epoch, list(ids)) for epoch, ids in found] == expected, where
        saved = json.loads(state)
        assert (saved["epoch"], saved["position"]) == at, where

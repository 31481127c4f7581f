"""`lookahead`: reads are announced so many steps before they happen, and nothing else changes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from guideloom import EpochPlan
from guideloom_torch._steps import LoadStep
from read.announce_cases import NotingIO

from .kind_cases import KINDS, Samples
from .loader_cases import deliver, make_loader, write_stream

SAMPLES = 29


class Notes:
    """A storage that is told what will be loaded."""

    def __init__(self) -> None:
        self.said: list[tuple[list[int], list[int] | None]] = []
        self.loaded: list[tuple[int, list[int]]] = []

    def announce(self, ids: NDArray[np.int64], then: NDArray[np.int64] | None) -> None:
        self.said.append((ids.tolist(), None if then is None else then.tolist()))

    def load(self, ids: NDArray[np.int64]) -> list[int]:
        self.loaded.append((len(self.said), ids.tolist()))
        return list(map(int, ids))


@pytest.mark.parametrize("lookahead", [1, 2, 5, 100])
@pytest.mark.parametrize("start", [0, 7])
def test_each_step_is_announced_once_and_in_time(lookahead: int, start: int) -> None:
    plan = EpochPlan(SAMPLES, seed=1, shuffle=True, local_batch_size=3, start=start)
    notes = Notes()
    step = LoadStep(plan, notes.load, False, notes.announce, lookahead, str)
    for k in range(len(plan)):
        assert step(k) == plan.sample_ids(k).tolist()
    ids = [plan.sample_ids(k).tolist() for k in range(len(plan))]
    assert [said for said, _ in notes.said] == ids[1:]
    assert [then for _, then in notes.said] == [*ids[2:], None]
    for k, (announced, _) in enumerate(notes.loaded):
        assert announced == min(k + lookahead, len(plan) - 1)


def test_without_lookahead_nothing_is_announced() -> None:
    plan = EpochPlan(SAMPLES, local_batch_size=3)
    notes = Notes()
    step = LoadStep(plan, notes.load, False, notes.announce, 0, str)
    for k in range(len(plan)):
        step(k)
    assert notes.said == []


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_steps_of_several_workers_in_any_order(order: tuple[int, ...]) -> None:
    """Each of them announces; between them all steps behind the first ones are."""
    plan = EpochPlan(SAMPLES, local_batch_size=3)
    notes = Notes()
    step = LoadStep(plan, notes.load, False, notes.announce, 2, str)
    for k in (*order, *range(4, len(plan))):
        step(k)
    said = {tuple(ids) for ids, _ in notes.said}
    assert {tuple(plan.sample_ids(k).tolist()) for k in range(4, len(plan))} <= said


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [{}, {"prefetch": 2}, {"num_workers": 3, "prefetch": 1}],
    ids=["in the loop", "one thread", "threads"],
)
def test_batches_are_the_same(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    samples = Samples.written(KINDS[kind], tmp_path / "x", SAMPLES)
    plain, ahead = (
        samples.loader(seed=5, local_batch_size=4, drop_last=False, lookahead=lookahead, **options)
        for lookahead in (0, 3)
    )
    assert samples.deliver(ahead, until_epoch=2) == samples.deliver(plain, until_epoch=2)


def test_processes_announce_as_well(tmp_path: Path) -> None:
    directory = write_stream(tmp_path / "stream", SAMPLES)
    plain = deliver(make_loader(directory, seed=2, local_batch_size=4), until_epoch=2)
    options: dict[str, Any] = {"num_workers": 2, "parallel_method": "process", "prefetch": 2}
    with make_loader(
        directory, seed=2, local_batch_size=4, start_method="fork", lookahead=3, **options
    ) as loader:
        assert deliver(loader, until_epoch=2) == plain


def test_the_backend_hears_of_every_range_before_it_is_read(tmp_path: Path) -> None:
    """Through dataset and reader, but for the first step."""
    directory = write_stream(tmp_path / "stream", SAMPLES)
    backend = NotingIO()
    loader = make_loader(directory, backend=backend, seed=2, local_batch_size=4, lookahead=2)
    backend.calls.clear()
    deliver(loader, until_epoch=1)
    heard: set[tuple[int, ...]] = set()
    unannounced = 0
    for what, rows in backend.calls:
        ranges = {tuple(row[:3]) for row in rows}
        if what == "announce":
            heard |= ranges
        elif not ranges <= heard:
            unannounced += 1
    assert unannounced == 1
    assert sum(what == "fill" for what, _ in backend.calls) == len(loader)

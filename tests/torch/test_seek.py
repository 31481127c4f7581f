"""seek, skip, locate and when: the loader goes where it says, and says what it delivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guideloom import StatefulDataLoader

from .loader_cases import ids_of, make_loader, write_stream

SAMPLES = 23
OPTIONS: list[dict[str, Any]] = [
    {"local_batch_size": 3},
    {"local_batch_size": 3, "drop_last": False},
    {"local_batch_size": 2, "drop_last": False, "world_size": 3, "rank": 1},
    {"local_batch_size": 4, "num_workers": 2, "prefetch": 3},
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stream(tmp_path_factory.mktemp("seek") / "stream", SAMPLES)


def rest_of(loader: StatefulDataLoader) -> list[list[int]]:
    return [ids_of(batch) for batch in loader]


@pytest.fixture(params=OPTIONS, ids=repr)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    chosen: dict[str, Any] = request.param
    return chosen


def test_every_step_can_be_sought(options: dict[str, Any], directory: Path) -> None:
    """Forwards and backwards, in a later epoch too; the iterator before becomes invalid."""
    loader = make_loader(directory, seed=3, **options)
    epochs = [rest_of(loader) for _ in range(3)]
    loader.set_epoch(1)
    for step in (*range(len(loader)), *reversed(range(len(loader)))):
        loader.set_epoch(0)
        loader.set_epoch(1)
        iterator = iter(loader)
        next(iterator)
        loader.seek(step)
        with pytest.raises(RuntimeError, match="no longer valid"):
            next(iterator)
        assert rest_of(loader) == epochs[1][step:]
        assert rest_of(loader) == epochs[2]
        loader.set_epoch(1)
    loader.set_epoch(0)
    loader.seek(len(loader))
    assert (loader.epoch, loader.position) == (1, 0)


def test_every_number_of_steps_can_be_skipped(options: dict[str, Any], directory: Path) -> None:
    loader = make_loader(directory, seed=3, **options)
    run = [ids for _ in range(4) for ids in rest_of(loader)]
    states: list[dict[str, Any]] = []
    loader = make_loader(directory, seed=3, **options)
    while len(states) < len(run):
        for batch in loader:
            ids_of(batch)
            states.append(loader.state_dict())
    for at in (0, 1, len(loader) - 1, len(loader)):
        for steps in range(2 * len(loader) + 2):
            skipping = make_loader(directory, seed=3, **options)
            if at:
                skipping.load_state_dict(states[at - 1])
            skipping.skip(steps)
            if at + steps:
                assert skipping.state_dict() == states[at + steps - 1]
            assert ids_of(next(iter(skipping))) == run[at + steps]


@pytest.mark.parametrize("step", [-1, 9, 2**70, 1.0, True, None, "1"])
def test_there_is_no_such_step(step: Any, directory: Path) -> None:
    loader = make_loader(directory, local_batch_size=3, drop_last=False)
    assert len(loader) == 8
    iterator = iter(loader)
    next(iterator)
    with pytest.raises((ValueError, TypeError), match="step"):
        loader.seek(step)
    if step != 9 and step != 2**70:
        with pytest.raises((ValueError, TypeError), match="steps"):
            loader.skip(step)
    next(iterator)
    assert loader.position == 6


def test_steps_of_an_epoch_without_a_batch_cannot_be_skipped(directory: Path) -> None:
    loader = make_loader(directory, local_batch_size=SAMPLES + 1)
    loader.skip(0)
    with pytest.raises(ValueError, match="has no batch"):
        loader.skip(1)
    assert (loader.epoch, loader.position) == (0, 0)


@pytest.mark.parametrize("at", [0, 4, 5, 9])
def test_it_says_what_it_delivers(at: int, options: dict[str, Any], directory: Path) -> None:
    """Also after a resume at a position that is no step of the new global batch size."""
    loader = make_loader(directory, seed=3, **options)
    loader.load_state_dict(loader.state_dict() | {"position": at})
    step = at // loader.global_batch_size
    said = []
    for later in range(step, step + 2):
        located = loader.locate(0, later)
        said.append([int(k) for k in located.samples[options.get("rank", 0)] if k >= 0])
        for row, sample in enumerate(said[-1]):
            found = loader.when(sample)
            assert found is not None
            assert (found.epoch, found.step) == (0, later)
            assert (found.rank, found.row) == (options.get("rank", 0), row)
    iterator = iter(loader)
    assert [ids_of(next(iterator)) for _ in range(2)] == said


def test_another_epoch(directory: Path) -> None:
    loader = make_loader(directory, seed=3, local_batch_size=3, drop_last=False)
    loader.load_state_dict(loader.state_dict() | {"position": 4})
    located = [loader.locate(2, step).samples[0] for step in range(8)]
    loader.set_epoch(2)
    assert rest_of(loader) == [[int(k) for k in ids if k >= 0] for ids in located]
    with pytest.raises(IndexError, match="step 8"):
        loader.locate(2, 8)
    with pytest.raises(IndexError, match="23"):
        loader.when(SAMPLES)

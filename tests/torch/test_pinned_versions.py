"""A loader stays with the manifest version that its state pins, while the dataset grows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom import (
    DatasetNotFoundError,
    MismatchError,
    StatefulDataLoader,
    StateMismatchError,
    StreamNumpyFormat,
    StreamStorage,
)

from .loader_cases import (
    TOKENS,
    Delivered,
    deliver,
    deliver_with_states,
    expected_run,
    ids_of,
    make_loader,
    write_stream,
)

SAMPLES = 13
EPOCHS = 2
BATCH = 2


def storage_at(directory: Path) -> StreamStorage:
    return StreamStorage(directory, StreamNumpyFormat(TOKENS))


WHOLE = expected_run(SAMPLES, EPOCHS, seed=5, local_batch_size=BATCH)


def first(loader: StatefulDataLoader, count: int) -> list[Delivered]:
    """So many batches of the epoch that the loader is in."""
    epoch = loader.epoch
    iterator = iter(loader)
    return [(epoch, ids_of(next(iterator))) for _ in range(count)]


def grow(directory: Path, shard: int) -> None:
    """A new shard, before, between or behind those that are there."""
    with storage_at(directory).sync_writer() as writer:
        writer.append(shard, {"tokens": np.full(40, 10**6, "<u4")})


@pytest.mark.parametrize("consolidated_again", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_of_any_step_goes_on_over_a_dataset_that_grew(
    workers: int, consolidated_again: bool, tmp_path: Path
) -> None:
    """For every k: fresh objects, the sequence of the run over what there was at its start."""
    directory = write_stream(tmp_path / "x", SAMPLES)
    version = storage_at(directory).consolidate().version
    options: dict[str, Any] = {"seed": 5, "local_batch_size": BATCH, "num_workers": workers}
    states: list[str] = []
    with make_loader(directory, **options) as loader:
        assert deliver_with_states(loader, until_epoch=EPOCHS, states=states) == WHOLE
    assert len(states) == len(WHOLE) + 1
    for shard in (7, 3):
        grow(directory, shard)
        if consolidated_again:
            storage_at(directory).consolidate()
    for k, state in enumerate(states):
        with make_loader(directory, **options) as loader:
            assert len(loader) > len(WHOLE) // EPOCHS
            loader.load_state_dict(json.loads(state))
            assert loader.state_dict() == json.loads(state)
            assert loader.state_dict()["manifest_version"] == version
            assert deliver(loader, until_epoch=EPOCHS) == WHOLE[k:]


def test_a_loader_that_was_closed_goes_on_with_what_it_had(tmp_path: Path) -> None:
    directory = write_stream(tmp_path / "x", SAMPLES)
    storage_at(directory).consolidate()
    loader = make_loader(directory, seed=5, local_batch_size=BATCH)
    assert first(loader, 3) == WHOLE[:3]
    loader.close()
    grow(directory, 1)
    assert deliver(loader, until_epoch=EPOCHS) == WHOLE[3:]
    loader.close()


def test_without_a_version_a_dataset_that_grew_is_refused(tmp_path: Path) -> None:
    """What to do is said: consolidate before training."""
    directory = write_stream(tmp_path / "x", SAMPLES)
    loader = make_loader(directory, seed=5, local_batch_size=BATCH)
    state = loader.state_dict()
    assert state["manifest_version"] is None
    loader.close()
    grow(directory, 7)
    storage_at(directory).consolidate()
    with pytest.raises(MismatchError, match="A loader over a consolidated dataset stays with its"):
        next(iter(loader))
    fresh = make_loader(directory, seed=5, local_batch_size=BATCH)
    with pytest.raises(StateMismatchError, match="consolidate before training, so that states pin"):
        fresh.load_state_dict(state)
    fresh.close()


def test_a_state_from_before_the_consolidation_fits_it(tmp_path: Path) -> None:
    """What counts is what the dataset holds."""
    directory = write_stream(tmp_path / "x", SAMPLES)
    with make_loader(directory, seed=5) as loader:
        state = loader.state_dict()
    version = storage_at(directory).consolidate().version
    with make_loader(directory, seed=5) as loader:
        loader.load_state_dict(state)
        assert loader.state_dict() == {**state, "manifest_version": version}


def test_a_version_that_was_removed_is_named_and_nothing_changes(tmp_path: Path) -> None:
    directory = write_stream(tmp_path / "x", SAMPLES)
    storage_at(directory).consolidate()
    with make_loader(directory, seed=5) as loader:
        state = loader.state_dict()
    grow(directory, 7)
    storage_at(directory).consolidate()
    storage_at(directory).clean(remove=True, older_than=0, pinned=[])
    with make_loader(directory, seed=5) as loader:
        before = loader.state_dict()
        with pytest.raises(DatasetNotFoundError, match="has no manifest version 1"):
            loader.load_state_dict(state)
        assert loader.state_dict() == before
        next(iter(loader))


def test_a_pinned_storage_is_not_moved_by_a_state(tmp_path: Path) -> None:
    """Who pins a version by hand gets that one, or an error."""
    directory = write_stream(tmp_path / "x", SAMPLES)
    states = []
    for shard in (7, 8):
        version = storage_at(directory).consolidate().version
        with make_loader(directory, seed=5) as loader:
            states.append(loader.state_dict())
            assert states[-1]["manifest_version"] == version
        grow(directory, shard)
    for version, state in enumerate(states, start=1):
        storage = StreamStorage(directory, StreamNumpyFormat(TOKENS), version=version)
        loader = StatefulDataLoader.from_storage(
            storage, sequence_length=3, shuffle=True, shuffle_seed=5
        )
        assert loader.state_dict() == state
        for other in states:
            if other != state:
                with pytest.raises(StateMismatchError, match="the loader state has dataset"):
                    loader.load_state_dict(other)
        loader.close()


@pytest.mark.parametrize("version", [True, -1, 10**8, "1", 1.0, [1]])
def test_a_manifest_version_that_is_none_is_not_followed(version: Any, tmp_path: Path) -> None:
    directory = write_stream(tmp_path / "x", SAMPLES)
    storage_at(directory).consolidate()
    with make_loader(directory, seed=5) as loader:
        state = {**loader.state_dict(), "manifest_version": version, "dataset": "0" * 64}
        with pytest.raises(StateMismatchError, match="the loader state has dataset"):
            loader.load_state_dict(state)


def test_a_state_of_version_1_is_read(tmp_path: Path) -> None:
    """States that an earlier release saved have no manifest version."""
    directory = write_stream(tmp_path / "x", SAMPLES)
    storage_at(directory).consolidate()
    with make_loader(directory, seed=5, local_batch_size=BATCH) as loader:
        first(loader, 2)
        old = {**loader.state_dict(), "version": 1}
    del old["manifest_version"]
    with make_loader(directory, seed=5, local_batch_size=BATCH) as loader:
        loader.load_state_dict(old)
        assert deliver(loader, until_epoch=EPOCHS) == WHOLE[2:]
        with pytest.raises(StateMismatchError, match=r"unknown fields \['manifest_version'\]"):
            loader.load_state_dict({**old, "manifest_version": 1})

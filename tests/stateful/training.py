"""Training over the dataset: loaders whose positions are saved, and taken up again later."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from guideloom import StatefulDataLoader
from guideloom_format import DatasetNotFoundError, EpochPlan, StateMismatchError
from stateful.known_kinds import KnownKind
from stateful.model import Model, Snapshot


@dataclass(frozen=True)
class Saved:
    """A state as a checkpoint keeps it, and what it belongs to.

    Attributes:
        text: the state, as JSON.
        seen: what the loader showed.
        version: of the manifest that the state pins.
        seed: of the shuffled order; None for the order of the dataset.
        epoch, position: where it stands.
    """

    text: str
    seen: Snapshot
    version: int | None
    seed: int | None
    epoch: int
    position: int


class Training:
    """What the model's dataset is trained on, run after run.

    Attributes:
        saved: states that were saved.
    """

    def __init__(self, kind: KnownKind, directory: Path, model: Model) -> None:
        self._kind = kind
        self._directory = directory
        self._model = model
        self.saved: list[Saved] = []

    def loader(self, seed: int | None, batch: int) -> StatefulDataLoader:
        dataset = self._kind.dataset(self._kind.storage(self._directory))
        return StatefulDataLoader(
            dataset,
            list,
            local_batch_size=batch,
            shuffle=seed is not None,
            shuffle_seed=seed,
            drop_last=False,
        )

    def begin(self, seed: int | None, steps: int, batch: int) -> None:
        """A new run over the dataset as it is."""
        with self.loader(seed, batch) as loader:
            seen, version = self._model.now(), self._model.shown_version()
            start = Saved("", seen, version, seed, 0, 0)
            self._go_on(loader, start, steps, batch)

    def resume(self, saved: Saved, steps: int, batch: int) -> None:
        """A run that takes up a saved state, whatever has happened to the dataset since."""
        state = json.loads(saved.text)
        same = saved.seen == self._model.now()
        error: type[Exception] | None = None
        if not same and saved.version is None:
            error = StateMismatchError
        elif not same and self._model.versions.get(saved.version or 0) != saved.seen:
            error = DatasetNotFoundError
        with self.loader(saved.seed, batch) as loader:
            if error is not None:
                with pytest.raises(error, match=r"consolidate\b.*"):
                    loader.load_state_dict(state)
                assert (loader.epoch, loader.position) == (0, 0)
                return
            loader.load_state_dict(state)
            self._go_on(loader, saved, steps, batch)

    def _go_on(self, loader: StatefulDataLoader, at: Saved, steps: int, batch: int) -> None:
        """Take so many batches, compare them, and save where the loader stands then."""
        samples = self._kind.samples(at.seen.items)
        epoch, position = at.epoch, at.position
        if not samples:
            return
        for _ in range(steps):
            plan = EpochPlan(
                len(samples),
                seed=at.seed or 0,
                epoch=epoch,
                shuffle=at.seed is not None,
                local_batch_size=batch,
                drop_last=False,
                start=position,
            )
            expected = [samples[k] for k in plan.sample_ids(0).tolist()]
            found = [self._kind.sample(one) for one in next(iter(loader))]
            assert found == expected
            position += len(expected)
            if position == len(samples):
                epoch, position = epoch + 1, 0
            assert (loader.epoch, loader.position) == (epoch, position)
        state = loader.state_dict()
        version: Any = state["manifest_version"]
        text = json.dumps(state)
        assert version is None or self._model.versions.get(version, at.seen) == at.seen
        self.saved.append(Saved(text, at.seen, version, at.seed, epoch, position))
        del self.saved[:-6]

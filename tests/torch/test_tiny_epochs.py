"""Many tiny epochs, in which everything takes a random time and loops end anywhere: no hang."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from guideloom import StatefulDataLoader

from .loader_cases import within
from .process_cases import by_processes, load, plain, write

SAMPLES, BATCH = 9, 2
STEPS = SAMPLES // BATCH
MODES: dict[str, dict[str, Any]] = {
    "one thread": {"prefetch": 2},
    "threads": {"num_workers": 3, "prefetch": 1},
    "processes": by_processes("fork", 2, prefetch=1),
}


class Naps:
    """A collate_fn that takes a random time."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)

    def __call__(self, samples: list[Any]) -> Any:
        time.sleep(self.source.choice((0, 0, 0.0003, 0.002)))
        return [plain(sample) for sample in samples]


def nothing(loader: StatefulDataLoader) -> None:
    del loader


def again(loader: StatefulDataLoader) -> None:
    loader.load_state_dict(loader.state_dict())


def twice(loader: StatefulDataLoader) -> None:
    iter(loader)


ENDS: list[Callable[[StatefulDataLoader], None]] = [nothing, again, twice, StatefulDataLoader.close]


def run(directory: Path, mode: str, epochs: int, seed: int) -> int:
    """Epochs in which the loop breaks off, loads, closes and naps at random; all samples come."""
    source = random.Random(seed)
    options: dict[str, Any] = {"local_batch_size": BATCH, "shuffle_seed": seed}
    whole = load("stream", directory, Naps(seed), **options)
    ends = [end for end in ENDS if mode != "processes" or end is not StatefulDataLoader.close]
    with load("stream", directory, Naps(seed), **options, **MODES[mode]) as loader:
        for epoch in range(epochs):
            found: list[Any] = []
            while loader.epoch == epoch:
                for batch in loader:
                    found.append(batch)
                    time.sleep(source.choice((0, 0, 0.0003, 0.002)))
                    if source.random() < 0.2:
                        break
                if len(found) < STEPS:
                    source.choice(ends)(loader)
            assert found == list(whole), (seed, epoch)
            assert len(found) == STEPS
    return epochs


def check(directory: Path, mode: str, epochs: int, loaders: int) -> None:
    """So many epochs, in loaders side by side."""
    with ThreadPoolExecutor(loaders) as pool:
        done = pool.map(lambda seed: run(directory, mode, epochs // loaders, seed), range(loaders))
        assert within(300, lambda: sum(done)) == epochs


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("stream", tmp_path_factory.mktemp("tiny") / "stream", SAMPLES)


@pytest.mark.parametrize("mode", MODES)
def test_tiny_epochs_with_random_delays(directory: Path, mode: str) -> None:
    check(directory, mode, 200, 4)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_thousands_of_tiny_epochs_with_random_delays(directory: Path, mode: str) -> None:
    check(directory, mode, 2000, 8)

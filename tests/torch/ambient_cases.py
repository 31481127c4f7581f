"""What the order of samples must not depend on: run with whatever environment, it prints the ids.

python -m tests.torch.ambient_cases FOLDER
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .kind_cases import KINDS, Samples
from .process_cases import by_processes

LOADING: dict[str, dict[str, Any]] = {
    "in the loop": {},
    "one thread": {"prefetch": 4},
    "threads": {"num_workers": 3, "prefetch": 4},
    "fork": by_processes("fork", 2, prefetch=3),
    "forkserver": by_processes("forkserver", 1),
    "spawn": by_processes("spawn", 1),
}


def draw() -> None:
    """Use up some of every ambient randomness."""
    random.random()
    np.random.rand(3)  # noqa: NPY002  # the ambient one is meant
    torch.rand(3)


class Draws:
    """A collate_fn that uses ambient randomness and seeds it anew, as augmentations do."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, samples: list[Any]) -> list[Any]:
        draw()
        reseed(self.seed)
        return samples


def reseed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


def ambient() -> tuple[object, str, bytes]:
    """The states of all ambient generators."""
    numpy_state = repr(np.random.get_state())  # noqa: NPY002
    return random.getstate(), numpy_state, bytes(torch.get_rng_state().tolist())


def written(folder: Path, count: int) -> dict[str, Samples]:
    return {kind: Samples.written(KINDS[kind], folder / kind, count) for kind in KINDS}


def orders(samples: Samples, options: dict[str, Any]) -> list[list[int]]:
    """The batches of two epochs."""
    with samples.loader(seed=2, local_batch_size=3, drop_last=False, **options) as loader:
        return [ids for _, ids in samples.deliver(loader, until_epoch=2)]


if __name__ == "__main__":
    table = written(Path(sys.argv[1]), 11)
    draw()
    print(json.dumps({kind: orders(samples, {}) for kind, samples in table.items()}))

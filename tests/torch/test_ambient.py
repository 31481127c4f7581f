"""The order of samples depends on seed and epoch alone: no ambient randomness, no environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from .ambient_cases import LOADING, Draws, ambient, draw, orders, reseed, written
from .kind_cases import Samples
from .loader_cases import expected_run

ROOT = Path(__file__).resolve().parents[2]
COUNT = 11
RUN = [ids for _, ids in expected_run(COUNT, 2, seed=2, local_batch_size=3, drop_last=False)]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Samples]:
    return written(tmp_path_factory.mktemp("ambient"), COUNT)


@pytest.mark.parametrize(
    "loading", [pytest.param(x, marks=pytest.mark.slow) if x == "spawn" else x for x in LOADING]
)
def test_every_seed_of_every_generator(table: dict[str, Samples], loading: str) -> None:
    """Whatever they were seeded with, here or in workers; and what is here is left as it was."""
    few = loading in ("forkserver", "spawn")
    for kind, samples in list(table.items())[: 2 if few else None]:
        for seed in range(1 if few else 3):
            reseed(seed)
            before = ambient()
            assert orders(samples, LOADING[loading]) == RUN, (kind, seed)
            assert ambient() == before, (kind, seed)
            draw()


@pytest.mark.parametrize("loading", ["in the loop", "threads", "fork"])
def test_a_collate_fn_that_draws_and_seeds(table: dict[str, Samples], loading: str) -> None:
    """As augmentations do in every batch."""
    samples = table["json"]
    for seed in range(3):
        options = {"local_batch_size": 3, "drop_last": False, **LOADING[loading]}
        with samples.loader(Draws(seed), seed=2, **options) as loader:
            found = [ids for _, ids in samples.deliver(loader, until_epoch=2)]
        assert found == RUN, seed


def test_settings_of_torch(table: dict[str, Samples]) -> None:
    """Its default type and its number of threads."""
    threads = torch.get_num_threads()
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(3)
        for samples in table.values():
            assert orders(samples, {}) == orders(samples, LOADING["threads"]) == RUN
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(threads)


ENVIRONMENTS: list[tuple[list[str], dict[str, str]]] = [
    ([], {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C", "OMP_NUM_THREADS": "1"}),
    (["-O", "-X", "dev"], {"PYTHONHASHSEED": "2", "TZ": "UTC", "PYTHONUTF8": "1"}),
]


def test_hash_seeds_locales_and_time_zones(tmp_path: Path) -> None:
    """In interpreters of their own; without assertions in one."""
    with ExitStack() as stack:
        running = []
        for number, (flags, environment) in enumerate(ENVIRONMENTS):
            (tmp_path / str(number)).mkdir()
            paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), *sys.path])
            process = subprocess.Popen(
                [sys.executable, *flags, "-m", "tests.torch.ambient_cases", tmp_path / str(number)],
                cwd=ROOT,
                env={**os.environ, **environment, "PYTHONPATH": paths},
                stdout=subprocess.PIPE,
                text=True,
            )
            running.append(stack.enter_context(process))
        for process in running:
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0
            found = json.loads(output)
            assert len(found) == 6
            assert all(order == RUN for order in found.values()), found

"""Ranks that are real processes, joined by gloo: as many steps on all, and no rank is waited for.

The loader never speaks to the loaders of other ranks. It has as many steps there by arithmetic; and
where one rank has an error, that rank says so and ends, and gloo tells the others.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from .loader_cases import deal, global_order, make_loader, wait_until, write_stream
from .rank_jobs import LOADING, SEED
from .rank_processes import ENVIRONMENT, REPOSITORY, End, Ranks

LIMIT = 30.0
SAMPLES = 31
MODES: tuple[dict[str, Any], ...] = (
    {"drop_last": True},
    {"drop_last": False},
    {"drop_last": False, "pad": "mask"},
)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with Ranks() as ranks:
        yield ranks


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stream(tmp_path_factory.mktemp("together") / "stream", SAMPLES)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """By their number of samples."""
    folder = tmp_path_factory.mktemp("sizes")
    return {n: write_stream(folder / str(n), n) for n in range(26)}


def well(ends: list[End]) -> None:
    """All ranks ended well."""
    assert [(end.status, end.text) for end in ends] == [(0, "")] * len(ends)


def all_failed(ends: list[End], bad: int, error: str, text: str) -> None:
    """The bad rank ended by the error that is named, the others since it was gone."""
    for rank, end in enumerate(ends):
        assert end.status == 1, (rank, end)
        assert end.seconds < LIMIT, (rank, end)
        lines = [line.removeprefix(f"[rank{rank}]: ") for line in end.text.splitlines()]
        said = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)][-1]
        if rank == bad:
            assert said.startswith((f"{error}: ", f"guideloom_format._errors.{error}: ")), said
            assert text in said
        else:
            assert said.startswith("RuntimeError: "), said
            assert "gloo" in said


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_as_many_steps_and_each_sample_once(
    world_size: int, datasets: dict[int, Path], ranks: Ranks, tmp_path: Path
) -> None:
    """Sizes that ranks and batches do not divide, from the start of an epoch and from within."""
    cases: list[dict[str, Any]] = []
    for samples, batch, mode in product(datasets, (2, 3), MODES):
        loading = ("plain", "threads")[samples % 5 == 4]
        options = {"local_batch_size": batch, **mode, **LOADING[loading]}
        cases += [
            {"directory": str(datasets[samples]), "options": options, "start": start}
            for start in sorted({0, samples // 3})
        ]
    well(ranks.run("every_step_together", tmp_path, world_size, 120, cases=cases))
    found = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(world_size)]
    for case, *of_ranks in zip(cases, *found, strict=True):
        samples = int(Path(case["directory"]).name)
        expected = deal(
            global_order(samples, 0, SEED)[case["start"] :],
            world_size=world_size,
            local_batch_size=case["options"]["local_batch_size"],
            drop_last=case["options"]["drop_last"],
        )
        assert [[*hands] for hands in zip(*of_ranks, strict=True)] == expected, case


def cut(state: dict[str, Any]) -> str:
    return json.dumps(state)[:-20]


def text_of(**changes: Any) -> Callable[[dict[str, Any]], str]:
    return lambda state: json.dumps({**state, **changes})


def without(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda state: json.dumps({key: state[key] for key in state if key != name})


BAD_STATES: dict[str, tuple[Callable[[dict[str, Any]], str], str, str]] = {
    "another seed": (text_of(shuffle_seed=4), "StateMismatchError", "has shuffle_seed 4"),
    "another dataset": (text_of(dataset="ab" * 32), "StateMismatchError", "has dataset 'abab"),
    "a position behind the end": (text_of(position=99), "StateMismatchError", "has position 99"),
    "a position that is text": (text_of(position="4"), "StateMismatchError", "has position '4'"),
    "a field lost": (without("epoch"), "StateMismatchError", "lacks the fields ['epoch']"),
    "a field damaged": (text_of(epocg=1), "StateMismatchError", "unknown fields ['epocg']"),
    "of a newer release": (text_of(version=9), "StateMismatchError", "has version 9"),
    "a list": (lambda state: json.dumps([state]), "StateMismatchError", "is a list"),
    "cut off": (cut, "json.decoder.JSONDecodeError", ""),
}


def saved(directory: Path, steps: int = 2) -> dict[str, Any]:
    """A state in the middle of an epoch."""
    with make_loader(directory, seed=SEED, local_batch_size=4) as loader:
        loader.seek(steps)
        return loader.state_dict()


@pytest.mark.parametrize("number", range(len(BAD_STATES)), ids=[*BAD_STATES])
def test_a_bad_state_on_one_rank(
    number: int, directory: Path, ranks: Ranks, tmp_path: Path
) -> None:
    """On any rank of jobs of any size: that rank says what is wrong, and all end."""
    spoil, error, text = [*BAD_STATES.values()][number]
    world_size, loading = 2 + number % 3, [*LOADING][number // 3 % 3]
    bad = number * 7 // 3 % world_size
    state = saved(directory)
    states = [spoil(state) if rank == bad else json.dumps(state) for rank in range(world_size)]
    ends = train(ranks, tmp_path, [directory] * world_size, state, loading, states=states)
    all_failed(ends, bad, error, text)


def train(
    ranks: Ranks,
    folder: Path,
    datasets: list[Path],
    state: dict[str, Any],
    loading: str,
    **arguments: Any,
) -> list[End]:
    """A job over these copies, one for each rank, that goes on at this state."""
    world_size = len(datasets)
    given = {
        "datasets": [*map(str, datasets)],
        "states": [json.dumps(state)] * world_size,
        "seeds": [SEED] * world_size,
        "loading": loading,
    }
    return ranks.run("train", folder, world_size, LIMIT, **{**given, **arguments})


@pytest.mark.parametrize("loading", LOADING)
def test_all_is_well(loading: str, directory: Path, ranks: Ranks, tmp_path: Path) -> None:
    """So that the others fail for their reason; each rank has a copy of its own."""
    copies = [shutil.copytree(directory, tmp_path / str(rank)) for rank in range(3)]
    well(train(ranks, tmp_path, copies, saved(directory), loading))


def test_another_seed_on_one_rank(directory: Path, ranks: Ranks, tmp_path: Path) -> None:
    state = saved(directory)
    ends = train(ranks, tmp_path, [directory] * 4, state, "threads", seeds=[SEED, SEED, 4, SEED])
    all_failed(ends, 2, "StateMismatchError", "has shuffle_seed 3, this loader has 4")


@pytest.mark.parametrize("samples", [SAMPLES, SAMPLES + 1])
def test_another_dataset_on_one_rank(
    samples: int, directory: Path, ranks: Ranks, tmp_path: Path
) -> None:
    """Of the same size too: it was written anew."""
    other = write_stream(tmp_path / "other", samples)
    ends = train(ranks, tmp_path, [directory, other], saved(directory), "plain")
    all_failed(ends, 1, "StateMismatchError", "has dataset ")


@pytest.mark.parametrize(
    ("shard", "loading"),
    [(0, "plain"), (1, "plain"), (2, "plain"), (1, "threads"), (2, "processes")],
)
def test_a_shard_missing_on_one_rank(
    shard: int, loading: str, directory: Path, ranks: Ranks, tmp_path: Path
) -> None:
    """Its file, in the copy of that rank, needed from the first step on or later."""
    world_size, bad = 2 + shard, shard
    copies = [shutil.copytree(directory, tmp_path / f"copy-{k}") for k in range(world_size)]
    file = sorted((copies[bad] / "data").rglob("*.elements"))[shard]
    file.unlink()
    ends = train(ranks, tmp_path, copies, saved(directory, 0), loading)
    where = f"{copies[bad]}: the file {file.relative_to(copies[bad])} was committed"
    all_failed(ends, bad, "MissingFileError", where)


def test_torchrun_ends_a_job_of_which_one_rank_has_a_bad_state(
    directory: Path, tmp_path: Path
) -> None:
    states = [json.dumps(saved(directory)), "{}"]
    arguments = {"datasets": [str(directory)] * 2, "states": states, "seeds": [SEED] * 2}
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    job = ["-m", "tests.torch.rank_processes", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, *torchrun, *job, json.dumps({**arguments, "loading": "threads"})],
        cwd=REPOSITORY,
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        began = [tmp_path / f"began-{rank}" for rank in range(2)]
        assert wait_until(120, lambda: all(path.exists() for path in began))
        begin = time.monotonic()
        output, _ = process.communicate(timeout=LIMIT)
    finally:
        process.send_signal(signal.SIGTERM)  # torchrun ends its processes
        process.wait()
    assert process.returncode == 1, output
    assert "StateMismatchError: the loader state lacks the fields" in output
    assert time.monotonic() - begin < LIMIT


def test_a_loader_never_speaks_to_other_ranks(
    directory: Path, ranks: Ranks, tmp_path: Path
) -> None:
    """No collective call, no message, no group and no look into the store, its whole life long."""
    well(ranks.run("live_alone", tmp_path, 3, 120, directory=str(directory)))
    for rank in range(3):
        found = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert found["calls"] == []
        assert found["steps"] > 100
        assert all(found["control"].values()), found["control"]

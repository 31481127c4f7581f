"""The distributed examples, on several ranks: killed, and gone on with on other numbers of ranks.

What the ranks were given is compared, row by row, with the order that plan and reader give. The
dataset is small, so that the runs go over the border of an epoch.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from .distributed_runs import EXAMPLES, Rows, expected, finish, given, kill_at, start

SCRIPTS = ("ddp.py", "fabric.py", "accelerated.py", "jax_plan.py")
STEPS = 75  # an epoch has 58


@dataclass
class Campaign:
    """What a run with kills was.

    Attributes:
        hit: kills that hit running processes.
        worlds: the numbers of ranks.
        begins: the first step that each of them did.
    """

    hit: int = 0
    worlds: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)


def run_through(script: str, folder: Path, seed: int, *, kills: int, earliest: int) -> Campaign:
    """Run with kills, none before rank 0 has done `earliest` steps since the one before."""
    source = random.Random(seed)
    dataset, run = folder / "dataset", folder / "run"
    seen: Rows = {}
    done = Campaign()
    last = False
    while not last:
        attempt = len(done.worlds)
        # More than one at first: a state that only one rank can read must be seen.
        worlds = [ranks for ranks in (1, 2, 3) if ranks != (done.worlds or [1])[-1]]
        done.worlds.append(source.choice(worlds))
        rows = folder / f"rows-{attempt}"
        start(script, dataset, run, rows, ranks=done.worlds[-1], steps=STEPS)
        last = done.hit >= kills
        if last:
            finish(rows)
        else:
            running = kill_at(rows, source.randint(earliest, 20))
            done.hit += running
            last = not running  # all steps were done before
        now = given(rows, done.worlds[-1])
        done.begins.append(min(now, default=0))
        for step, found in now.items():
            assert seen.setdefault(step, found) == found, f"step {step} differs when repeated"
    assert seen == expected(dataset, STEPS)
    return done


@pytest.mark.parametrize("script", SCRIPTS)
def test_killed_and_gone_on_with_on_other_numbers_of_ranks(script: str, tmp_path: Path) -> None:
    """After the first checkpoint, and so in the middle of an epoch."""
    done = run_through(script, tmp_path, SCRIPTS.index(script), kills=1, earliest=6)
    first, second = done.begins
    assert (done.hit, len(set(done.worlds)), first) == (1, 2, 1)
    assert second > 1, "it began anew"


@pytest.mark.slow
@pytest.mark.parametrize("script", ["ddp.py", "jax_plan.py"])
def test_fifty_kills(script: str, tmp_path: Path) -> None:
    hit = 0
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        hit += run_through(script, folder, 100 + number, kills=5, earliest=1).hit
    print(f"{script}: {hit} kills of all ranks, nothing lost, nothing twice")
    assert hit == 50


def test_the_jax_example_does_without_torch(tmp_path: Path) -> None:
    """Where there is none, one rank alone does a step."""
    example = str(EXAMPLES / "jax_plan.py")
    script = "import runpy, sys; sys.modules['torch'] = None; "
    script += f"runpy.run_path({example!r}, run_name='__main__')"
    arguments = [tmp_path / "dataset", tmp_path / "run", "--steps", "1"]
    subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(EXAMPLES)},
        check=True,
        timeout=240,
    )
    assert list(given(tmp_path / "run" / "rows", 1)) == [1]


def test_what_the_ranks_were_given_can_be_wrong(tmp_path: Path) -> None:
    """A rank that reads another's rows is seen."""
    for rank, rows in enumerate(([1, 3], [2, 4])):
        (tmp_path / f"rank-{rank}.jsonl").write_text(f'{{"step": 1, "rows": {rows}}}\n{{"step": 2')
    assert given(tmp_path, 2) == {1: [1, 2, 3, 4]}
    (tmp_path / "rank-1.jsonl").write_text('{"step": 1, "rows": [1, 3]}\n')
    assert given(tmp_path, 2) == {1: [1, 1, 3, 3]}

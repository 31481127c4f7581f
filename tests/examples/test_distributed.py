"""The distributed examples, on several ranks: killed, and gone on with on other numbers of ranks.

What the ranks were given is compared, row by row, with the order that plan and reader give. The
dataset is small, so that the runs go over the border of an epoch.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .distributed_runs import Rows, expected, finish, given, kill_at, start

SCRIPTS = ("ddp.py", "fabric.py", "accelerated.py")
STEPS = 75  # an epoch has 66


def run_through(script: str, folder: Path, seed: int, kills: int) -> tuple[int, list[int]]:
    """Run with kills; how many hit running processes, and the numbers of ranks."""
    source = random.Random(seed)
    dataset, run = folder / "dataset", folder / "run"
    seen: Rows = {}
    worlds: list[int] = []
    hit = attempt = 0
    while True:
        worlds.append(source.choice([n for n in (1, 2, 3) if worlds[-1:] != [n]]))
        rows = folder / f"rows-{attempt}"
        start(script, dataset, run, rows, ranks=worlds[-1], steps=STEPS)
        last = hit >= kills
        if last:
            finish(rows)
        else:
            hit += kill_at(rows, source.randint(1, 20))
        now = given(rows, worlds[-1])
        for step, found in now.items():
            assert seen.setdefault(step, found) == found, f"step {step} differs when repeated"
        attempt += 1
        if last:
            break
    assert seen == expected(dataset, STEPS)
    return hit, worlds


@pytest.mark.parametrize("script", SCRIPTS)
def test_killed_and_gone_on_with_on_other_numbers_of_ranks(script: str, tmp_path: Path) -> None:
    hit, worlds = run_through(script, tmp_path, SCRIPTS.index(script), kills=1)
    assert (hit, len(set(worlds))) == (1, 2)


@pytest.mark.slow
def test_fifty_kills(tmp_path: Path) -> None:
    hit = 0
    for number in range(10):
        folder = tmp_path / str(number)
        folder.mkdir()
        hit += run_through("ddp.py", folder, 100 + number, kills=5)[0]
    print(f"{hit} kills of all ranks, nothing lost, nothing twice")
    assert hit == 50


def test_what_the_ranks_were_given_can_be_wrong(tmp_path: Path) -> None:
    """A rank that reads another's rows is seen."""
    for rank, rows in enumerate(([1, 3], [2, 4])):
        (tmp_path / f"rank-{rank}.jsonl").write_text(f'{{"step": 1, "rows": {rows}}}\n{{"step": 2')
    assert given(tmp_path, 2) == {1: [1, 2, 3, 4]}
    (tmp_path / "rank-1.jsonl").write_text('{"step": 1, "rows": [1, 3]}\n')
    assert given(tmp_path, 2) == {1: [1, 1, 3, 3]}

"""Vectors are tried in child processes, and what came of them is judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hostile import child
from hostile.judging import describe, problems
from hostile.vectors import Vector

TESTS = Path(__file__).parents[1]
PATH = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(TESTS))))
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATH, "OPENBLAS_NUM_THREADS": "1"}


@dataclass
class Verdict:
    """What came of the vectors of one file.

    Attributes:
        wrong: what must not be, by name of the vector.
        untried: the vectors that this user cannot make, such as devices.
        seconds, mib: the most that an operation took.
    """

    wrong: dict[str, list[str]] = field(default_factory=dict)
    untried: list[str] = field(default_factory=list)
    seconds: float = 0.0
    mib: float = 0.0

    def add(self, vector: Vector, found: dict[str, Any]) -> None:
        if "untried" in found:
            self.untried.append(vector.name)
        elif "died" in found:
            self.wrong[vector.name] = [found["died"]]
        else:
            all_wrong = list(problems(vector, found))
            if all_wrong:
                self.wrong[vector.name] = [vector.facts["why"], *all_wrong, describe(found)]
            self.seconds = max(self.seconds, *(one["cpu_seconds"] for one in found["outcomes"]))
            self.mib = max(self.mib, *(one["mib"] for one in found["outcomes"]))

    def __str__(self) -> str:
        return "\n".join(
            "\n    ".join([name, *all_wrong]) for name, all_wrong in self.wrong.items()
        )


def verdict_on(
    sort: str,
    vectors: list[Vector],
    folder: Path,
    *,
    only: Collection[int] | None = None,
    sabotage: str | None = None,
) -> Verdict:
    """Try vectors of one file.

    Args:
        sort: the file.
        vectors: all that are in it.
        folder: an empty one, where the datasets are made.
        only: the numbers of those to be tried; all when left out.
        sabotage: which defence the packages lack.
    """
    verdict = Verdict()
    for number, found in _outcomes(sort, set(only or range(len(vectors))), folder, sabotage):
        verdict.add(vectors[number], found)
    return verdict


def _outcomes(
    sort: str, numbers: set[int], folder: Path, sabotage: str | None
) -> list[tuple[int, dict[str, Any]]]:
    """What came of each vector; a process that dies is followed by another one."""
    results: dict[int, dict[str, Any]] = {}
    while left := numbers - set(results):
        place = folder / f"{min(left)}"
        place.mkdir()
        arguments = [sys.executable, str(child.__file__), sort, str(place)]
        arguments.append(",".join(map(str, sorted(left))))
        arguments += [] if sabotage is None else [sabotage]
        process = subprocess.run(arguments, env=ENVIRONMENT, capture_output=True, check=False)
        said = [json.loads(line) for line in process.stdout.splitlines()]
        results |= {line["number"]: line for line in said if "begun" not in line}
        if process.returncode:
            errors = process.stderr.decode(errors="replace")
            assert said, errors
            assert "begun" in said[-1], errors
            died = f"the process ended with {process.returncode}: {errors}"
            results[said[-1]["number"]] = {"died": died}
    return sorted(results.items())

"""An interpreter ends within 2 s and without a word, in whatever state it leaves its loaders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .exit_cases import MODES, WAYS
from .process_cases import write

ROOT = Path(__file__).resolve().parents[2]


ALL = [list(MODES)]
EACH = [[mode] for mode in MODES]


@pytest.mark.parametrize(
    "seed, sets",
    [
        (0, ALL),
        *(pytest.param(1000 * k, ALL + EACH, marks=pytest.mark.slow) for k in range(1, 20)),
    ],
)
def test_every_way_to_leave_loaders_of_every_kind(
    tmp_path: Path, seed: int, sets: list[list[str]]
) -> None:
    """Nothing on stderr, such as a lock that could not be acquired; no process stays."""
    directory = write("stream", tmp_path / "stream", 120)
    command = [sys.executable, "-W", "error", "-m", "tests.torch.exit_cases"]
    result = subprocess.run(
        [*command, str(directory), str(seed), *map(json.dumps, sets)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests"), *sys.path]),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert len(found) == len(WAYS) * len(sets)
    for way, modes, number, ended in found:
        where = (way, modes, number, ended)
        assert (ended["status"], ended["stderr"], ended["left"]) == (0, "", 0), where
        assert ended["seconds"] < 2, where

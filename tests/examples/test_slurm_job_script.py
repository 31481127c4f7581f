"""The batch script of the example, under stand-ins for Slurm's commands."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from examples.slurm_jobs import SCRIPT, Inputs, Process
from guideloom import verify

ROOT = Path(__file__).parents[2]
FOLDER = SCRIPT.parent
PAGE = ROOT / "docs" / "how-to" / "slurm-and-mpi.md"
COUNTS = (30, 5, 0, 44, 12)
SIZE = 3
MOST_STARTS = 10
TERM: Process = {"signal": signal.SIGTERM, "at": 40}
KILL: Process = {"signal": signal.SIGKILL, "at": 40}


class Slurm:
    """The commands that the script calls, in a folder for PATH.

    Args:
        folder: for them and what they note.
        plan: how the processes of each start end.
    """

    def __init__(self, folder: Path, plan: Sequence[Mapping[int, Process]]) -> None:
        self._folder = folder
        self._plan = folder / "plan.json"
        self._plan.write_text(json.dumps(plan))
        self._requeued = folder / "requeued"
        self._command("srun", f'exec {sys.executable} {Path(__file__).parent}/slurm_srun.py "$@"')
        self._command("python", f'exec {sys.executable} "$@"')
        self._command("scontrol", f'echo "$@" >> {self._requeued}')

    def _command(self, name: str, line: str) -> None:
        path = self._folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{line}\n")
        path.chmod(0o755)

    def run(self, *arguments: object) -> list[subprocess.CompletedProcess[str]]:
        """The script, and again as long as it asks for it."""
        runs = []
        for start in range(MOST_STARTS):
            self._requeued.unlink(missing_ok=True)
            runs.append(self.start(start, arguments))
            if not self._requeued.exists():
                break
            assert self._requeued.read_text() == "requeue 4711\n"
        return runs

    def start(self, start: int, arguments: Sequence[object]) -> subprocess.CompletedProcess[str]:
        """One run of the script, as Slurm starts it after so many others."""
        own = os.environ.get("PYTHONPATH")
        restarted = {"SLURM_RESTART_COUNT": str(start)} if start else {}
        return subprocess.run(
            ["bash", "job.sh", *map(str, arguments)],
            cwd=FOLDER,
            env={
                **os.environ,
                **restarted,
                "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}",
                "PYTHONPATH": ":".join(filter(None, (str(ROOT / "tests"), own))),
                "PLAN": str(self._plan),
                "SLURM_JOB_ID": "4711",
                "SLURM_NTASKS": str(SIZE),
                "SLURM_PROCID": "0",
            },
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    return Inputs(tmp_path / "inputs", COUNTS)


def test_out_of_time_killed_and_then_done(inputs: Inputs, tmp_path: Path) -> None:
    slurm = Slurm(tmp_path, [{0: TERM, 1: TERM, 2: TERM}, {1: KILL}, {}])
    runs = slurm.run(tmp_path / "x", inputs.list)
    assert [run.returncode for run in runs] == [0, 0, 0], runs[-1].stderr
    assert "stopped by SIGTERM; the same command goes on" in runs[0].stderr
    assert re.search(r"^manifest version 1: \d parts, 91 documents$", runs[2].stdout, re.MULTILINE)
    assert inputs.visible(tmp_path / "x") == inputs.complete
    assert verify(tmp_path / "x").clean


def test_an_error_is_not_tried_again(inputs: Inputs, tmp_path: Path) -> None:
    """The other processes do what they can."""
    missing = Path(inputs.list.read_text().splitlines()[1])
    kept = shutil.move(missing, tmp_path / "kept")
    (run,) = Slurm(tmp_path, [{}]).run(tmp_path / "x", inputs.list)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == f"write.py: [Errno 2] No such file or directory: '{missing}'\n"
    assert inputs.visible(tmp_path / "x") == {0: 30, 3: 44}
    assert not (tmp_path / "x/manifest.json").exists()
    shutil.move(kept, missing)
    (run,) = Slurm(tmp_path, [{}]).run(tmp_path / "x", inputs.list)
    assert run.returncode == 0
    assert inputs.visible(tmp_path / "x") == inputs.complete


def test_a_job_that_never_gets_on_ends(inputs: Inputs, tmp_path: Path) -> None:
    """A process that is killed at once, every time: 20 restarts, then the script gives up."""
    last = Slurm(tmp_path, [{}] * 19 + [{1: {**KILL, "at": 0}}] * 2)
    assert last.start(20, [tmp_path / "x", inputs.list]).returncode == 128 + signal.SIGKILL
    assert not (tmp_path / "requeued").exists()
    last.start(19, [tmp_path / "x", inputs.list])
    assert (tmp_path / "requeued").exists()


def test_the_page_shows_the_script_as_it_is() -> None:
    (shown,) = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert shown == (FOLDER / "job.sh").read_text()

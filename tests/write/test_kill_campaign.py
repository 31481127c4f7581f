"""A few SIGKILLs at random times of four processes that write one dataset; 3,000 by

cd tests && uv run python -m write.kill_campaign 3000
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from guideloom_format import DamagedFileError
from write.kill_campaign import WRITERS, Trial, check, work
from write.known_content import all_files
from write.traced_writer import KINDS

TESTS = Path(__file__).parents[1]
KILLS = 30
SECONDS = 300


def test_kills_at_random_times() -> None:
    seed = random.SystemRandom().getrandbits(32)
    done = subprocess.run(
        [sys.executable, "-m", "write.kill_campaign", str(KILLS), str(seed)],
        cwd=TESTS,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stdout}{done.stderr}"
    found = re.search(rf"^(\d+) SIGKILLs, 0 bad, seed {seed}, ", done.stdout, re.MULTILINE)
    assert found is not None, f"seed {seed}: {done.stdout}{done.stderr}"
    assert int(found[1]) >= KILLS


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize(
    "files, harm, text",
    [
        ("commits/0000004-*.json", Path.unlink, "shard 4 lost a commit"),
        ("data/0000/0000004-*", cut_off, "bytes"),
    ],
)
def test_the_campaign_sees_harm(
    kind: str, files: str, harm: Callable[[Path], None], text: str, tmp_path: Path
) -> None:
    trial = Trial(kind, tmp_path / "x", seed=5)
    for rank in range(WRITERS):
        work(trial, rank, 0)
    check(trial, 0)
    harmed = sorted(name for name in all_files(tmp_path / "x") if Path(name).match(files))
    harm(tmp_path / "x" / harmed[-1])
    with pytest.raises((AssertionError, DamagedFileError), match=text):
        check(trial, 0)

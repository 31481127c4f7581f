"""Few descriptors and no shared memory, for the whole life of a process: every mode works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from .limit_cases import ALL_MODES

ROOT = Path(__file__).resolve().parents[2]
SHARED_MEMORY = {
    "1 MiB": "mount -t tmpfs -o size=1m tmpfs /dev/shm",
    "full": (
        "mount -t tmpfs -o size=4k tmpfs /dev/shm && head -c 4096 /dev/zero > /dev/shm/all-of-it"
    ),
    "read-only": "mount -t tmpfs -o ro,size=4k tmpfs /dev/shm",
}


@pytest.mark.parametrize(
    "limit, shared_memory, modes",
    [
        (64, "full", tuple(ALL_MODES)[:-1]),  # all but spawned processes, which take long
        *(
            pytest.param(limit, memory, tuple(ALL_MODES), marks=pytest.mark.slow)
            for limit, memory in product((64, 256), SHARED_MEMORY)
        ),
    ],
)
def test_few_descriptors_and_no_shared_memory(
    limit: int, shared_memory: str, modes: tuple[str, ...]
) -> None:
    """400 parts, `ulimit -n` from the start of the process, and a /dev/shm that holds nothing.

    In a mount namespace of its own, with a folder for data and temporary files that only it sees.
    """
    setup = f"{SHARED_MEMORY[shared_memory]} && mount -t tmpfs tmpfs /mnt"
    unshare = ["unshare", "--mount", "--fork", "--kill-child", "sh", "-c"]
    tried = subprocess.run([*unshare, setup], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"needs the right to mount: {tried.stderr.strip()}")
    run = f'{setup} && ulimit -n {limit} && exec "$@"'
    command = [sys.executable, "-m", "tests.torch.limit_cases", "/mnt", str(limit), *modes]
    result = subprocess.run(
        [*unshare, run, "sh", *command],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests"), *sys.path]),
            "TMPDIR": "/mnt",
            "PYTHONWARNINGS": "error",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, ""), result.stderr[-3000:]
    found, left = json.loads(result.stdout)
    assert left == (["all-of-it"] if shared_memory == "full" else [])
    assert [name for name, *_ in found] == list(modes)
    for name, right, most, open_still in found:
        assert right == 2 * 30, name
        assert most < limit, (name, most)
        assert open_still < 16, (name, open_still)

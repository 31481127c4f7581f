"""Files that change under a reader: the data as it was, or a named error, or what stands there now.

A process ends by SIGBUS in one case alone, which the page of `MmapIO` names: a file that is
truncated while it is mapped.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hostile.good_datasets import DATA, bases, expected_contents
from read import open_damage
from read.open_damage import BACKENDS, CHANGES, WHILE_OPEN, main

TESTS = Path(__file__).parents[1]
ROLES = {"stream": ["elements"], "document": ["documents", "ends"]}
ROLES["stream-with-meta"] = ["elements", "spans", "payloads"]
PLACES = [(kind, role) for kind, roles in ROLES.items() for role in roles]
KEEP_FILES_OPEN = ("pread", "mmap")
BY_NAME = {
    "replaced by other bytes",
    "replaced by nothing",
    "removed",
    "a link instead",
    "a folder instead",
    "its folder removed",
}
"""Changes of the name: who has the file open does not see them."""

TOLD = {
    "truncated to nothing": "committed",
    "truncated by a byte": "committed",
    "longer by a byte": "committed",
    "replaced by nothing": "committed",
    "removed": "is not there",
    "a link instead": "cannot be opened",
    "a folder instead": "not a regular file",
    "its folder removed": "is not there",
}
"""What a reader says that opens the file after the change."""


def dataset(kind: str, directory: Path) -> Path:
    bases()[kind].write(directory, manifest=False)
    return directory


def check(seen: list[dict[str, str]], kind: str, backend: str, change: str, when: str) -> None:
    first, second = seen
    assert first == second, "what it says depends on what it said before"
    right = {"shown": expected_contents(kind).hex()}
    opened = when == WHILE_OPEN and backend in KEEP_FILES_OPEN
    if change in ("nothing", "replaced by the same") or (opened and change in BY_NAME):
        assert first == right
    elif change == "not readable":
        assert first == right or "Permission denied" in first.get("error", ""), first
        assert first == right or not opened, first
    elif change in ("overwritten", "replaced by other bytes"):
        assert first != right, "the change was not made"
        assert first.get("error", "DamagedFileError").startswith("DamagedFileError"), first
    elif opened:  # truncated, or longer
        assert first == right or "truncated since it was opened" in first.get("error", ""), first
        assert "truncated" not in change or first != right, first
    else:
        assert TOLD[change] in first.get("error", ""), first


@pytest.mark.parametrize("when", ["before it is opened", WHILE_OPEN])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind, role", PLACES)
def test_a_file_that_changes(
    kind: str,
    role: str,
    backend: str,
    when: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for change in CHANGES:
        if backend == "mmap" and when == WHILE_OPEN and change.startswith("truncated"):
            continue
        directory = dataset(kind, tmp_path / "x")
        main(kind, backend, change, when, f"{DATA}.{role}", directory)
        check(json.loads(capsys.readouterr().out), kind, backend, change, when)
        shutil.rmtree(directory)


@pytest.mark.parametrize("kind, role", PLACES)
@pytest.mark.parametrize("change", [change for change in CHANGES if "truncated" in change])
def test_a_mapped_file_that_is_truncated(kind: str, role: str, change: str, tmp_path: Path) -> None:
    """Bytes of the last page are there still, as zeros behind the end; other pages are not."""
    directory = dataset(kind, tmp_path / "x")
    size = (directory / f"{DATA}.{role}").stat().st_size
    path = (os.environ.get("PYTHONPATH"), str(TESTS))
    arguments = [kind, "mmap", change, WHILE_OPEN, f"{DATA}.{role}", str(directory)]
    done = subprocess.run(
        [sys.executable, str(open_damage.__file__), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
        capture_output=True,
        check=False,
    )
    if change == "truncated to nothing" or size == 1:
        assert done.returncode == -signal.SIGBUS, done
        assert not done.stdout
    else:
        assert done.returncode == 0, done
        first, second = json.loads(done.stdout)
        assert first == second
        assert first.get("error", "DamagedFileError").startswith("DamagedFileError"), first

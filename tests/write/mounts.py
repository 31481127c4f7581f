"""Real file systems for tests, of a size or read-only; for root only, as mounting is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

OPTIONS = "nosuid,nodev,noexec"


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"needs the right to mount: {' '.join(command)} says {done.stderr.strip()}")


@contextmanager
def memory_disk(folder: Path, limit: str) -> Iterator[None]:
    """A file system in memory with a limit, such as "size=64k" or "nr_inodes=9"."""
    _call("mount", "-t", "tmpfs", "-o", f"{OPTIONS},{limit}", "tmpfs", str(folder))
    try:
        yield
    finally:
        _unmount(folder)


def enlarge(folder: Path) -> None:
    """Take the limit away."""
    subprocess.run(
        ["mount", "-o", "remount,size=64m,nr_inodes=4096", str(folder)],
        check=True,
        capture_output=True,
    )


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nothing below the folder can be changed."""
    _call("mount", "--bind", str(folder), str(folder))
    try:
        _call("mount", "-o", "remount,bind,ro", str(folder))
        yield
    finally:
        _unmount(folder)


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", str(folder)], check=True, capture_output=True)

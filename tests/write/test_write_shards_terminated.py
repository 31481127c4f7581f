"""SIGTERM at every file operation of a worker of `write_shards`: before it, and right behind it.

A signal's handler runs between any two steps of the interpreter, so also between the creation of a
file and the note of it.
"""

from __future__ import annotations

import functools
import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guideloom_format import TaskError
from guideloom_write._files import PosixFiles
from write import not_synced
from write.known_content import garbage
from write.shard_jobs import KINDS, run, sizes, wanted

no_sync = not_synced.no_sync

OPERATIONS = [name for name in vars(PosixFiles) if not name.startswith("_")]


class Terminated:
    """Sends SIGTERM to a worker at one of its file operations.

    Args:
        monkeypatch: swaps the operations.
        counter: file to which each operation of a worker adds a byte.
        behind: the signal comes when the operation is done, not before.

    Attributes:
        at: which operation, from 1.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, counter: Path, *, behind: bool) -> None:
        self._parent = os.getpid()
        self._counter = counter
        self._behind = behind
        for name in OPERATIONS:
            monkeypatch.setattr(PosixFiles, name, self._around(getattr(PosixFiles, name)))

    def aim(self, at: int) -> None:
        """Forget what was done, and wait for another operation."""
        self._at = at
        self._counter.write_bytes(b"")

    @property
    def hit(self) -> bool:
        """Whether so many operations were done."""
        return self._counter.stat().st_size >= self._at

    def _around(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(operation)
        def terminated(*arguments: Any) -> Any:
            if os.getpid() == self._parent:
                return operation(*arguments)
            with self._counter.open("ab") as counter:
                counter.write(b".")
                now = counter.tell() == self._at
            if now and not self._behind:
                os.kill(os.getpid(), signal.SIGTERM)
            try:
                return operation(*arguments)
            finally:
                if now and self._behind:
                    os.kill(os.getpid(), signal.SIGTERM)

        return terminated


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("resume", [False, True], ids=["whole", "resume"])
@pytest.mark.parametrize("kind", KINDS)
def test_sigterm_at_every_operation(
    kind: str, resume: bool, behind: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left behind, whatever it interrupts; the next call finishes the work."""
    tasks = sizes(14)
    job: dict[str, Any] = {"resume": resume, "commit_bytes": 60}
    terminated = Terminated(monkeypatch, tmp_path / "operations", behind=behind)
    killed = 0
    for at in itertools.count(1):
        place = tmp_path / str(at)
        terminated.aim(at)
        try:
            run(kind, place, tasks, workers=1, **job)
        except TaskError as error:
            assert "was killed by signal 15 (SIGTERM)" in str(error)  # noqa: PT017
            killed += 1
        assert garbage(place) == set(), f"operation {at}"
        if not terminated.hit:
            break
        run(kind, place, tasks, workers=0, **job)
        assert KINDS[kind].known.visible(place) == wanted(tasks)
    assert killed > 15

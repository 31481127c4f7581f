"""File operations that die at a call that is chosen while the writer runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from guideloom_write._files import PosixFiles
from write.faulty_files import Crash

STEPS = frozenset(name for name in vars(PosixFiles) if not name.startswith("_"))
UNSYNCED = frozenset({"sync", "sync_folder"})
"""Not done: what dies here is a process, and the page cache survives it."""


class DoomedFiles(PosixFiles):
    """Does everything but syncing; once armed, it dies so many calls later, and for ever.

    Every step of `PosixFiles` counts, also those that are added to it later.

    Attributes:
        linked: targets of links that were made since the last arming.
    """

    def __init__(self) -> None:
        self._left: int | None = None
        self._torn = False
        self._descriptors: set[int] = set()
        self.linked: list[str] = []

    def arm(self, calls: int | None, *, torn: bool = False) -> None:
        """Die at the entry of the call after so many, or never; begin to note links.

        Args:
            calls: that are still done.
            torn: if that call is a write, half of it is done.
        """
        self._left = calls
        self._torn = torn
        self.linked.clear()

    def disarm(self) -> None:
        """Live on."""
        self._left = None

    def bury(self) -> None:
        """Give back the descriptors that a dead writer left open."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __getattribute__(self, name: str) -> Any:
        step = super().__getattribute__(name)
        return partial(self._do, name, step) if name in STEPS else step

    def _do(self, name: str, step: Callable[..., Any], *arguments: Any) -> Any:
        if self._left is not None:
            if self._left == 0:
                self._die(name, arguments)
            self._left -= 1
        result: Any = None if name in UNSYNCED else step(*arguments)
        if name in ("create", "reopen"):
            self._descriptors.add(result)
        elif name == "close":
            self._descriptors.discard(arguments[0])
        elif name == "link":
            self.linked.append(arguments[1])
        return result

    def _die(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "write" and self._torn:
            self._torn = False
            data = bytes(arguments[1])
            os.write(arguments[0], data[: len(data) // 2])
        raise Crash(f"at {name} {arguments[:1]}")

"""Test doubles for `guideloom_write._files.PosixFiles`: each goes wrong in one known way.

`Watched` sees every step of a writer before it is done; the doubles build on it. None of them
syncs to the disk: what they stand for is the death of a process or an error of a call, not of the
machine, and the page cache survives both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_write._files import PosixFiles

NEVER_FAILS = frozenset({"folder_exists"})
"""A question with a yes or no answer: on POSIX it answers no where it cannot look."""

NAMES_NO_FILE = frozenset({"write", "size", "sync", "close"})
"""Calls on a descriptor: the operating system's error for them has no file name."""


class Crash(BaseException):
    """The process is dead. Not an Exception, so that no handler takes it for an error."""


class Watched(PosixFiles):
    """Does everything but syncing, and logs it.

    Attributes:
        calls: (kind, path) of every call that was begun.
        created: paths of files that were created, in order.
        linked: targets of links that were made, in order.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.created: list[str] = []
        self.linked: list[str] = []
        self._paths: dict[int, str] = {}

    def before(self, kind: str, path: str) -> None:
        """Called at the entry of each call, after it was logged."""

    def after(self, kind: str, path: str) -> None:
        """Called when a call has done its work."""

    def bury(self) -> None:
        """Give back the descriptors that a dead writer left open."""
        for descriptor in list(self._paths):
            del self._paths[descriptor]
            os.close(descriptor)

    def open_count(self) -> int:
        """How many descriptors are open."""
        return len(self._paths)

    @contextmanager
    def _step(self, kind: str, path: str) -> Iterator[None]:
        self.calls.append((kind, path))
        self.before(kind, path)
        yield
        self.after(kind, path)

    def make_folder(self, path: str) -> None:
        with self._step("make_folder", path):
            super().make_folder(path)

    def folder_exists(self, path: str) -> bool:
        with self._step("folder_exists", path):
            return super().folder_exists(path)

    def create(self, path: str) -> int:
        with self._step("create", path):
            descriptor = super().create(path)
            self._paths[descriptor] = path
            self.created.append(path)
        return descriptor

    def reopen(self, path: str) -> int:
        with self._step("reopen", path):
            descriptor = super().reopen(path)
            self._paths[descriptor] = path
        return descriptor

    def write(self, descriptor: int, data: bytes | NDArray[np.uint8]) -> None:
        with self._step("write", self._paths[descriptor]):
            super().write(descriptor, data)

    def size(self, path: str) -> int:
        with self._step("size", path):
            return super().size(path)

    def sync(self, descriptor: int) -> None:
        with self._step("sync", self._paths[descriptor]):
            pass

    def close(self, descriptor: int) -> None:
        with self._step("close", self._paths[descriptor]):
            self._really_close(descriptor)

    def sync_folder(self, path: str) -> None:
        with self._step("sync_folder", path):
            pass

    def replace(self, source: str, target: str) -> None:
        with self._step("replace", target):
            super().replace(source, target)

    def touch(self, path: str) -> None:
        with self._step("touch", path):
            super().touch(path)

    def modified(self, path: str) -> float:
        with self._step("modified", path):
            return super().modified(path)

    def list_names(self, path: str) -> list[str]:
        with self._step("list_names", path):
            return super().list_names(path)

    def link(self, source: str, target: str) -> None:
        with self._step("link", target):
            super().link(source, target)
            self.linked.append(target)

    def remove(self, path: str) -> None:
        with self._step("remove", path):
            super().remove(path)

    def read(self, path: str, limit: int) -> bytes:
        with self._step("read", path):
            return super().read(path, limit)

    def _really_close(self, descriptor: int) -> None:
        del self._paths[descriptor]
        os.close(descriptor)

    def _write_half(self, descriptor: int, data: bytes | NDArray[np.uint8]) -> None:
        whole = bytes(data)
        os.write(descriptor, whole[: len(whole) // 2])


class CrashAt(Watched):
    """The process dies at the entry of call n, counted from 1; so does every later call.

    Args:
        n: the number of the call.
        torn: if call n is a write, half of it is done before.
    """

    def __init__(self, n: int, *, torn: bool = False) -> None:
        super().__init__()
        self._n = n
        self._torn = torn
        self.crashed = False

    def before(self, kind: str, path: str) -> None:
        if len(self.calls) >= self._n:
            self.crashed = True
            raise Crash(f"at call {self._n}: {kind} {path}")

    def write(self, descriptor: int, data: bytes | NDArray[np.uint8]) -> None:
        if self._torn and len(self.calls) + 1 == self._n:
            self._write_half(descriptor, data)
        super().write(descriptor, data)


class FailAt(Watched):
    """Call n, counted from 1 among the calls that can fail, gives an error.

    A write that fails has done half of its work; a close that fails has closed.

    Args:
        n: the number of the call.
        number: the errno.
        forever: whether every later call fails as well, or this one only.
        kinds: the calls that count and fail; all that can when left out.
    """

    def __init__(
        self, n: int, number: int, *, forever: bool = False, kinds: Collection[str] | None = None
    ) -> None:
        super().__init__()
        self._n = n
        self._number = number
        self._forever = forever
        self._kinds = kinds
        self._counted = 0
        self.failures: list[tuple[str, str]] = []

    def before(self, kind: str, path: str) -> None:
        if kind in NEVER_FAILS or (self._kinds is not None and kind not in self._kinds):
            return
        self._counted += 1
        if self._counted == self._n or (self._forever and self._counted > self._n):
            self.failures.append((kind, path))
            raise os_error(self._number, kind, path)

    def write(self, descriptor: int, data: bytes | NDArray[np.uint8]) -> None:
        try:
            super().write(descriptor, data)
        except OSError:
            self._write_half(descriptor, data)
            raise

    def close(self, descriptor: int) -> None:
        try:
            super().close(descriptor)
        except OSError:
            self._really_close(descriptor)
            raise


class AppliedThenError(Watched):
    """Calls do their work and report an error all the same, as network file systems may.

    Args:
        kind: which calls.
        number: the errno.
        matches: whether the call with this path is meant.
    """

    def __init__(
        self, kind: str, number: int, matches: Callable[[str], bool] = lambda _: True
    ) -> None:
        super().__init__()
        self._kind = kind
        self._number = number
        self._matches = matches
        self.failures: list[tuple[str, str]] = []

    def after(self, kind: str, path: str) -> None:
        if kind == self._kind and self._matches(path):
            self.failures.append((kind, path))
            raise os_error(self._number, kind, path)


class ShortOs:
    """Stands for the module `os` in `guideloom_write._files`: its `write` writes only a part.

    Args:
        cut: from the number of bytes asked for to the number written.
    """

    def __init__(self, cut: Callable[[int], int]) -> None:
        self._cut = cut
        self.shortened = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        wanted = self._cut(len(data))
        self.shortened += wanted < len(data)
        return os.write(descriptor, data[:wanted])


def os_error(number: int, kind: str, path: str) -> OSError:
    """The error that the operating system would give for a call of this kind."""
    if kind in NAMES_NO_FILE:
        return OSError(number, os.strerror(number))
    return OSError(number, os.strerror(number), path)

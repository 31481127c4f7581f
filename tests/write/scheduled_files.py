"""File operations of a writer, and of a reader, that wait for their turn in a `Schedule`.

Nothing is synced: what is tried here is the order of things, not the death of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from guideloom_format import IOFiles, IOSession
from guideloom_read.io import PosixPreadIO
from guideloom_write._files import PosixFiles
from write.schedules import Step, current_schedule, scheduled_thread

T = TypeVar("T")
LOOKS = frozenset({"folder_exists", "size", "modified", "read", "reopen"})
SYNCS = frozenset({"sync", "sync_folder", "close"})
"""Nobody sees them as long as the machine lives. The size of a file is seen at its writes."""
DESCRIPTORS = frozenset({"write", "sync", "close"})
OPENS = frozenset({"create", "reopen"})
TWO_NAMES = frozenset({"link", "replace"})
NO_CHANGE = (FileExistsError, FileNotFoundError)


def operations_of(files: type[PosixFiles]) -> list[str]:
    """Names of all file operations."""
    return [name for name in vars(files) if not name.startswith("_")]


class Hooked(PosixFiles):
    """Every file operation, whatever there is, goes through `around`; none syncs."""

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}

    def around(self, kind: str, paths: tuple[str, ...], do: Callable[[], Any]) -> Any:
        """Called in place of each operation, with the names that it concerns."""
        raise NotImplementedError

    def bury(self) -> None:
        """Give back the descriptors that are open."""
        for descriptor in list(self._paths):
            del self._paths[descriptor]
            os.close(descriptor)

    def _call(self, kind: str, args: tuple[Any, ...]) -> Any:
        def do() -> Any:
            if kind in ("sync", "sync_folder"):
                return None
            if kind == "close":
                del self._paths[args[0]]
            result = getattr(PosixFiles, kind)(self, *args)
            if kind in OPENS:
                self._paths[result] = paths[0]
            return result

        first = self._paths[args[0]] if kind in DESCRIPTORS else args[0]
        paths = (first, args[1]) if kind in TWO_NAMES else (first,)
        return self.around(kind, paths, do)


def _hooked(kind: str) -> Callable[..., Any]:
    def operation(self: Hooked, *args: Any) -> Any:
        return self._call(kind, args)

    operation.__name__ = kind
    return operation


for _kind in operations_of(PosixFiles):
    setattr(Hooked, _kind, _hooked(_kind))


class ScheduledFiles(Hooked):
    """Waits for its turn before each operation.

    Args:
        directory: of the dataset; steps are told with names inside it.
        after: called behind every operation that can change something, with its kind and the
            name that it gives or takes.
    """

    def __init__(self, directory: str, after: Callable[[str, str], None]) -> None:
        super().__init__()
        self._inside = len(directory) + 1
        self._after = after

    def around(self, kind: str, paths: tuple[str, ...], do: Callable[[], Any]) -> Any:
        thread = scheduled_thread()
        if thread is None:
            return do()
        names = [path[self._inside :] for path in paths]
        outcome: list[Any] = []
        failure: list[Exception] = []

        def perform() -> Step:
            changes = kind not in LOOKS | SYNCS | {"list_names"}
            if kind == "make_folder":
                changes = not os.path.isdir(paths[0])
            try:
                outcome.append(do())
            except Exception as error:  # noqa: BLE001  # raised again behind the step
                failure.append(error)
                changes = changes and not isinstance(error, NO_CHANGE)
            return describe(thread, kind, names, changes=changes)

        current_schedule().step(perform)
        if failure:
            raise failure[0]
        if kind not in LOOKS | SYNCS:
            self._after(kind, names[-1])
        return outcome[0]


def describe(thread: int, kind: str, names: Sequence[str], *, changes: bool) -> Step:
    """The step that an operation was; `changes`: whether it did something."""
    what = f"{kind} {' '.join(names)}{'' if changes else ' (looked)'}"
    touched = frozenset(names)
    if kind in SYNCS:
        return Step(thread, what)
    if kind == "list_names":
        return Step(thread, what, lists=touched)
    if not changes:
        return Step(thread, what, reads=touched)
    if kind in ("write", "touch"):
        return Step(thread, what, writes=touched)
    enters = frozenset(os.path.dirname(name) for name in names)
    if kind == "link":
        return Step(thread, what, frozenset(names[:1]), frozenset(names[1:]), enters=enters)
    return Step(thread, what, writes=touched, enters=enters)


class ScheduledIO:
    """A backend that waits for its turn before each operation."""

    def open(self, directory: str) -> IOSession:
        return _Session(PosixPreadIO().open(directory))


class _Session:
    def __init__(self, session: IOSession) -> None:
        self._session = session

    def list_names(self, folder: str) -> list[str] | None:
        return take_turn("list_names", [folder], partial(self._session.list_names, folder))

    def read_file(self, name: str, limit: int) -> bytes:
        return take_turn("read", [name], partial(self._session.read_file, name, limit))

    def file_size(self, name: str) -> int:
        return take_turn("size", [name], partial(self._session.file_size, name))

    def open_files(self, names: Sequence[str], sizes: NDArray[np.int64]) -> IOFiles:
        return _Files(names, self._session.open_files(names, sizes))

    def close(self) -> None:
        self._session.close()


class _Files:
    def __init__(self, names: Sequence[str], files: IOFiles) -> None:
        self._names = names
        self._files = files

    def fill(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        names = [self._names[k] for k in np.unique(rows[:, 0]).tolist()]
        take_turn("read", names, partial(self._files.fill, rows, out))

    def close(self) -> None:
        self._files.close()


def take_turn(kind: str, names: Iterable[str], do: Callable[[], T]) -> T:
    """Do what a reader does when its turn comes, if a schedule runs it."""
    thread = scheduled_thread()
    if thread is None:
        return do()
    outcome: list[T] = []
    failure: list[Exception] = []

    def perform() -> Step:
        try:
            outcome.append(do())
        except Exception as error:  # noqa: BLE001  # raised again behind the step
            failure.append(error)
        return describe(thread, kind, list(names), changes=False)

    current_schedule().step(perform)
    if failure:
        raise failure[0]
    return outcome[0]

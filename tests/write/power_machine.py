"""A machine whose power can fail: a file system in memory that logs what was made durable when.

`Machine` is the file system as processes see it, and the log. `MachineFiles` stands for
`guideloom_write._files.PosixFiles` in one process of that machine; a killed process leaves the
machine as it is. What a power failure leaves of the log is the business of `power_states`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_format import DamagedFileError
from guideloom_write._files import PosixFiles
from write.faulty_files import Crash

ROOT = 0
MAKE_FOLDER = "make folder"
NO_FILES: Mapping[str, bytes] = {}


@dataclass(frozen=True)
class Wrote:
    """Data at the end of a file; durable when the file is synced."""

    file: int
    at: int
    data: bytes
    path: str

    def __str__(self) -> str:
        return f"write {len(self.data)} bytes at {self.at} of {self.path}"


@dataclass(frozen=True)
class Named:
    """Names of one folder that changed together; durable when the folder is synced.

    Attributes:
        names: (name, what has it from now on; None for nothing), the new name first.
    """

    folder: int
    names: tuple[tuple[str, int | None], ...]
    what: str
    path: str

    @property
    def new_folder(self) -> int | None:
        """The number of the folder that was made."""
        return self.names[0][1] if self.what == MAKE_FOLDER else None

    def __str__(self) -> str:
        return f"{self.what} {self.path}"


@dataclass(frozen=True)
class Synced:
    """A file or a folder was made durable."""

    node: int
    path: str

    def __str__(self) -> str:
        return f"sync {self.path}"


@dataclass(frozen=True)
class Mark:
    """What a process knew or did at this point of the log, for whoever judges the states."""

    value: Any

    def __str__(self) -> str:
        return f"mark {self.value}"


Event = Wrote | Named | Synced | Mark


class Machine:
    """Folders and files, as all processes see them.

    Args:
        folders: paths that are there and durable, those above before those below.
        files: path and content of files that are there and durable.

    Attributes:
        events: everything that happened that a power failure can undo, and the syncs.
    """

    def __init__(self, folders: Iterable[str] = (), files: Mapping[str, bytes] = NO_FILES) -> None:
        self.folders: dict[int, dict[str, int]] = {ROOT: {}}
        self.contents: dict[int, bytearray] = {}
        self.modified: dict[int, float] = {}
        self.events: list[Event] = []
        self._next = ROOT + 1
        for path in folders:
            self.new_folder(path)
        self._durable_files: dict[str, int] = {}
        for path, data in files.items():
            self._durable_files[path] = self.new_file(path)
            self.contents[self._durable_files[path]][:] = data
        self.events.clear()
        self.begin = Image(
            {number: dict(entries) for number, entries in self.folders.items()},
            {number: bytes(content) for number, content in self.contents.items()},
        )

    def files_at_the_beginning(self) -> Iterable[tuple[str, int]]:
        """Paths and numbers of the files that were there before the log."""
        return self._durable_files.items()

    def mark(self, value: Any) -> None:
        """Put a note into the log."""
        self.events.append(Mark(value))

    def place(self, path: str) -> tuple[int, str]:
        """(number of the folder that the path is in, last name). The folder must exist."""
        above, _, name = posixpath.normpath(path).rpartition("/")
        folder = ROOT
        for part in filter(None, above.split("/")):
            if part not in self.folders[folder]:
                raise os_error(errno.ENOENT, path)
            folder = self.folders[folder][part]
            if folder not in self.folders:
                raise os_error(errno.ENOTDIR, path)
        return folder, name

    def find(self, path: str) -> int | None:
        """The number of what has this path."""
        if posixpath.normpath(path) == "/":
            return ROOT
        try:
            folder, name = self.place(path)
        except FileNotFoundError:
            return None
        return self.folders[folder].get(name)

    def file(self, path: str) -> int:
        """The number of the file that has this path."""
        found = self.find(path)
        if found is None:
            raise os_error(errno.ENOENT, path)
        if found not in self.contents:
            raise os_error(errno.EISDIR, path)
        return found

    def new_folder(self, path: str) -> int:
        return self._new(path, MAKE_FOLDER, self.folders, {})

    def new_file(self, path: str) -> int:
        number = self._new(path, "create", self.contents, bytearray())
        self.modified[number] = time.time()
        return number

    def _new(self, path: str, what: str, among: dict[int, Any], value: Any) -> int:
        folder, name = self.place(path)
        if name in self.folders[folder]:
            raise os_error(errno.EEXIST, path)
        number, self._next = self._next, self._next + 1
        among[number] = value
        self.rename(folder, ((name, number),), what, path)
        return number

    def rename(
        self, folder: int, names: tuple[tuple[str, int | None], ...], what: str, path: str
    ) -> None:
        """Change names of a folder, and log it."""
        self.events.append(Named(folder, names, what, path))
        for name, number in names:
            if number is None:
                self.folders[folder].pop(name, None)
            else:
                self.folders[folder][name] = number


@dataclass
class Image:
    """What is durable: names in folders, and data of files."""

    folders: dict[int, dict[str, int]]
    contents: dict[int, bytes]


Death = int | Callable[[Sequence[tuple[str, str]]], bool]


class MachineFiles(PosixFiles):
    """The file operations of one process on a machine.

    Args:
        machine: where.
        die_at: the process dies at the entry of this call, counted from 1, or of the first one for
            which this is true of the calls that were begun; so does every later one.

    Attributes:
        calls: kind and path of the calls that were begun.
        dead: whether it died.
    """

    def __init__(self, machine: Machine, die_at: Death | None = None) -> None:
        self.machine = machine
        self.calls: list[tuple[str, str]] = []
        self.dead = False
        self._die_at = die_at
        self._open: dict[int, tuple[int, str]] = {}

    def _begin(self, kind: str, path: str) -> None:
        self.calls.append((kind, path))
        if isinstance(self._die_at, int):
            self.dead = len(self.calls) >= self._die_at
        elif self._die_at is not None:
            self.dead = self.dead or self._die_at(self.calls)
        if self.dead:
            raise Crash(f"at call {len(self.calls)}: {kind} {path}")

    def path_of(self, descriptor: int) -> str:
        return self._open[descriptor][1]

    def make_folder(self, path: str) -> None:
        self._begin("make_folder", path)
        with contextlib.suppress(FileExistsError):
            self.machine.new_folder(path)

    def folder_exists(self, path: str) -> bool:
        self._begin("folder_exists", path)
        with contextlib.suppress(NotADirectoryError):
            return self.machine.find(path) in self.machine.folders
        return False

    def create(self, path: str) -> int:
        self._begin("create", path)
        return self._opened(self.machine.new_file(path), path)

    def reopen(self, path: str) -> int:
        self._begin("reopen", path)
        return self._opened(self.machine.file(path), path)

    def _opened(self, file: int, path: str) -> int:
        descriptor = 1000 + len(self.calls)
        self._open[descriptor] = file, path
        return descriptor

    def write(self, descriptor: int, data: bytes | NDArray[np.uint8]) -> None:
        file, path = self._open[descriptor]
        self._begin("write", path)
        content = self.machine.contents[file]
        copy = bytes(data)
        if copy:
            self.machine.events.append(Wrote(file, len(content), copy, path))
            content += copy
            self.machine.modified[file] = time.time()

    def size(self, path: str) -> int:
        self._begin("size", path)
        return len(self.machine.contents[self.machine.file(path)])

    def sync(self, descriptor: int) -> None:
        file, path = self._open[descriptor]
        self._begin("sync", path)
        self.machine.events.append(Synced(file, path))

    def close(self, descriptor: int) -> None:
        self._begin("close", self.path_of(descriptor))
        del self._open[descriptor]

    def sync_folder(self, path: str) -> None:
        self._begin("sync_folder", path)
        folder = self.machine.find(path)
        if folder not in self.machine.folders:
            raise os_error(errno.ENOENT if folder is None else errno.ENOTDIR, path)
        self.machine.events.append(Synced(folder, path))

    def link(self, source: str, target: str) -> None:
        self._begin("link", target)
        number = self.machine.file(source)
        folder, name = self.machine.place(target)
        if name in self.machine.folders[folder]:
            raise os_error(errno.EEXIST, target)
        self.machine.rename(folder, ((name, number),), "link", target)

    def replace(self, source: str, target: str) -> None:
        self._begin("replace", target)
        number = self.machine.file(source)
        folder, name = self.machine.place(target)
        other, old = self.machine.place(source)
        assert folder == other, "the writer renames within one folder"
        self.machine.rename(folder, ((name, number), (old, None)), "replace", target)

    def remove(self, path: str) -> None:
        self._begin("remove", path)
        self.machine.file(path)
        folder, name = self.machine.place(path)
        self.machine.rename(folder, ((name, None),), "remove", path)

    def read(self, path: str, limit: int) -> bytes:
        self._begin("read", path)
        found = self.machine.find(path)
        if found in self.machine.folders:
            raise DamagedFileError(f"{path} is not a regular file; restore it from a copy")
        content = bytes(self.machine.contents[self.machine.file(path)])
        if len(content) > limit:
            raise DamagedFileError(f"{path} has {len(content)} bytes; at most {limit} are allowed")
        return content

    def touch(self, path: str) -> None:
        self._begin("touch", path)
        self.machine.modified[self.machine.file(path)] = time.time()

    def modified(self, path: str) -> float:
        self._begin("modified", path)
        return self.machine.modified[self.machine.file(path)]

    def list_names(self, path: str) -> list[str]:
        self._begin("list_names", path)
        folders = self.machine.folders
        found = self.machine.find(path)
        if found in self.machine.contents:
            raise os_error(errno.ENOTDIR, path)
        entries = folders[found] if found is not None else {}
        return [f"{name}/" if number in folders else name for name, number in entries.items()]


def os_error(number: int, path: str) -> OSError:
    """The error that the operating system would give."""
    return OSError(number, os.strerror(number), path)

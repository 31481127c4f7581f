"""A bounded set of open files, shared by threads that read without the GIL.

A thread takes a snapshot of the table and reads from it; it holds the snapshot, so whatever is
opened or given up meanwhile, the handles in it stay open until the thread is done. Opening more
makes a new table. So there is no lock around reads and nothing to count by hand: a handle closes
itself when the last table that holds it is gone.
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from guideloom_format import DamagedFileError, MissingFileError, ReadError
from guideloom_read._gather import RangeReadError

MOST_OPEN_FILES = 1024

Fill = Callable[[NDArray[Any], NDArray[np.int64], NDArray[np.int64], int, NDArray[Any]], int]


class Handle(Protocol):
    """An open file; gives back what it holds when it is deleted."""

    @property
    def value(self) -> int:
        """What the compiled code reads from: a descriptor or an address."""


def default_limit() -> int:
    """A quarter of the descriptors that this process may open, at most 1,024."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST_OPEN_FILES if soft == resource.RLIM_INFINITY else soft // 4
    return max(1, min(MOST_OPEN_FILES, allowed))


class _Table:
    """Handles by number of file. Never changed after it was made."""

    def __init__(self, handles: dict[int, Handle], values: NDArray[Any]) -> None:
        self.handles = handles
        self.values = values


class OpenFiles:
    """The files of one role of a dataset, opened when first needed, the oldest given up first.

    Args:
        directory: of the dataset.
        names: of the files in it.
        sizes: their sizes, int64.
        open_handle: opens the file with this path.
        fill: the compiled function that reads from the handles' values.
        closed: the value that stands for a file that is not open.
        dtype: of the values.
        limit: how many may be open at once.
    """

    def __init__(
        self,
        directory: str,
        names: Sequence[str],
        sizes: NDArray[np.int64],
        open_handle: Callable[[str, int], Handle],
        fill: Fill,
        *,
        closed: int,
        dtype: type[np.generic],
        limit: int,
    ) -> None:
        self._directory = directory
        self._names = names
        self._sizes = np.ascontiguousarray(sizes, dtype=np.int64)
        self._open_handle = open_handle
        self._fill = fill
        self._closed = closed
        self._limit = limit
        self._lock = threading.Lock()
        self._table = _Table({}, np.full(len(self._sizes), closed, dtype=dtype))

    def fill(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """See `guideloom.types.IOFiles.fill`."""
        table = self._table
        done = 0
        try:
            while (done := self._fill(table.values, self._sizes, rows, done, out)) < len(rows):
                table = self._opened(rows[done:, 0])
        except RangeReadError as fault:
            raise self._read_error(rows[fault.row], fault.error_number) from None

    def close(self) -> None:
        """Give up all handles; those that a thread still reads from close when it is done."""
        with self._lock:
            self._table = _Table({}, np.full_like(self._table.values, self._closed))

    def open_count(self) -> int:
        """How many files are open in the current table."""
        return len(self._table.handles)

    def _opened(self, files: NDArray[np.int64]) -> _Table:
        """A table with the first of these files open, as many of them as may be."""
        with self._lock:
            wanted = list(dict.fromkeys(files.tolist()))[: self._limit]
            kept = self._table.handles
            missing = [file for file in wanted if file not in kept]
            room = self._limit - len(missing)
            old = [file for file in kept if file not in set(wanted)]
            spare = len(kept) - room
            given_up = set(old[: max(spare, 0)])
            handles = {file: handle for file, handle in kept.items() if file not in given_up}
            for file in missing:
                handles[file] = self._open(file)
            values = np.full_like(self._table.values, self._closed)
            values[list(handles)] = [handle.value for handle in handles.values()]
            self._table = _Table(handles, values)
            return self._table

    def _open(self, file: int) -> Handle:
        name, size = self._names[file], int(self._sizes[file])
        try:
            return self._open_handle(os.path.join(self._directory, name), size)
        except FileNotFoundError as error:
            raise MissingFileError(
                f"{self._directory}: the file {name} was committed with {size} bytes and is not "
                "there. Restore it from a copy"
            ) from error
        except DamagedFileError:
            raise
        except OSError as error:
            raise ReadError(
                f"{self._directory}: the file {name} cannot be opened: {error.strerror} "
                f"(errno {error.errno}). A symbolic link or a special file is refused"
            ) from error

    def _read_error(self, row: NDArray[np.int64], error_number: int) -> Exception:
        file, offset, nbytes, _ = row.tolist()
        where = f"{self._directory}: {self._names[file]}, bytes {offset} to {offset + nbytes}"
        if error_number == 0:
            return DamagedFileError(
                f"{where}: the file has ended before, it was committed with "
                f"{int(self._sizes[file])} bytes and was truncated since it was opened. "
                "Restore it from a copy"
            )
        return ReadError(f"{where}: {os.strerror(error_number)} (errno {error_number})")

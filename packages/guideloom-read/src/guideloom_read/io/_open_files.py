"""A bounded set of open files, shared by threads that read without the GIL.

A thread takes the current table and reads from it. It holds the table meanwhile, so whatever is
opened or given up by others, the handles in it stay open until the thread is done: there is no
lock around reads and nothing to count by hand. A handle closes itself when the last table that
holds it is gone.

Opening more makes a new table. If handles that other threads still read from fill the limit, the
thread waits for one of them to close; it holds none itself at that time, so they all get on.

What is announced changes no table: files that are not open are opened for that moment, and nothing
that a read needs is given up for them.
"""

from __future__ import annotations

import os
import resource
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from guideloom_format import DamagedFileError, MissingFileError, ReadError
from guideloom_read._gather import RangeReadError
from guideloom_read.io._announce import announce_closed
from guideloom_read.io._progress import at_row

MOST_OPEN_FILES = 1024
WAIT_SECONDS = 60.0
SLICE_SECONDS = 0.5  # an interrupt in a callback can lose a wake-up

Fill = Callable[..., int]
Announce = Callable[[NDArray[Any], NDArray[np.int64], NDArray[np.int64]], int]


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
        announce: the compiled function that announces ranges of open files; None if there is none.
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
        announce: Announce | None = None,
    ) -> None:
        self._directory = directory
        self._names = names
        self._sizes = np.ascontiguousarray(sizes, dtype=np.int64)
        self._open_handle = open_handle
        self._fill = fill
        self._announce = announce
        self._closed = closed
        self._limit = limit
        self._dtype = dtype
        self._begin()

    def _begin(self) -> None:
        """Nothing is open. Also the state in a forked process, which has no other threads."""
        self._closing = threading.Condition()  # its lock is held to change what is below
        self._table = self._table_of({})
        self._opened_handles: set[weakref.ref[Handle]] = set()
        self._waiting = 0
        self._process = os.getpid()

    def fill(
        self, rows: NDArray[np.int64], out: NDArray[Any], *progress: NDArray[np.int64]
    ) -> None:
        """See `guideloom.types.IOFiles.fill`."""
        table: _Table | None = self._table
        done = 0
        try:
            while table is not None:
                done = self._fill(table.values, self._sizes, rows, done, out, *progress)
                table = None
                if done < len(rows):
                    table = self._opened(rows[done:, 0], done, *progress)
        except RangeReadError as fault:
            raise self._read_error(rows[fault.row], fault.error_number) from None
        finally:
            table = None  # a traceback must not keep files open

    fill_watched = fill

    def announce(self, rows: NDArray[np.int64]) -> None:
        """See `guideloom.types.IOFiles`."""
        table = self._table
        if self._announce is None or not self._announce(table.values, self._sizes, rows):
            return
        rows = rows[table.values[rows[:, 0]] == self._closed]
        del table  # nobody waits for it while files are opened
        announce_closed(self._directory, self._names, self._sizes, rows)

    def close(self) -> None:
        """Give up all handles; those that a thread still reads from close when it is done."""
        if self._process != os.getpid():
            self._begin()
        with self._closing:
            self._table = self._table_of({})

    def open_count(self) -> int:
        """How many files are open, in whichever table."""
        alive = {ref for ref in self._opened_handles if ref() is not None}
        self._opened_handles = alive
        return len(alive)

    def _opened(
        self, files: NDArray[np.int64], done: int, progress: NDArray[np.int64] | None = None
    ) -> _Table:
        """A table with the first of these files open, and as many of the others as may be.

        They are those of the rows from number `done` on.
        """
        if self._process != os.getpid():
            self._begin()
        wanted: dict[int, int] = {}
        for row, file in enumerate(files.tolist(), done):
            wanted.setdefault(file, row)
        first = next(iter(wanted))
        with self._closing:
            self._give_up(wanted)
            self._wait_for_room(first)
            self._table = self._with_more(wanted, progress)
            if progress is not None:
                progress[0] = done
            if self._waiting:
                self._closing.notify_all()  # they take out of the table what it now has cached
            return self._table

    def _wait_for_room(self, first: int) -> None:
        """Until one more file may be opened, or another thread has opened the one needed first."""
        deadline = time.monotonic() + WAIT_SECONDS
        self._waiting += 1
        try:
            while first not in self._table.handles:
                if self.open_count() >= self._limit:
                    self._give_up({})
                if self.open_count() < self._limit:
                    break
                if time.monotonic() > deadline:
                    raise ReadError(
                        f"{self._directory}: {self.open_count()} files are open and none was "
                        f"closed for {WAIT_SECONDS} s; the limit is {self._limit}. Raise "
                        "max_open_files"
                    )
                self._closing.wait(SLICE_SECONDS)
        finally:
            self._waiting -= 1

    def _with_more(self, wanted: dict[int, int], progress: NDArray[np.int64] | None) -> _Table:
        """The current table, and the first of the wanted files, as many as there is room for."""
        handles = dict(self._table.handles)
        room = self._limit - self.open_count()
        try:
            for file, row in wanted.items():
                if file not in handles:
                    if room < 1:
                        break
                    with at_row(progress, row):
                        handles[file] = self._hold(file)
                    room -= 1
            return self._table_of(handles)
        finally:
            handles = {}  # the traceback of an error must not keep files open

    def _give_up(self, wanted: dict[int, int]) -> None:
        """Make room for the wanted files: let go of others, those opened first before the rest."""
        handles = self._table.handles
        missing = sum(file not in handles for file in wanted)
        spare = self.open_count() + missing - self._limit if wanted else len(handles)
        others = set([file for file in handles if file not in wanted][: max(spare, 0)])
        if others:
            kept = {file: handle for file, handle in handles.items() if file not in others}
            self._table = self._table_of(kept)

    def _table_of(self, handles: dict[int, Handle]) -> _Table:
        values = np.full(len(self._sizes), self._closed, dtype=self._dtype)
        values[list(handles)] = [handle.value for handle in handles.values()]
        return _Table(handles, values)

    def _hold(self, file: int) -> Handle:
        handle = self._open(file)
        self._opened_handles.add(weakref.ref(handle, _wake(self._closing)))
        return handle

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


def _wake(closing: threading.Condition) -> Callable[[Any], None]:
    """What happens when a handle has closed: threads that wait for room look again."""
    process = os.getpid()

    def wake(_: Any) -> None:
        if os.getpid() == process:  # the lock of a forked process's parent may be held for ever
            with closing:
                closing.notify_all()

    return wake

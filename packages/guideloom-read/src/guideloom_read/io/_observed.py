"""`ObservedIO`: another backend, and somebody who is told of every bulk read."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from guideloom_format import GuideLoomError, IOFiles, IOReader, IOSession
from guideloom_format._storage import check_backend
from guideloom_read.io._pread import PosixPreadIO

_INT64 = np.dtype(np.int64)


class ObservedRead:
    """A bulk read: one call of `guideloom.types.IOFiles.fill`. Cheap to make, looked at later.

    Attributes:
        directory: of the dataset.
        names: of its files.
        rows: what is read, as `fill` gets it; at least one row.
        thread: identifier of the thread that reads.
        began: when it began, by `time.perf_counter`.
        seconds: how long it took; None while it runs.
        failed: whether it ended with an error.
    """

    __slots__ = ("began", "directory", "failed", "names", "progress", "rows", "seconds", "thread")

    def __init__(self, directory: str, names: Sequence[str], rows: NDArray[np.int64]) -> None:
        self.directory = directory
        self.names = names
        self.rows = rows
        self.progress = np.zeros(4, _INT64)
        self.thread = threading.get_ident()
        self.failed = False
        self.seconds: float | None = None
        self.began = time.perf_counter()

    @property
    def ranges(self) -> int:
        """Byte ranges in all."""
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return int(self.rows[:, 2].sum())

    def among(self) -> str:
        """In words, that it is one of several ranges, if it is."""
        return f" (one of {self.ranges} ranges)" if self.ranges > 1 else ""

    def place(self) -> tuple[str, int, int]:
        """File, and first and last byte + 1, of one of the ranges.

        While it runs and if it failed: of the range that it is at. Afterwards: of the one that
        took longest. With a backend that has no `fill_watched`, of the first.
        """
        done, longest = self.progress[:2].tolist()
        row = longest if self.seconds is not None and not self.failed else done
        file, start, nbytes, _ = self.rows[min(row, len(self.rows) - 1)].tolist()
        return f"{self.directory}/{self.names[file]}", start, start + nbytes


class ReadObserver(Protocol):
    """Is told of bulk reads, in the threads that read; what it does there delays them."""

    def began(self, read: ObservedRead) -> None:
        """A bulk read begins."""

    def ended(self, read: ObservedRead) -> None:
        """It has ended, well or not: `seconds` and `failed` are set."""


@dataclass(frozen=True)
class ObservedIO:
    """Reads with another backend, as fast and with the same errors, and tells an observer.

    Args:
        io: the backend that reads; None for the default one.
        observer: for example a `ReadLog`. To be pickled, both must be.
    """

    io: IOReader | None
    observer: ReadObserver

    def __post_init__(self) -> None:
        check_backend(self.io)

    def open(self, directory: str) -> IOSession:
        """Begin to read the dataset in `directory`."""
        session = (self.io or PosixPreadIO()).open(directory)
        return _ObservedSession(session, directory, self.observer)


class _ObservedSession:
    """A session whose files are observed."""

    def __init__(self, session: IOSession, directory: str, observer: ReadObserver) -> None:
        self._session = session
        self._directory = directory
        self._observer = observer
        self.list_names = session.list_names
        self.read_file = session.read_file
        self.file_size = session.file_size
        self.close = session.close

    def open_files(self, names: Sequence[str], sizes: NDArray[np.int64]) -> IOFiles:
        """See `guideloom.types.IOSession`."""
        files = self._session.open_files(names, sizes)
        return _ObservedFiles(files, self._directory, names, self._observer)


class _ObservedFiles:
    """Files of which each bulk read is told."""

    announce: Callable[[NDArray[np.int64]], None]

    def __init__(
        self, files: IOFiles, directory: str, names: Sequence[str], observer: ReadObserver
    ) -> None:
        self._directory = directory
        self._names = names
        self._began = observer.began
        self._ended = observer.ended
        self._fill = files.fill
        self._fill_watched = getattr(files, "fill_watched", None)
        self.close = files.close
        if hasattr(files, "announce"):
            self.announce = files.announce

    def fill(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """See `guideloom.types.IOFiles.fill`."""
        if not len(rows):
            self._fill(rows, out)
            return
        read = ObservedRead(self._directory, self._names, rows)
        self._began(read)
        try:
            if self._fill_watched is None:
                self._fill(rows, out)
            else:
                self._fill_watched(rows, out, read.progress)
        except BaseException as error:
            read.failed = True
            if not isinstance(error, GuideLoomError):  # which say so themselves
                file, start, stop = read.place()
                with contextlib.suppress(Exception):  # the backend's class may not take notes
                    error.add_note(f"while reading {file}, bytes {start} to {stop}{read.among()}")
            raise
        finally:
            read.seconds = time.perf_counter() - read.began
            self._ended(read)

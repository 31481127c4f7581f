"""Small datasets of every kind, backends that note what they are told, and cold files."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from mmap import ACCESS_READ, PAGESIZE, mmap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from guideloom import DocumentDataset, StreamDataset
from guideloom.io import PosixPreadIO
from guideloom.types import IOFiles, IOReader, IOSession
from read.document_cases import dataset as document_dataset
from read.span_cases import SOME, spans_dataset
from read.stream_cases import PACKED, numpy_stream

Dataset = StreamDataset | DocumentDataset
PAGE = PAGESIZE


def stream(directory: Path) -> StreamDataset:
    """78 elements in 16 parts, in windows that overlap and cross several of them."""
    cuts = {0: [30, 10], 4: [20], 7: [1] * 12, 9: [6]}
    return StreamDataset(numpy_stream(directory, PACKED, cuts)[0], 7, 3)


def documents(directory: Path) -> DocumentDataset:
    """30 documents, of which many are empty."""
    return DocumentDataset(document_dataset(directory, itemsize=2)[0])


def spans(directory: Path) -> StreamDataset:
    """36 elements with spans that have none, and payloads without bytes."""
    return StreamDataset(spans_dataset(directory, SOME)[0], 5, 2)


KINDS: dict[str, Callable[[Path], Dataset]] = {
    "stream": stream,
    "documents": documents,
    "spans": spans,
}


def plain(value: Any) -> Any:
    """Arrays, mappings and tuples of them as values that can be compared."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    return value if isinstance(value, str | bytes | int | type(None)) else plain(vars(value))


@dataclass(frozen=True)
class NotingIO:
    """Reads with another backend, and notes the rows that `fill` and `announce` get, in order."""

    inner: IOReader = field(default_factory=PosixPreadIO)
    calls: list[tuple[str, list[list[int]]]] = field(default_factory=list)

    def open(self, directory: str) -> IOSession:
        session: Any = self.inner.open(directory)
        open_files = session.open_files

        def noted(names: Sequence[str], sizes: NDArray[np.int64]) -> IOFiles:
            return _NotingFiles(open_files(names, sizes), self.calls)

        session.open_files = noted
        return session  # type: ignore[no-any-return]

    def take(self, what: str) -> list[list[int]]:
        """The ranges of all calls of this name, as file, offset, bytes; all notes are dropped."""
        found = [row[:3] for name, rows in self.calls if name == what for row in rows]
        self.calls.clear()
        return found


class _NotingFiles:
    def __init__(self, inner: Any, calls: list[Any]) -> None:
        self._inner = inner
        self._calls = calls

    def fill(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        self._calls.append(("fill", rows.tolist()))
        self._inner.fill(rows, out)

    def announce(self, rows: NDArray[np.int64]) -> None:
        self._calls.append(("announce", rows.tolist()))
        self._inner.announce(rows)

    def close(self) -> None:
        self._inner.close()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def drop(path: Path) -> None:
    """Ask the kernel to forget the pages of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def cached_pages(path: Path) -> list[bool]:
    """For each page of a file whether it is in the page cache. Looking reads nothing."""
    with open(path, "rb", buffering=0) as file:
        mapped = np.frombuffer(mmap(file.fileno(), 0, access=ACCESS_READ), np.uint8)
    found = (ctypes.c_ubyte * -(-mapped.size // PAGESIZE))()
    if ctypes.CDLL(None).mincore(ctypes.c_void_p(mapped.ctypes.data), mapped.size, found):
        raise OSError("mincore failed")
    return [bool(page & 1) for page in found]


def wait_for_pages(path: Path, expected: Sequence[int]) -> list[int]:
    """The pages that are there as soon as the expected ones are, or after ten seconds."""
    deadline = time.monotonic() + 10
    while True:
        found = np.flatnonzero(cached_pages(path)).tolist()
        if set(expected) <= set(found) or time.monotonic() > deadline:
            return found
        time.sleep(0.01)


@contextmanager
def folder_that_forgets(tmp_path: Path) -> Iterator[Path]:
    """A folder whose files are kept elsewhere than in memory; or the test is skipped."""
    for parent in (tmp_path, Path("/var/tmp"), Path.cwd()):
        if not os.access(parent, os.W_OK):
            continue
        with TemporaryDirectory(prefix="guideloom-cold-", dir=parent) as name:
            probe = Path(name) / "probe"
            probe.write_bytes(bytes(4 * PAGE))
            try:
                drop(probe)
                forgets = not any(cached_pages(probe))
            except OSError:
                continue
            if forgets:
                yield Path(name)
                return
    pytest.skip("no folder here is on a file system whose pages can be dropped")

"""Announcing through the backends: nothing is held, nothing is given up, nothing is raised."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from guideloom.types import IOReader
from guideloom_read.io import (
    MmapIO,
    ObservedIO,
    PosixPreadIO,
    RangeFiles,
    ReadLog,
    SeekIO,
    _open_files,
)
from guideloom_read.io._open_files import OpenFiles
from read.announce_cases import drop, folder_that_forgets, open_descriptors, wait_for_pages

Rows = NDArray[np.int64]
LOCAL: dict[str, Callable[[], IOReader]] = {
    "pread": PosixPreadIO,
    "pread, 1 file": lambda: PosixPreadIO(1),
    "mmap": MmapIO,
    "mmap, 1 file": lambda: MmapIO(1),
    "seek": SeekIO,
    "observed": lambda: ObservedIO(MmapIO(), ReadLog()),
}
local = pytest.mark.parametrize("make", LOCAL.values(), ids=list(LOCAL))
SIZE = 20_000


def rows_of(*rows: tuple[int, int, int]) -> Rows:
    return np.array([[*row, -1] for row in rows], dtype=np.int64).reshape(-1, 4)


def opened(make: Callable[[], IOReader], folder: Path, names: list[str]) -> Any:
    """The files as a reader of this backend has them."""
    return make().open(str(folder)).open_files(names, np.full(len(names), SIZE))


class Table:
    """Files of which some are open; the compiled functions are replaced by notes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
        self.told: list[list[int]] = []
        self.told_closed: list[list[int]] = []
        self.opened: list[str] = []
        monkeypatch.setattr(_open_files, "announce_closed", self._announce_closed)
        self.files = OpenFiles(
            "directory",
            [str(k) for k in range(20)],
            np.full(20, SIZE),
            self._open,
            self._fill,
            closed=0,
            dtype=np.int64,
            limit=limit,
            announce=self._announce,
        )

    def _open(self, path: str, size: int) -> Any:
        assert size == SIZE

        class Handle:
            value = 1

        self.opened.append(path)
        return Handle()

    @staticmethod
    def _fill(values: Any, sizes: Any, rows: Rows, begin: int, out: Any) -> int:
        del sizes, out
        closed = np.flatnonzero(values[rows[begin:, 0]] == 0)
        return begin + int(closed[0]) if closed.size else len(rows)

    def _announce(self, values: Any, sizes: Any, rows: Rows) -> int:
        assert len(sizes) == 20
        there = values[rows[:, 0]] != 0
        self.told += rows[there].tolist()
        return int((~there).sum())

    def _announce_closed(self, directory: str, names: Any, sizes: Any, rows: Rows) -> None:
        assert (directory, len(names), len(sizes)) == ("directory", 20, 20)
        self.told_closed += rows.tolist()

    def read(self, wanted: list[int]) -> None:
        self.files.fill(rows_of(*[(file, 0, 1) for file in wanted]), np.zeros(1))


@settings(max_examples=100, deadline=None)
@given(
    limit=st.integers(1, 6),
    calls=st.lists(
        st.tuples(st.booleans(), st.lists(st.integers(0, 19), min_size=1, max_size=8)), max_size=8
    ),
)
def test_announcing_changes_nothing_about_what_is_open(
    limit: int, calls: list[tuple[bool, list[int]]]
) -> None:
    """The same files are opened in the same order as if nothing had been announced."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        silent, table = Table(monkeypatch, limit), Table(monkeypatch, limit)
        for announces, wanted in calls:
            if not announces:
                table.read(wanted)
                silent.read(wanted)
                continue
            table.told.clear()
            table.told_closed.clear()
            rows = rows_of(*[(file, 7 * k, 5) for k, file in enumerate(wanted)])
            there = set(table.files._table.handles)
            table.files.announce(rows)
            assert table.told == [row for row in rows.tolist() if row[0] in there]
            assert table.told_closed == [row for row in rows.tolist() if row[0] not in there]
        assert table.opened == silent.opened
        assert table.files.open_count() == silent.files.open_count()


@local
def test_announcing_holds_nothing(make: Callable[[], IOReader], tmp_path: Path) -> None:
    names = [str(k) for k in range(30)]
    for name in names:
        (tmp_path / name).write_bytes(bytes(SIZE))
    files = opened(make, tmp_path, names)
    rows = rows_of(*[(k, 100 * k, 5000) for k in range(30)])
    before = open_descriptors()
    for _ in range(3):
        assert files.announce(rows) is None
        assert files.announce(rows_of()) is None
        assert open_descriptors() == before
    files.fill(rows[:3] * [1, 1, 1, 0], np.zeros(5000, np.uint8))
    after = open_descriptors()
    files.announce(rows)
    assert open_descriptors() == after
    files.close()
    files.announce(rows)  # by a thread that came too late
    assert open_descriptors() == before


@contextmanager
def bad_files(folder: Path) -> Iterator[list[str]]:
    """Names of files that cannot be read, or are not what was committed."""
    (folder / "short").write_bytes(bytes(SIZE - 1))
    (folder / "empty").write_bytes(b"")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")
    (folder / "good").write_bytes(bytes(SIZE))
    (folder / "link").symlink_to("good")
    (folder / "device").symlink_to("/dev/zero")
    yield ["missing", "short", "empty", "folder", "fifo", "link", "device", "good/below", "good"]


@local
def test_files_that_cannot_be_read_raise_nothing(
    make: Callable[[], IOReader], tmp_path: Path
) -> None:
    """Neither one of them alone nor all together, and the good one among them can be read."""
    with bad_files(tmp_path) as names:
        files = opened(make, tmp_path, names)
        before = open_descriptors()
        everything = rows_of(*[(k, 9, 5000) for k in range(len(names))])
        for rows in (*everything.reshape(-1, 1, 4), everything, everything[::-1].copy()):
            files.announce(rows)
        assert open_descriptors() == before
        out = np.ones(9, np.uint8)
        files.fill(rows_of((len(names) - 1, 9, 9)) * [1, 1, 1, 0], out)
        assert not out.any()


@local
def test_a_file_that_is_truncated_or_removed_while_it_is_open(
    make: Callable[[], IOReader], tmp_path: Path
) -> None:
    """No error and no signal: a map is not touched."""
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(bytes(SIZE))
    files = opened(make, tmp_path, ["a", "b"])
    for name, change in (("a", lambda path: os.truncate(path, 10)), ("b", os.unlink)):
        file = ["a", "b"].index(name)
        files.fill(rows_of((file, 0, 9)) * [1, 1, 1, 0], np.zeros(9, np.uint8))
        change(tmp_path / name)
        files.announce(rows_of((file, 0, SIZE), (file, SIZE - 1, 1)))


@local
def test_without_descriptors_nothing_is_announced(
    make: Callable[[], IOReader], tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(bytes(SIZE))
    files = opened(make, tmp_path, ["a"])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        files.announce(rows_of((0, 0, 9)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("held", [False, True], ids=["not open", "open"])
@local
def test_the_pages_come(make: Callable[[], IOReader], held: bool, tmp_path: Path) -> None:
    """Through every backend, whether the file is open or not."""
    with folder_that_forgets(tmp_path) as folder:
        names = ["a", "b", "c"]
        for name in names:
            (folder / name).write_bytes(bytes(SIZE))
        files = opened(make, folder, names)
        if held:
            files.fill(rows_of((0, 0, 1)) * [1, 1, 1, 0], np.zeros(1, np.uint8))
        for name in names[1:]:
            drop(folder / name)
        files.announce(rows_of((2, 0, 1), (1, SIZE - 1, 1), (0, 5000, 100)))
        assert wait_for_pages(folder / "b", [4]) == [4]
        assert wait_for_pages(folder / "c", [0]) == [0]
        assert 1 in wait_for_pages(folder / "a", [1])


@pytest.mark.parametrize("rows", [[(2, 0, 1)], [(-1, 0, 1)], [(0, 0, SIZE + 1)], [(1, -1, 1)]])
@pytest.mark.parametrize("make", [PosixPreadIO, MmapIO])
def test_rows_outside_their_files_are_refused(
    make: Callable[[], IOReader], rows: list[tuple[int, int, int]], tmp_path: Path
) -> None:
    """That is no matter of the storage."""
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(bytes(SIZE))
    files = opened(make, tmp_path, ["a", "b"])
    with pytest.raises(IndexError, match="row 1 lies outside its file"):
        files.announce(rows_of((0, 0, 1), *rows))


def test_single_ranges_are_not_announced() -> None:
    """`RangeFiles` has nobody to tell."""
    assert not hasattr(RangeFiles(lambda *_: b"", ["a"], np.array([9])), "announce")

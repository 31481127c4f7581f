"""A bounded number of open files: with stub handles, and through readers of many parts."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom.types import IOReader
from guideloom_format import DamagedFileError, MissingFileError, ReadError
from guideloom_read._gather import RangeReadError
from guideloom_read.io import _open_files
from guideloom_read.io._open_files import MOST_OPEN_FILES, OpenFiles, default_limit
from read.reader_processes import open_descriptors, read_with_few_descriptors
from read.stream_cases import PLAIN, numpy_stream
from write.writer_processes import in_new_process


class Stub:
    """Handles that count themselves: file k holds the byte k, its value is k + 1."""

    def __init__(self) -> None:
        self.alive = 0
        self.most = 0
        self.opened: list[int] = []

    def handle(self, path: str, size: int) -> Any:
        stub, number = self, int(path.rpartition("/")[2])
        assert size == 1

        class Handle:
            value = number + 1

            def __init__(self) -> None:
                stub.alive += 1
                stub.most = max(stub.most, stub.alive)
                stub.opened.append(number)

            def __del__(self) -> None:
                stub.alive -= 1

        return Handle()

    def fill(
        self,
        values: NDArray[Any],
        sizes: NDArray[np.int64],
        rows: NDArray[np.int64],
        begin: int,
        out: NDArray[Any],
    ) -> int:
        """As the compiled functions do, row by row; the byte is the handle's value less 1."""
        assert len(sizes) == len(values)
        for done in range(begin, len(rows)):
            value = int(values[rows[done, 0]])
            if value == 0:
                return done
            out[rows[done, 3]] = value - 1
        return len(rows)

    def files(self, count: int, limit: int) -> OpenFiles:
        return OpenFiles(
            "directory",
            [str(k) for k in range(count)],
            np.ones(count, dtype=np.int64),
            self.handle,
            self.fill,
            closed=0,
            dtype=np.int64,
            limit=limit,
        )


def rows_of(files: list[int]) -> NDArray[np.int64]:
    return np.array([[file, 0, 1, at] for at, file in enumerate(files)], dtype=np.int64).reshape(
        -1, 4
    )


def read(files: OpenFiles, wanted: list[int]) -> list[int]:
    out = np.full(len(wanted), 255, dtype=np.uint8)
    files.fill(rows_of(wanted), out)
    return out.tolist()


@settings(max_examples=200, deadline=None)
@given(
    limit=st.integers(1, 6),
    batches=st.lists(st.lists(st.integers(0, 19), max_size=30), max_size=6),
)
def test_any_batches_with_any_limit(limit: int, batches: list[list[int]]) -> None:
    stub = Stub()
    files = stub.files(20, limit)
    for wanted in batches:
        assert read(files, wanted) == wanted
        assert stub.alive == files.open_count() <= limit
    assert stub.most <= 2 * limit, "the new ones are opened before the old ones are given up"
    files.close()
    assert stub.alive == files.open_count() == 0


def test_what_is_open_is_not_opened_again() -> None:
    stub = Stub()
    files = stub.files(20, 4)
    for _ in range(3):
        assert read(files, [3, 1, 3, 2, 1]) == [3, 1, 3, 2, 1]
    assert stub.opened == [3, 1, 2]


def test_the_oldest_is_given_up_first_and_never_one_that_is_wanted_now() -> None:
    stub = Stub()
    files = stub.files(20, 3)
    read(files, [1, 2, 3])
    read(files, [4, 2])
    assert stub.opened == [1, 2, 3, 4]
    read(files, [3, 2, 4])
    assert stub.opened == [1, 2, 3, 4], "file 1 was the oldest"
    read(files, [1])
    read(files, [3, 4])
    assert stub.opened == [1, 2, 3, 4, 1]


def test_more_files_in_one_batch_than_may_be_open() -> None:
    stub = Stub()
    files = stub.files(200, 3)
    assert read(files, list(range(200))) == list(range(200))
    assert stub.opened == list(range(200))
    assert stub.alive == 3


def test_a_handle_stays_open_while_a_thread_reads_from_it() -> None:
    """Another thread pushes the file out meanwhile; the limit leaves room for both handles."""
    stub = Stub()
    begun, pushed_out = threading.Event(), threading.Event()
    alive_during: list[int] = []
    files = stub.files(5, 2)
    files._fill = slow_fill(stub, begun, pushed_out, alive_during)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(read, files, [0, 0])
        assert begun.wait(60)
        assert read(files, [1]) == [1]
        assert read(files, [2]) == [2]
        files.close()
        pushed_out.set()
        assert future.result(60) == [0, 0]
    assert alive_during == [1], "the handle that is read from, and no other"
    assert stub.most == 2
    assert stub.alive == 0


def test_a_thread_waits_while_another_reads_from_the_last_handle_allowed() -> None:
    """One handle is the limit: the second thread gets its own when the first one is done."""
    stub = Stub()
    begun, go_on = threading.Event(), threading.Event()
    files = stub.files(5, 1)
    files._fill = slow_fill(stub, begun, go_on, [])
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(read, files, [0, 0])
        assert begun.wait(60)
        second = pool.submit(read, files, [1])
        with pytest.raises(TimeoutError):
            second.result(0.05)
        go_on.set()
        assert first.result(60) == [0, 0]
        assert second.result(60) == [1]
    assert stub.most == 1


def test_a_wait_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_open_files, "WAIT_SECONDS", 0.05)
    stub = Stub()
    begun, go_on = threading.Event(), threading.Event()
    files = stub.files(5, 1)
    files._fill = slow_fill(stub, begun, go_on, [])
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(read, files, [0, 0])
        assert begun.wait(60)
        message = (
            r"1 files are open and none was closed for 0\.05 s; the limit is 1\. Raise max_open"
        )
        with pytest.raises(ReadError, match=message):
            read(files, [1])
        go_on.set()
        assert first.result(60) == [0, 0]
    assert read(files, [1]) == [1]


def slow_fill(
    stub: Stub, begun: threading.Event, go_on: threading.Event, alive_during: list[int]
) -> Any:
    """Stub.fill; a thread that finds file 0 open says so, and waits before it reads."""

    def fill(
        values: NDArray[Any],
        sizes: NDArray[np.int64],
        rows: NDArray[np.int64],
        begin: int,
        out: NDArray[Any],
    ) -> int:
        if rows[0, 0] == 0 and values[0]:
            begun.set()
            assert go_on.wait(60)
            alive_during.append(stub.alive)
        return stub.fill(values, sizes, rows, begin, out)

    return fill


def test_errors_of_opening_leave_the_table_in_order() -> None:
    cases: list[tuple[OSError | DamagedFileError, type[Exception], str]] = [
        (
            FileNotFoundError(),
            MissingFileError,
            (
                "directory: the file 7 was committed with 1 bytes and is not there. Restore it "
                "from a copy"
            ),
        ),
        (
            PermissionError(13, "Permission denied"),
            ReadError,
            (
                "directory: the file 7 cannot be opened: Permission denied (errno 13). A symbolic "
                "link or a special file is refused"
            ),
        ),
        (DamagedFileError("as it is"), DamagedFileError, "as it is"),
    ]
    for error, kind, text in cases:
        stub = Stub()
        files = stub.files(9, 3)
        read(files, [1, 2])

        def broken(path: str, size: int, stub: Stub = stub, error: Exception = error) -> Any:
            if path.endswith("7"):
                raise type(error)(*error.args)  # a new one: a traceback keeps handles alive
            return stub.handle(path, size)

        files._open_handle = broken
        for _ in range(2):
            with pytest.raises(kind, match=f"^{re.escape(text)}$"):
                read(files, [3, 7])
            assert stub.alive <= 2
            assert read(files, [1, 2]) == [1, 2]
        assert read(files, [3, 4]) == [3, 4]


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (
            0,
            DamagedFileError,
            (
                "directory: 4, bytes 0 to 1: the file has ended before, it was committed with 1 "
                "bytes and was truncated since it was opened. Restore it from a copy"
            ),
        ),
        (5, ReadError, "directory: 4, bytes 0 to 1: Input/output error (errno 5)"),
    ],
)
def test_errors_of_reading_say_where(number: int, kind: type[Exception], text: str) -> None:
    def broken(*_: Any) -> int:
        raise RangeReadError(1, number)

    files = Stub().files(9, 3)
    files._fill = broken
    with pytest.raises(kind, match=f"^{re.escape(text)}$"):
        read(files, [3, 4])


def test_the_default_limit_leaves_descriptors_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, expected in ((64, 16), (256, 64), (1024, 256), (3, 1), (10**6, MOST_OPEN_FILES)):
        monkeypatch.setattr("resource.getrlimit", lambda _, soft=soft: (soft, soft))
        assert default_limit() == expected
    monkeypatch.setattr("resource.getrlimit", lambda _: (-1, -1))
    assert default_limit() == MOST_OPEN_FILES


MAKERS: list[Callable[[int], IOReader]] = [PosixPreadIO, MmapIO]


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("maker", MAKERS)
def test_hundreds_of_parts_read_by_several_threads(
    maker: Callable[[int], IOReader], limit: int, tmp_path: Path
) -> None:
    """Every window is right, and the descriptors stay few, however the threads push each other."""
    cuts = {shard: [2, 3, 1] for shard in range(100)}
    storage, expected = numpy_stream(tmp_path / "x", PLAIN, cuts, maker(limit))
    threads, length = 4, 5
    before = open_descriptors()
    most: list[int] = []

    def work(seed: int) -> None:
        chosen = random.Random(seed)
        for _ in range(25):
            starts = [chosen.randrange(600 - length) for _ in range(12)]
            windows = reader.elements(np.array(starts), length, 1)["token"]
            for start, window in zip(starts, windows, strict=True):
                assert np.array_equal(window, expected["token"][start : start + length]), seed
            most.append(open_descriptors() - before)

    with storage.sync_reader() as reader, ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    assert len(most) == threads * 25
    in_use = threads * limit + 2 * limit
    listing = threads
    assert max(most) <= in_use + listing
    assert open_descriptors() == before


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("io", [None, PosixPreadIO(1), MmapIO(), MmapIO(2), SeekIO()], ids=repr)
def test_a_thousand_parts_with_64_descriptors(
    io: IOReader | None, threads: int, tmp_path: Path
) -> None:
    cuts = {shard: [1] * 10 for shard in range(100)}
    _, expected = numpy_stream(tmp_path / "x", PLAIN, cuts)
    found, verified, left = in_new_process(
        read_with_few_descriptors, tmp_path / "x", io, 64, threads
    )
    assert found == [expected["token"].tolist()] * threads
    assert verified == 1000
    assert left == 0


def test_a_forked_process_begins_anew() -> None:
    """Another thread holds the lock and the last handle allowed; the child has neither thread."""
    stub = Stub()
    begun, go_on = threading.Event(), threading.Event()
    files = stub.files(5, 1)
    files._fill = slow_fill(stub, begun, go_on, [])
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(read, files, [0])
        assert begun.wait(60)
        with files._closing, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads: the point
            child = os.fork()
            if not child:
                files._fill = stub.fill
                right = read(files, [1, 2, 3, 2]) == [1, 2, 3, 2] and files.open_count() == 1
                files.close()
                os._exit(0 if right and files.open_count() == 0 else 1)
        go_on.set()
        assert future.result(60) == [0]
    deadline = time.monotonic() + 30
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)

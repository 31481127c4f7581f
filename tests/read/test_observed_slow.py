"""Who is slow is named: file, range and thread, while everybody waits and afterwards."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from guideloom import StreamDataset
from guideloom.io import MmapIO, PosixPreadIO, RangeFiles, SeekIO
from guideloom.types import IOFiles, IOReader
from guideloom_format import StreamNumpyFormat, StreamStorage
from guideloom_read.io import ObservedIO, Reading, ReadLog, _pread
from guideloom_read.io._local import open_regular
from read.announce_cases import KINDS, Dataset
from read.observed_cases import SECONDS, Gate, GatedIO
from read.stream_cases import PLAIN, MemoryIO, numpy_stream

kinds = pytest.mark.parametrize("kind", list(KINDS))


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    return {kind: make(tmp_path_factory.mktemp("data") / "x") for kind, make in KINDS.items()}


@kinds
@pytest.mark.parametrize("at", [0, 1, 2, 5])
def test_a_slow_backend_is_named(kind: str, at: int, datasets: dict[str, Dataset]) -> None:
    """File and range that it hangs at, whichever it is, and the thread: now, and afterwards."""
    dataset = datasets[kind]
    directory = str(dataset.storage.directory)
    gate, log = Gate(), ReadLog()
    io = ObservedIO(GatedIO(MemoryIO.of(Path(directory)), gate, at), log)
    with dataset.with_backend(io).sync_reader() as reader:
        assert log.slowest() is None
        thread = threading.Thread(
            target=reader.gather, args=(list(range(1, len(reader))),), name=f"reads {kind}"
        )
        begin = time.perf_counter()
        thread.start()
        assert gate.reached.wait(SECONDS)
        time.sleep(0.05)
        (found,) = log.now()
        name, start, stop = gate.place
        assert found[:4] == (f"reads {kind}", f"{directory}/{name}", start, stop)
        assert 0.05 <= found.seconds <= time.perf_counter() - begin
        text = re.escape(f"{directory}/{name}, bytes {start} to {stop}")
        assert re.match(rf"{text} \(one of {found.ranges} ranges\), 0\.0\d+ s$", str(found))
        (later,) = log.now()
        assert later.seconds > found.seconds
        gate.open.set()
        thread.join(SECONDS)
        assert log.now() == []
        slowest = log.slowest()
        assert slowest is not None
        assert slowest[:5] == found[:5]
        assert slowest.seconds >= found.seconds
        reader.gather([0])
        assert log.slowest() == slowest, "it stays"


def test_a_backend_without_progress_is_named_by_its_first_range() -> None:
    """What is known: the bulk read, and how many ranges it has."""
    log = ReadLog()

    class Files:
        def fill(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
            del rows, out
            (found,) = log.now()
            assert found[1:5] == ("d/b", 3, 7, 2)

        def close(self) -> None:
            pass

    class Session:
        list_names = read_file = file_size = close = None

        def open_files(self, names: Sequence[str], sizes: NDArray[np.int64]) -> IOFiles:
            del names, sizes
            return Files()

    class UserIO:
        def open(self, directory: str) -> Any:
            del directory
            return Session()

    files = ObservedIO(UserIO(), log).open("d").open_files(["a", "b"], np.array([10, 10]))
    files.fill(np.array([[1, 3, 4, 0], [0, 0, 1, 4]]), np.zeros(5, np.uint8))
    slowest = log.slowest()
    assert slowest is not None
    assert slowest[1:5] == ("d/b", 3, 7, 2)


class OwnWay(RangeFiles):
    """A subclass that reads in its own way."""

    def fill(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        out[:] = len(rows)


def test_a_subclass_of_range_files_keeps_its_own_fill() -> None:
    files = OwnWay(lambda *_: b"", ["a"], np.array([10]))
    out = np.zeros(3, np.uint8)
    files.fill_watched(np.zeros((2, 4), dtype=np.int64), out, np.zeros(4, np.int64))
    assert out.tolist() == [2, 2, 2]


def test_the_range_that_took_longest_is_found() -> None:
    naps = {2: 0.03, 4: 0.06}

    def read_range(name: str, offset: int, nbytes: int) -> bytes:
        del name
        time.sleep(naps.get(offset, 0))
        return bytes(nbytes)

    files = RangeFiles(read_range, ["a"], np.array([10]))
    progress = np.zeros(4, np.int64)
    rows = np.array([[0, k, 1, k] for k in range(6)])
    files.fill_watched(rows, np.zeros(6, np.uint8), progress)
    assert progress[:2].tolist() == [6, 4]


@pytest.mark.parametrize("order", [range(9), [8, 7, 6, 0, 1, 2, 3, 4, 5], [6, *range(8)]], ids=str)
@pytest.mark.parametrize("make", [PosixPreadIO, lambda: PosixPreadIO(1), MmapIO, SeekIO])
def test_the_file_that_cannot_be_opened_is_named(
    make: Callable[[], IOReader], order: Sequence[int], tmp_path: Path
) -> None:
    """Of a read that failed, the range that it is at, also while files are opened."""
    numpy_stream(tmp_path / "x", PLAIN, {shard: [4] for shard in range(9)})
    paths = sorted(tmp_path.glob("x/data/*/*.elements"))
    os.truncate(paths[6], 3)
    log = ReadLog()
    storage = StreamStorage(tmp_path / "x", StreamNumpyFormat(PLAIN))
    watched = StreamDataset(storage, 4).with_backend(ObservedIO(make(), log))
    with watched.sync_reader() as reader, pytest.raises(ValueError, match=paths[6].name):
        reader.gather(order)
    slowest = log.slowest()
    assert slowest is not None
    assert slowest[1:5] == (str(paths[6]), 0, 16, 9)


def test_several_threads_at_once_are_all_shown(tmp_path: Path) -> None:
    """Each with its own file; the one that waits longest comes first."""
    numpy_stream(tmp_path / "x", PLAIN, {shard: [4] for shard in range(3)})
    memory = MemoryIO.of(tmp_path / "x")
    log = ReadLog()
    gates = [Gate() for _ in range(3)]
    storage = StreamStorage(tmp_path / "x", StreamNumpyFormat(PLAIN))
    names = [f"number {k}" for k in range(3)]
    readers, threads = [], []
    for k, gate in enumerate(gates):
        io = ObservedIO(GatedIO(memory, gate, 0), log)
        readers.append(StreamDataset(storage, 4).with_backend(io).sync_reader().open())
        threads.append(threading.Thread(target=readers[k].gather, args=([k],), name=names[k]))
        threads[k].start()
        assert gate.reached.wait(SECONDS)
    found = log.now()
    assert [reading.thread for reading in found] == names
    assert [reading.file.rpartition("x/")[2] for reading in found] == [g.place[0] for g in gates]
    for gate, thread, reader in zip(gates, threads, readers, strict=True):
        gate.open.set()
        thread.join(SECONDS)
        reader.close()
    assert log.now() == []
    assert log.totals()[:3] == (3, 3, 48)


@pytest.mark.parametrize("slow", [0, 3, 8])
def test_a_file_that_takes_long_to_open_is_named(
    slow: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is opened, and as the slowest afterwards."""
    numpy_stream(tmp_path / "x", PLAIN, {shard: [4] for shard in range(9)})
    path = str(sorted(tmp_path.glob("x/data/*/*.elements"))[slow])
    log = ReadLog()
    found: list[Reading] = []

    def slowly(name: str, size: int) -> int:
        if name == path:
            time.sleep(0.05)
            found.extend(log.now())
        return open_regular(name, size)

    monkeypatch.setattr(_pread, "open_regular", slowly)
    storage = StreamStorage(tmp_path / "x", StreamNumpyFormat(PLAIN))
    with StreamDataset(storage, 4).with_backend(ObservedIO(None, log)).sync_reader() as reader:
        reader.gather(range(9))
        reader.gather(range(9))
    (during,) = found
    after = log.slowest()
    assert after is not None
    assert during[1:5] == after[1:5] == (path, 0, 16, 9)


def test_a_reading_of_one_range() -> None:
    reading = Reading("main", "d/x", 3, 7, 1, 1.23456)
    assert str(reading) == "d/x, bytes 3 to 7, 1.23 s"

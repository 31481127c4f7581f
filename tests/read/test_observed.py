"""`ObservedIO` and `ReadLog`: same data, same errors, and who is slow is named."""

from __future__ import annotations

import os
import pickle
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guideloom import StreamDataset
from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom.types import IOReader
from guideloom_format import ReadError, StreamNumpyFormat, StreamStorage
from guideloom_read.io import ObservedIO, ObservedRead, Reading, ReadLog, ReadTotals
from read.announce_cases import KINDS, Dataset, NotingIO, plain
from read.observed_cases import SECONDS, Gate, GatedIO
from read.stream_cases import BACKENDS, PLAIN, MemoryIO, numpy_stream

kinds = pytest.mark.parametrize("kind", list(KINDS))


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    return {kind: make(tmp_path_factory.mktemp("data") / "x") for kind, make in KINDS.items()}


@dataclass
class Noted:
    """An observer that keeps everything."""

    reads: list[ObservedRead] = field(default_factory=list)
    running: list[ObservedRead] = field(default_factory=list)

    def began(self, read: ObservedRead) -> None:
        assert read.seconds is None
        assert not read.failed
        self.running.append(read)

    def ended(self, read: ObservedRead) -> None:
        assert read.seconds is not None
        self.running.remove(read)
        self.reads.append(read)


@kinds
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_reads_through_any_backend(
    kind: str, datasets: dict[str, Dataset], data: st.DataObject
) -> None:
    """Same data; and what is told is what the backend got, call by call."""
    dataset = datasets[kind]
    name = data.draw(st.sampled_from(sorted(BACKENDS)), "backend")
    backend = BACKENDS[name](Path(dataset.storage.directory))
    noted, log = Noted(), ReadLog()
    watched = dataset.with_backend(ObservedIO(ObservedIO(backend, noted), log))
    io = NotingIO()
    with dataset.with_backend(io).sync_reader() as expected, watched.sync_reader() as reader:
        assert reader.header == expected.header
        ids = data.draw(st.lists(st.integers(0, len(reader) - 1), max_size=20), "ids")
        for _ in range(2):
            assert plain(reader.gather(ids)) == plain(expected.gather(ids))
            assert plain(reader[ids]) == plain(expected[ids])
    calls = [rows for _, rows in io.calls if rows]
    assert [read.rows.tolist() for read in noted.reads] == calls
    assert noted.running == []
    for read, rows in zip(noted.reads, calls, strict=True):
        assert read.directory == str(dataset.storage.directory)
        assert read.ranges == len(rows)
        assert read.nbytes == sum(row[2] for row in rows)
        places = [(read.names[file], at, at + nbytes) for file, at, nbytes, _ in rows]
        file, start, stop = read.place()
        assert (file.removeprefix(f"{read.directory}/"), start, stop) in places
        assert read.seconds is not None
    totals = log.totals()
    assert totals.reads == len(calls)
    assert totals.ranges == sum(map(len, calls))
    assert totals.nbytes == sum(row[2] for rows in calls for row in rows)
    assert totals.failed == 0
    assert totals.seconds >= 0
    assert log.now() == []
    slowest = log.slowest()
    assert (slowest is None) == (not calls)
    if slowest is not None:
        assert slowest.thread == threading.current_thread().name
        assert os.path.exists(slowest.file)
        assert 0 < slowest.seconds <= totals.seconds


@pytest.mark.parametrize("name", list(BACKENDS))
def test_what_a_backend_can_is_kept(name: str, tmp_path: Path) -> None:
    """Announcing is forwarded where there is somebody to forward it to."""
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "folder").mkdir()
    backend = BACKENDS[name](tmp_path)
    plain_session, session = (
        io.open(str(tmp_path)) for io in (backend, ObservedIO(backend, ReadLog()))
    )
    assert isinstance(ObservedIO(backend, ReadLog()), IOReader)
    assert session.list_names("folder") == plain_session.list_names("folder")
    assert session.read_file("a", 5) == b"12345"
    assert session.file_size("a") == 5
    files, observed = (s.open_files(["a"], np.array([5])) for s in (plain_session, session))
    assert hasattr(files, "announce") == hasattr(observed, "announce") == ("user" not in name)
    observed.fill(np.zeros((0, 4), dtype=np.int64), np.zeros(0, np.uint8))
    observed.close()
    session.close()


@kinds
@pytest.mark.parametrize("make", [PosixPreadIO, MmapIO, SeekIO])
def test_errors_come_out_as_they_are(
    kind: str, make: Callable[[], IOReader], tmp_path: Path
) -> None:
    """Type, text and cause; and they are counted."""
    dataset = KINDS[kind](tmp_path / "x")
    path = max(tmp_path.glob("x/data/*/*"), key=lambda path: path.stat().st_size)
    path.unlink()
    log = ReadLog()
    errors = []
    for io in (make(), ObservedIO(make(), log)):
        with dataset.with_backend(io).sync_reader() as reader:
            with pytest.raises(FileNotFoundError) as raised:
                reader.gather(range(len(reader)))
            errors.append((type(raised.value), str(raised.value), type(raised.value.__cause__)))
    assert errors[0] == errors[1]
    assert log.totals().failed == 1
    assert log.now() == []


def test_an_error_of_a_users_backend_and_an_interrupt(tmp_path: Path) -> None:
    _, expected = numpy_stream(tmp_path / "x", PLAIN, {0: [30, 10], 4: [20]})
    del expected
    for error in (TimeoutError("no answer"), KeyboardInterrupt("now")):
        gate = Gate()
        gate.error = error
        log = ReadLog()
        storage = StreamStorage(tmp_path / "x", StreamNumpyFormat(PLAIN))
        io = ObservedIO(GatedIO(MemoryIO.of(tmp_path / "x"), gate, at=1), log)
        with StreamDataset(storage, 20).with_backend(io).sync_reader() as reader:
            gate.open.set()
            with pytest.raises(type(error), match=str(error)):
                reader.gather([0, 1, 2])
        totals = log.totals()
        assert (totals.reads, totals.failed, totals.nbytes) == (1, 1, 0)
        slowest = log.slowest()
        assert slowest is not None
        assert slowest[1:5] == (f"{tmp_path / 'x'}/{gate.place[0]}", *gate.place[1:], 4)


def test_threads_lose_no_count(datasets: dict[str, Dataset]) -> None:
    threads, reads = 8, 200
    log = ReadLog()
    dataset = datasets["stream"].with_backend(ObservedIO(PosixPreadIO(2), log))
    done = threading.Event()
    seen: list[list[Reading]] = []

    def look() -> None:
        while not done.is_set():
            seen.append(log.now())
            totals = log.totals()
            assert totals.ranges >= totals.reads

    def work(seed: int) -> None:
        for k in range(reads):
            reader.gather([(seed * 31 + k) % len(reader)])

    with dataset.sync_reader() as reader:
        looking = threading.Thread(target=look)
        looking.start()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        done.set()
        looking.join(SECONDS)
    assert log.totals().reads == threads * reads
    assert log.totals().nbytes == threads * reads * 7 * dataset.storage.element_type.itemsize
    assert log.now() == []
    assert seen
    for readings in seen:
        assert len(readings) <= threads
        assert [r.seconds for r in readings] == sorted((r.seconds for r in readings), reverse=True)


def test_pickles(datasets: dict[str, Dataset]) -> None:
    """A copy counts for itself; what cannot be pickled says so."""
    log = ReadLog()
    dataset = datasets["stream"].with_backend(ObservedIO(MmapIO(), log))
    with dataset.sync_reader() as reader:
        reader.gather([0, 1])
        sent = pickle.dumps(dataset)
        assert len(sent) < 10_000
        again = pickle.loads(sent)
        assert again.storage.read_interface.io == MmapIO()
        assert again.storage.read_interface.observer.totals() == ReadTotals(0, 0, 0, 0.0, 0)
        with pickle.loads(pickle.dumps(reader)) as copy:
            assert plain(copy.gather([0, 1])) == plain(reader.gather([0, 1]))
    assert log.totals().reads == 2
    local = Noted()
    local.reads.append(threading.Lock())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(ObservedIO(None, local))


def test_a_forked_process_has_a_log_of_its_own(datasets: dict[str, Dataset]) -> None:
    """Another thread reads and another holds the lock; the child has neither."""
    directory = Path(datasets["stream"].storage.directory)
    gate, log = Gate(), ReadLog()
    io = ObservedIO(GatedIO(MemoryIO.of(directory), gate, 0), log)
    with datasets["stream"].with_backend(io).sync_reader() as reader:
        thread = threading.Thread(target=reader.gather, args=([0],))
        thread.start()
        assert gate.reached.wait(SECONDS)
        with log._slower, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads: the point
            child = os.fork()
            if not child:
                right = False
                try:
                    right = log.now() == [] and log.totals().reads == 0
                    reader.gather([1])
                    right = right and log.totals().reads == 1 and log.now() == []
                finally:
                    os._exit(0 if right else 1)
        assert len(log.now()) == 1
        gate.open.set()
        thread.join(SECONDS)
    deadline = time.monotonic() + SECONDS
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended == (child, 0)
    assert log.totals().reads == 1


def test_what_is_no_backend() -> None:
    for wrong in ("pread", MmapIO, 3):
        with pytest.raises(TypeError, match="expected an instance of a backend"):
            ObservedIO(wrong, ReadLog())  # type: ignore[arg-type]


def test_the_default_backend(datasets: dict[str, Dataset]) -> None:
    log = ReadLog()
    with datasets["stream"].with_backend(ObservedIO(None, log)).sync_reader() as reader:
        reader.gather([0])
    assert log.totals().reads == 1


def test_a_read_error_is_counted(tmp_path: Path) -> None:
    """Also one of the operating system, such as a link where a file was."""
    numpy_stream(tmp_path / "x", PLAIN, {0: [4]})
    path = next(tmp_path.glob("x/data/*/*.elements"))
    path.rename(tmp_path / "copy")
    path.symlink_to(tmp_path / "copy")
    log = ReadLog()
    storage = StreamStorage(tmp_path / "x", StreamNumpyFormat(PLAIN))
    watched = StreamDataset(storage, 4).with_backend(ObservedIO(None, log))
    with watched.sync_reader() as reader, pytest.raises(ReadError, match="symbolic link"):
        reader.gather([0])
    assert log.totals()[:3] == (1, 1, 0)
    assert log.totals().failed == 1

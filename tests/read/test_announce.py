"""`announce` of readers: the data stay the same, and what is announced is what is then read."""

from __future__ import annotations

import itertools
import os
import pickle
import random
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guideloom import DocumentDataset, StreamDataset
from guideloom.types import IOReader
from guideloom_format import DatasetError
from guideloom_read.io import MmapIO, ObservedIO, PosixPreadIO, ReadLog, SeekIO
from read.announce_cases import KINDS, Dataset, NotingIO, open_descriptors, plain
from read.announce_processes import announce_with_few_descriptors
from read.stream_cases import BACKENDS, PLAIN, MemoryIO, numpy_stream
from write.writer_processes import in_new_process

kinds = pytest.mark.parametrize("kind", list(KINDS))


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    return {kind: make(tmp_path_factory.mktemp("data") / "x") for kind, make in KINDS.items()}


@pytest.fixture(scope="module")
def samples(datasets: dict[str, Dataset]) -> dict[str, list[Any]]:
    """Every sample of each dataset, as a batch of one."""
    found = {}
    for kind, dataset in datasets.items():
        with dataset.sync_reader() as reader:
            found[kind] = [plain(reader.gather([k])) for k in range(len(reader))]
    return found


def backend_of(name: str, dataset: Dataset) -> IOReader:
    directory = Path(dataset.storage.directory)
    return ObservedIO(MmapIO(2), ReadLog()) if name == "observed" else BACKENDS[name](directory)


def ids_of(data: st.DataObject, count: int, label: str) -> list[int]:
    return data.draw(st.lists(st.integers(0, count - 1), max_size=40), label)


@kinds
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_ids_through_any_backend(
    kind: str, datasets: dict[str, Dataset], samples: dict[str, list[Any]], data: st.DataObject
) -> None:
    """Announced or not, before and afterwards: the same data, and no descriptor more."""
    dataset = datasets[kind]
    name = data.draw(st.sampled_from([*BACKENDS, "observed"]), "backend")
    before = open_descriptors()
    with dataset.with_backend(backend_of(name, dataset)).sync_reader() as reader:
        for _ in range(data.draw(st.integers(1, 4), "steps")):
            ids = ids_of(data, len(reader), "ids")
            then = data.draw(st.none() | st.just(ids_of(data, len(reader), "then")), "has then")
            held = open_descriptors()
            options = {} if kind == "documents" else {"payloads": data.draw(st.booleans())}
            given_ids = np.array(ids, dtype=np.int64) if data.draw(st.booleans()) else ids
            assert reader.announce(given_ids, then, **options) is None
            if kind == "stream":
                assert open_descriptors() == held, "nothing is opened to stay"
            assert [plain(reader.gather([k])) for k in ids[:5]] == [
                samples[kind][k] for k in ids[:5]
            ]
            assert plain(reader[ids]) == plain([reader[k] for k in ids])
    assert open_descriptors() == before


@kinds
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_what_is_announced_is_what_is_read(
    kind: str, datasets: dict[str, Dataset], data: st.DataObject
) -> None:
    """Every range of a batch was announced; what `then` announces needs no reading."""
    io = NotingIO()
    reader: Any = datasets[kind].with_backend(io).sync_reader()
    with reader:
        parts = len(getattr(reader, "stream", reader)._opened().table)
        ids = ids_of(data, len(reader), "ids")
        then = ids_of(data, len(reader), "then")
        reader.announce(ids)
        read_meanwhile = {tuple(row) for name, rows in io.calls if name == "fill" for row in rows}
        announced = {tuple(row[:3]) for row in io.take("announce")}
        roles = {row[0] // parts for row in read_meanwhile}
        assert roles <= ({"stream": set(), "documents": {1}, "spans": {1}}[kind])
        reader.gather(ids)
        read = {tuple(row) for row in io.take("fill")}
        # A search that has seen the spans before asks for fewer of them.
        read = {row for row in read if kind != "spans" or row[0] // parts != 1}
        assert read <= announced
        if kind != "spans":
            return
        reader.announce([], then, payloads=False)
        calls = list(io.calls)
        assert {name for name, _ in calls} <= {"announce"}
        assert {row[0] // parts for _, rows in calls for row in rows} <= {1}
        io.calls.clear()
        reader.announce(then, payloads=False)
        assert {name for name, _ in io.calls} <= {"announce"}


def test_the_ends_of_documents_are_announced_a_step_before(datasets: dict[str, Dataset]) -> None:
    """What a step reads to find its documents, the step before has announced."""
    io = NotingIO()
    steps = [[3, 1, 4], [15, 9, 2], [6, 5, 29]]
    with datasets["documents"].with_backend(io).sync_reader() as reader:
        ahead: set[tuple[int, ...]] = set()
        for ids, then in itertools.zip_longest(steps, steps[1:]):
            reader.announce(ids, then)
            read = {tuple(row[:3]) for name, rows in io.calls if name == "fill" for row in rows}
            if ahead:
                assert read <= ahead
            ahead |= {tuple(row) for row in io.take("announce")}


@kinds
def test_a_backend_that_cannot_be_told_is_left_alone(
    kind: str, datasets: dict[str, Dataset]
) -> None:
    """Nothing is read to find out what to announce."""
    io = MemoryIO.of(Path(datasets[kind].storage.directory))
    with datasets[kind].with_backend(io).sync_reader() as reader:
        reader.announce([0, 1, 2], [3])
        assert io.log == []
    with datasets[kind].with_backend(ObservedIO(io, ReadLog())).sync_reader() as reader:
        reader.announce([0, 1, 2], [3])
        assert io.log == []


@kinds
@pytest.mark.parametrize("io", [PosixPreadIO(), MmapIO(), SeekIO()], ids=repr)
def test_ids_that_are_not_there(kind: str, io: IOReader, datasets: dict[str, Dataset]) -> None:
    reader = datasets[kind].with_backend(io).sync_reader()
    with pytest.raises(ValueError, match="the reader is not open"):
        reader.announce([0])
    with reader:
        count = len(reader)
        for ids, then in (([0, count], None), ([-1], None)):
            with pytest.raises(IndexError, match=r"is outside \[0, "):
                reader.announce(ids, then)
        with pytest.raises(TypeError):
            reader.announce([0.5])  # type: ignore[list-item]
        if kind != "stream":
            with pytest.raises(IndexError, match=r"is outside \[0, "):
                reader.announce([0], [count])
        assert reader.announce([]) is None
    with pytest.raises(ValueError, match="the reader is not open"):
        reader.announce([0])


def files_of(dataset: Dataset) -> list[Path]:
    directory = Path(dataset.storage.directory)
    return sorted(path for path in directory.glob("data/*/*") if path.suffix != ".crc")


def damages() -> Iterator[tuple[str, Any]]:
    yield "missing", Path.unlink
    yield "truncated", lambda path: os.truncate(path, path.stat().st_size // 2)
    yield "empty", lambda path: os.truncate(path, 0)
    yield "garbage", lambda path: path.write_bytes(b"\xff" * path.stat().st_size)
    yield "zeros", lambda path: path.write_bytes(bytes(path.stat().st_size))


@kinds
@pytest.mark.parametrize("damage", [name for name, _ in damages()])
@pytest.mark.parametrize("io", [PosixPreadIO(), MmapIO(), SeekIO()], ids=repr)
def test_errors_of_the_data_are_left_to_who_reads(
    kind: str, damage: str, io: IOReader, tmp_path: Path
) -> None:
    """Each file in turn: announcing says nothing, and reading says what it says without it."""
    dataset = KINDS[kind](tmp_path / "x").with_backend(io)
    with dataset.sync_reader() as reader:
        everything = list(range(len(reader)))
    for path in files_of(dataset):
        content = path.read_bytes()
        dict(damages())[damage](path)
        errors = []
        for announces in (False, True):
            with dataset.sync_reader() as reader:
                if announces:
                    reader.announce(everything, everything)
                    for k in everything:
                        reader.announce([k], [k])
                try:
                    errors.append(plain(reader.gather(everything)))
                except DatasetError as error:
                    errors.append(f"{type(error)}: {error}")
        assert errors[0] == errors[1], path
        path.write_bytes(content)


@kinds
@pytest.mark.parametrize("io", [PosixPreadIO(1), PosixPreadIO(), MmapIO(2), SeekIO()], ids=repr)
def test_threads_that_announce_beside_threads_that_read(
    kind: str, io: IOReader, datasets: dict[str, Dataset], samples: dict[str, list[Any]]
) -> None:
    before = open_descriptors()
    done = threading.Event()
    announced: list[int] = []

    def announce(seed: int) -> None:
        chosen = random.Random(seed)
        while not done.is_set():
            ids = chosen.choices(range(len(samples[kind])), k=8)
            reader.announce(ids, ids[:3])
            announced.append(seed)

    def read(seed: int) -> None:
        chosen = random.Random(seed)
        for _ in range(60):
            k = chosen.randrange(len(samples[kind]))
            assert plain(reader.gather([k])) == samples[kind][k]

    with datasets[kind].with_backend(io).sync_reader() as reader, ThreadPoolExecutor(4) as pool:
        announcing = [pool.submit(announce, seed) for seed in range(2)]
        reading = [pool.submit(read, seed) for seed in range(2, 4)]
        for future in reading:
            future.result(60)
        done.set()
        for future in announcing:
            future.result(60)
    assert announced
    assert open_descriptors() == before


@pytest.mark.parametrize(
    ("io", "descriptors"),
    [(None, 64), (PosixPreadIO(1), 64), (MmapIO(), 64), (SeekIO(), 64), (None, 256)],
    ids=repr,
)
def test_a_thousand_parts_with_few_descriptors(
    io: IOReader | None, descriptors: int, tmp_path: Path
) -> None:
    """Beside the limit of the backend, one file for each thread that announces."""
    threads = 3
    cuts = {shard: [2] * 10 for shard in range(100)}
    _, expected = numpy_stream(tmp_path / "x", PLAIN, cuts)
    found, most, left = in_new_process(
        announce_with_few_descriptors, tmp_path / "x", io, descriptors, threads
    )
    assert found == [expected["token"].tolist()] * threads
    assert left == 0
    listing, limit = threads, 1 if io == PosixPreadIO(1) else descriptors // 4
    opening = threads * limit  # in tables that other threads still read from
    assert most <= limit + opening + threads + listing


@kinds
def test_a_forked_process_announces(
    kind: str, datasets: dict[str, Dataset], samples: dict[str, list[Any]]
) -> None:
    with datasets[kind].sync_reader() as reader, warnings.catch_warnings():
        reader.announce([0, 1], [2])
        reader.gather([0, 1])
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if not child:
            right = False
            try:
                reader.announce([2, 3], [0])
                right = plain(reader.gather([2])) == samples[kind][2]
            finally:
                os._exit(0 if right else 1)
        assert os.waitpid(child, 0) == (child, 0)


def test_a_dataset_over_another_backend(tmp_path: Path) -> None:
    """The same samples of the same version; the dataset itself stays as it was."""
    first, _ = numpy_stream(tmp_path / "x", PLAIN, {0: [30]})
    cut = StreamDataset(first.at_version(None), 7, 3)
    for dataset in (cut, KINDS["documents"](tmp_path / "y")):
        dataset.storage.consolidate()
        pinned = dataset.at_version(1)
        io = ObservedIO(MmapIO(), ReadLog())
        other = pinned.with_backend(io)
        assert type(other) is type(dataset)
        assert other.storage.read_interface is io
        assert other.storage.version == 1
        assert pinned.storage.read_interface is dataset.storage.read_interface is None
        assert other.with_backend(None).storage.read_interface is None
        with dataset.sync_reader() as expected, other.sync_reader() as reader:
            assert reader.identity() == expected.identity()
            assert plain(reader[:]) == plain(expected[:])
        again = pickle.loads(pickle.dumps(other))
        assert again.storage.version == 1
        with again.sync_reader() as reader:
            assert plain(reader[:]) == plain(dataset.sync_reader().open()[:])
        for wrong in ("mmap", MmapIO):
            with pytest.raises(TypeError, match="expected an instance of a backend"):
                dataset.with_backend(wrong)  # type: ignore[arg-type]
    assert isinstance(dataset, DocumentDataset)

"""`DocumentReader` against a list of bytes, whatever the cut into calls, parts and shards."""

from __future__ import annotations

import itertools
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from format.document_cases import Typed
from format.kind_cases import parts_of_documents, write_documents
from guideloom import DocumentBytesFormat, DocumentDataset, DocumentStorage
from guideloom.io import PosixPreadIO
from guideloom_read import DocumentReader
from read.document_cases import (
    VALUES,
    Commits,
    CountingIO,
    check_batch,
    check_reader,
    commits_of,
    dataset,
    documents_of,
    in_order,
    raw,
    write_commits,
)
from read.stream_cases import BACKENDS, consolidate

numbers = itertools.count()
into_one_folder = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("itemsize", VALUES)
def test_every_document_with_every_backend(itemsize: int, backend: str, tmp_path: Path) -> None:
    storage, expected = dataset(tmp_path / "x", itemsize)
    for consolidated in (False, True):
        if consolidated:
            consolidate(tmp_path / "x")
        storage.read_interface = BACKENDS[backend](tmp_path / "x")
        with storage.sync_reader() as reader:
            assert len(reader) == 30
            check_reader(reader, expected)
            for pair in itertools.product(range(30), repeat=2):
                assert reader.read_many(pair) == [expected[k] for k in pair]


@into_one_folder
@given(data=st.data(), itemsize=st.sampled_from([*VALUES]))
def test_any_documents_and_any_cut(data: st.DataObject, itemsize: int, tmp_path: Path) -> None:
    directory = tmp_path / str(next(numbers))
    commits: Commits = data.draw(commits_of(itemsize), "commits")
    storage = DocumentStorage(directory, Typed(VALUES[itemsize]))
    write_commits(storage, commits, data.draw(st.integers(1, 3), "commits of a writer"))
    expected = in_order(commits)
    if data.draw(st.booleans(), "manifest"):
        consolidate(directory)
    backend = data.draw(st.sampled_from(sorted(BACKENDS)), "backend")
    storage.read_interface = BACKENDS[backend](directory)
    count = len(expected)
    with DocumentDataset(storage).sync_reader() as reader:
        check_reader(reader, expected)
        if count:
            check_batch(reader, expected, data.draw(st.lists(st.integers(0, count - 1)), "ids"))
            start, stop, step = (
                data.draw(st.none() | st.integers(-count - 2, count + 2).filter(bool), "slice")
                for _ in range(3)
            )
            assert reader[start:stop:step] == expected[start:stop:step]


@into_one_folder
@given(data=st.data(), itemsize=st.sampled_from([*VALUES]))
def test_empty_parts_and_shards_are_passed_over(
    data: st.DataObject, itemsize: int, tmp_path: Path
) -> None:
    """Writers leave them out; the format allows them anywhere."""
    parts = st.lists(st.lists(documents_of(itemsize), max_size=3), min_size=1, max_size=3)
    shards = data.draw(st.dictionaries(st.sampled_from([0, 1, 2, 999]), parts, max_size=3))
    directory = tmp_path / str(next(numbers))
    dtype = VALUES[itemsize]
    described = dtype.str if dtype.names is None else [[*one] for one in dtype.descr]
    write_documents(directory, parts_of_documents(shards), described, {"class": "of.a.user"})
    expected = [
        (document, shard) for shard in sorted(shards) for part in shards[shard] for document in part
    ]
    storage = DocumentStorage(directory, Typed(dtype))
    backend = data.draw(st.sampled_from(sorted(BACKENDS)), "backend")
    storage.read_interface = BACKENDS[backend](directory)
    with storage.sync_reader() as reader:
        check_reader(reader, expected)


@pytest.mark.parametrize(
    "documents",
    [
        [],
        [b""],
        [b"", b""],
        [b"", b"x"],
        [b"x", b""],
        [b"", b"x", b""],
        [b"x"],
        [b"x" * 70_000, b""],
    ],
    ids=lambda documents: str([len(document) for document in documents]),
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_tiny_datasets(documents: list[bytes], backend: str, tmp_path: Path) -> None:
    """No documents, and documents without bytes first, last and only."""
    storage = DocumentStorage(tmp_path, DocumentBytesFormat())
    for how in ("append", "extend"):
        write_commits(storage, [[(5, documents, how)]])
    storage.read_interface = BACKENDS[backend](tmp_path)
    with storage.sync_reader() as reader:
        assert len(reader) == 2 * len(documents)
        assert list(reader) == reader[:] == documents * 2
        assert reader.read_many(range(len(reader))) == documents * 2
        assert reader.gather([]).values.shape == (0,)
        assert reader.gather([]).offsets.tolist() == [0]
        assert reader.gather_padded([]).values.shape == (0, 0)
        assert reader.gather_padded([], pad_to=7).values.shape == (0, 7)
        if not documents:
            with pytest.raises(IndexError, match=r"document 0 is outside \[0, 0\)"):
                reader.read(0)


@pytest.mark.parametrize("kind", ["i1", "u1", "<i2", ">i4", "u4", ">i8", "<u8"])
def test_ids_of_every_integer_type(kind: str, tmp_path: Path) -> None:
    storage, expected = dataset(tmp_path / "x")
    with storage.sync_reader() as reader:
        ids = np.array([29, 0, 14, 29], dtype=kind)
        for same in (ids, np.repeat(ids, 2)[::2], list(ids), tuple(ids)):
            assert reader[same] == reader.read_many(same) == [expected[k] for k in (29, 0, 14, 29)]
            assert reader.gather(same).lengths.tolist() == [len(expected[k][0]) for k in ids]
        assert reader.read(ids[0]) == reader[ids[0]] == expected[29]
        if kind[-2] == "i":
            assert reader[np.array([-1, -30, 3], dtype=kind)] == [expected[k] for k in (29, 0, 3)]
            assert reader[ids.dtype.type(-2)] == expected[28]


@pytest.mark.parametrize("limit", [1, 3, None])
def test_many_threads(limit: int | None, tmp_path: Path) -> None:
    """Also with fewer open files than threads."""
    storage, expected = dataset(tmp_path / "x", io=PosixPreadIO(max_open_files=limit))

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            ids = rng.integers(0, 30, 7).tolist()
            assert reader.read_many(ids) == [expected[k] for k in ids]
            assert reader[ids[0]] == expected[ids[0]]
            assert raw(reader.gather(ids).values) == b"".join(expected[k][0] for k in ids)

    with storage.sync_reader() as reader, ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_read_stays_valid_and_is_writable(backend: str, tmp_path: Path) -> None:
    storage, expected = dataset(tmp_path / "x", 2)
    storage.read_interface = BACKENDS[backend](tmp_path / "x")
    reader = storage.sync_reader().open()
    ids = [*range(30), 7, 7]
    ragged, padded = reader.gather(ids), reader.gather_padded(ids)
    documents = reader.read_many(ids)
    reader.close()
    for path in [*(tmp_path / "x").rglob("*.documents"), *(tmp_path / "x").rglob("*.ends")]:
        path.write_bytes(b"")
    assert documents == [expected[k] for k in ids]
    assert [raw(array) for array in ragged.arrays()] == [expected[k][0] for k in ids]
    for array in (ragged.values, ragged.offsets, padded.values, padded.lengths):
        assert array.flags.writeable
        array[...] = 0


@pytest.mark.parametrize("backend", ["pread", "pread, 1 file", "mmap", "seek"])
def test_readers_are_pickled_by_their_description(backend: str, tmp_path: Path) -> None:
    storage, expected = dataset(tmp_path / "x")
    storage.read_interface = BACKENDS[backend](tmp_path / "x")
    with storage.sync_reader() as reader:
        check_reader(reader, expected)
        sent = pickle.dumps((reader, DocumentDataset(storage).sync_reader()))
    assert len(sent) < 2000
    for again in pickle.loads(sent):
        assert type(again) is DocumentReader
        with pytest.raises(ValueError, match="the reader is not open"):
            len(again)
        with again:
            check_reader(again, expected)


def test_at_most_two_ranges_for_a_document_and_two_fills_for_a_batch(tmp_path: Path) -> None:
    """All ends in one `fill`, all bytes in another, and nothing before it is asked for."""
    io = CountingIO()
    storage, expected = dataset(tmp_path / "x", 2, io)
    sizes = [len(document) for document, _ in expected]
    with storage.sync_reader() as reader:
        assert len(reader) == 30
        assert io.take() == []
        for k in range(30):
            assert reader.read(k) == expected[k]
            ends, *rest = io.take()
            assert [(role, size in (8, 16)) for role, _, size in ends] == [("ends", True)]
            assert [[(role, size) for role, _, size in rows] for rows in rest] == [
                [("documents", sizes[k])]
            ] * (sizes[k] > 0)
        for ids in ([*range(30)], [29, 4, 4, 0], [k for k in range(30) if not sizes[k]]):
            for read in (reader.read_many, reader.gather, reader.gather_padded, reader.__getitem__):
                read(ids)
                ends, *rest = io.take()
                assert [role for role, _, _ in ends] == ["ends"] * len(ids)
                assert sum(size for _, _, size in ends) <= 16 * len(ids)
                wanted = [("documents", sizes[k]) for k in ids if sizes[k]]
                assert [(role, size) for role, _, size in itertools.chain(*rest)] == wanted
                assert len(rest) == bool(wanted)
        assert reader.read_many([]) == []
        reader.gather([])
        reader.gather_padded([])
        assert io.take() == []


def test_a_reader_shows_the_dataset_as_it_was_when_opened(tmp_path: Path) -> None:
    storage, expected = dataset(tmp_path / "x")
    with storage.sync_reader() as reader:
        fingerprint = reader.fingerprint
        assert reader.identity() == {"dataset": fingerprint}
        assert re.fullmatch("[0-9a-f]{64}", fingerprint)
        with storage.sync_writer(user={"a": 1}) as writer:
            writer.extend(2, [b"new", b""])
        check_reader(reader, expected)
        assert reader.fingerprint == fingerprint
        with storage.sync_reader() as newer:
            assert len(newer) == 32
            assert newer.fingerprint != fingerprint
            at = [shard for _, shard in expected].index(3)
            assert newer[at : at + 2] == [(b"new", 2), (b"", 2)]


def test_a_dataset_of_documents(tmp_path: Path) -> None:
    storage, expected = dataset(tmp_path / "x")
    samples = DocumentDataset(storage)
    assert samples.storage is storage
    assert repr(samples) == f"DocumentDataset({storage!r})"
    reader = samples.sync_reader()
    assert type(reader) is DocumentReader
    assert repr(reader) == f"DocumentReader({storage!r}), not open"
    with reader:
        assert repr(reader) == f"DocumentReader({storage!r}), 30 documents"
        assert reader.storage is storage
        assert reader.header.kind == "document"
        check_reader(reader, expected)


def test_a_custom_format_decides_what_a_document_is(tmp_path: Path) -> None:
    class Text:
        def pack(self, data: str) -> bytes:
            return data.encode()

        def unpack(self, buffer: memoryview, shard: int) -> str:
            return f"{shard}: {str(buffer, 'utf-8')}"

    storage = DocumentStorage(tmp_path, Text())
    with storage.sync_writer() as writer:
        writer.extend(4, ["é", "", "x" * 1000])
    with storage.sync_reader() as reader:
        found: Any = reader[:]
        assert found == ["4: é", "4: ", "4: " + "x" * 1000]
        assert "4: é" in reader
        assert reader.index("4: ") == 1

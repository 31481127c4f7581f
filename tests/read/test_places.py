"""`places` against what lies in the files: records read as JSON, bytes read with `open`."""

from __future__ import annotations

import itertools
import json
import pickle
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from format.document_cases import Typed
from guideloom import DamagedFileError, DocumentDataset, DocumentStorage, StreamDataset
from guideloom_read._places import Piece, Places, layout_of, places
from read import document_cases, span_cases
from read.place_cases import bytes_at, huge_stream
from read.stream_cases import DTYPES, PACKED, PLAIN, Cuts, numpy_stream

CUTS: Cuts = {0: [3, 1, 4], 2: [1], 3: [5, 9], 70: [2, 6, 5]}
numbers = itertools.count()
into_one_folder = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Item(NamedTuple):
    """An element, or a document: in which part it is, and its number there and in the shard."""

    shard: int
    part: int
    stem: str
    in_part: int
    in_shard: int


def items_of(directory: Path) -> list[Item]:
    """All elements or documents in order, from the commit records."""
    records = [json.loads(path.read_text()) for path in sorted(directory.glob("commits/*.json"))]
    items: list[Item] = []
    for record in sorted(records, key=lambda one: (one["shard"], one["part"])):
        before = sum(item.shard == record["shard"] for item in items)
        items += [
            Item(record["shard"], record["part"], record["stem"], k, before + k)
            for k in range(record["length"])
        ]
    return items


def expected_pieces(items: Sequence[Item], start: int, length: int) -> list[tuple[Item, int]]:
    """The first item of each piece of a window, and how many items it has."""
    window = items[start : start + length]
    runs = [[*run] for _, run in itertools.groupby(window, lambda item: item[:3])]
    return [(run[0], len(run)) for run in runs]


def check_windows(
    found: Places, directory: Path, ids: Sequence[int], length: int, stride: int, size: int
) -> None:
    """Every column, and every piece, against the items."""
    items = items_of(directory)
    per_sample = [expected_pieces(items, k * stride, length) for k in ids]
    pieces = [piece for window in per_sample for piece in window]
    assert len(found) == len(ids)
    assert found.samples.tolist() == list(ids)
    assert found.offsets.tolist() == np.cumsum([0, *map(len, per_sample)]).tolist()
    assert found.shard.tolist() == [item.shard for item, _ in pieces]
    assert found.part.tolist() == [item.part for item, _ in pieces]
    assert found.start.tolist() == [item.in_shard for item, _ in pieces]
    assert found.length.tolist() == [count for _, count in pieces]
    assert found.byte_start.tolist() == [item.in_part * size for item, _ in pieces]
    assert found.nbytes.tolist() == [count * size for _, count in pieces]
    for column in ("samples", "offsets", "shard", "part", "start", "length", "nbytes"):
        assert getattr(found, column).dtype == np.int64
        assert getattr(found, column).ndim == 1
    assert found.byte_start.dtype == np.int64
    names = [f"data/{item.stem}.elements" for item, _ in pieces]
    assert [found.file(k) for k in range(len(pieces))] == names
    assert found.directory == str(directory)
    at = iter(zip(pieces, names, strict=True))
    for k, window in enumerate(per_sample):
        expected = [
            Piece(
                item.shard,
                item.in_shard,
                item.in_shard + count,
                name,
                item.in_part * size,
                (item.in_part + count) * size,
            )
            for (item, count), name in itertools.islice(at, len(window))
        ]
        assert list(found.pieces(k)) == expected
        for most in (0, 1, 2, len(expected), len(expected) + 1):
            assert list(found.pieces(k, most)) == expected[:most]


@into_one_folder
@given(
    cuts=st.dictionaries(
        st.sampled_from([0, 1, 3, 999, 1000, 10**9]),
        st.lists(st.integers(0, 6), max_size=4),
        max_size=4,
    ),
    dtype=st.sampled_from(DTYPES),
    length=st.integers(1, 20),
    stride=st.integers(1, 20),
    data=st.data(),
)
def test_any_cut_of_a_stream(
    tmp_path: Path,
    cuts: Cuts,
    dtype: np.dtype[Any],
    length: int,
    stride: int,
    data: st.DataObject,
) -> None:
    """In shards and parts of any lengths, windows of any length and stride."""
    directory = tmp_path / str(next(numbers))
    storage, elements = numpy_stream(directory, dtype, cuts)
    size = storage.element_type.itemsize
    with StreamDataset(storage, length, stride).sync_reader() as reader:
        ids = list(range(len(reader)))
        if ids:
            ids += data.draw(st.lists(st.sampled_from(ids), max_size=5))
        found = places(reader, ids)
    check_windows(found, directory, ids, length, stride, size)
    for k, sample in enumerate(ids):
        window = elements[sample * stride : sample * stride + length]
        assert bytes_at(directory, found.pieces(k)) == window.tobytes()
    assert found.spans is None


@into_one_folder
@given(cut=span_cases.cuts(), length=st.integers(1, 12), stride=st.integers(1, 12))
def test_any_cut_of_a_stream_with_metadata(
    tmp_path: Path, cut: span_cases.Cut, length: int, stride: int
) -> None:
    """The same, and the spans are those that `gather` gives."""
    directory = tmp_path / str(next(numbers))
    storage, model = span_cases.spans_dataset(directory, cut)
    size = storage.element_type.itemsize
    with StreamDataset(storage, length, stride).sync_reader() as reader:
        ids = list(range(len(reader)))[:40][::-1]
        found = places(reader, ids, payloads=True)
        batch = reader.gather(ids)
        assert places(reader, ids).spans is None
    check_windows(found, directory, ids, length, stride, size)
    for k, sample in enumerate(ids):
        window = model.elements[sample * stride : sample * stride + length]
        assert bytes_at(directory, found.pieces(k)) == window.tobytes()
    spans = found.spans
    assert spans is not None
    assert spans.stream is None
    assert spans.sequence_length == length
    span_cases.check_batch(
        spans._replace(stream=batch.stream), model, [k * stride for k in ids], length
    )


@pytest.mark.parametrize("itemsize", document_cases.VALUES)
@into_one_folder
@given(data=st.data())
def test_any_cut_of_documents(tmp_path: Path, itemsize: int, data: st.DataObject) -> None:
    """Shard, number and bytes of every document; the bytes only if the ends may be read."""
    directory = tmp_path / str(next(numbers))
    form = Typed(document_cases.VALUES[itemsize])
    io = document_cases.CountingIO()
    storage = DocumentStorage(directory, form, io)
    commits = data.draw(document_cases.commits_of(itemsize))
    document_cases.write_commits(storage, commits)
    expected = document_cases.in_order(commits)
    items = items_of(directory)
    assert len(items) == len(expected)
    with DocumentDataset(storage).sync_reader() as reader:
        ids = list(range(len(reader)))
        if ids:
            ids = data.draw(st.lists(st.sampled_from(ids), max_size=8)) + ids
        io.take()
        blind = places(reader, ids, read_ends=False)
        assert io.take() == []
        found = places(reader, ids)
        ends = io.take()
        assert len(ends) == min(len(ids), 1)
        assert all(role == "ends" and count <= 16 for fill in ends for role, _, count in fill)
    for one in (blind, found):
        assert one.samples.tolist() == ids
        assert one.offsets.tolist() == list(range(len(ids) + 1))
        assert one.shard.tolist() == [items[k].shard for k in ids]
        assert one.part.tolist() == [items[k].part for k in ids]
        assert one.start.tolist() == [items[k].in_shard for k in ids]
        assert one.length.tolist() == [1] * len(ids)
        assert one.byte_start.dtype == one.nbytes.dtype == np.int64
        names = [f"data/{items[k].stem}.documents" for k in ids]
        assert [one.file(k) for k in range(len(ids))] == names
    assert blind.byte_start.tolist() == blind.nbytes.tolist() == [-1] * len(ids)
    for k, document in enumerate(ids):
        (piece,) = found.pieces(k)
        assert piece[:4] == blind.pieces(k)[0][:4]
        assert blind.pieces(k)[0][4:] == (-1, -1)
        assert piece.stop == piece.start + 1
        assert piece.shard == expected[document][1]
        assert bytes_at(directory, [piece]) == expected[document][0]


def test_the_picture_of_the_places(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "d", PLAIN, {4: [5, 3], 6: [4]})
    with StreamDataset(storage, 4).sync_reader() as reader:
        found = places(reader, [0, 1, 2])
    assert found.offsets.tolist() == [0, 1, 3, 4]
    assert found.shard.tolist() == [4, 4, 4, 6]
    assert found.part.tolist() == [0, 0, 1, 0]
    assert found.start.tolist() == [0, 4, 5, 0]
    assert found.length.tolist() == [4, 1, 3, 4]


def test_nothing_is_read_for_streams(tmp_path: Path) -> None:
    """The places of what is lost can still be had."""
    directory = tmp_path / "d"
    storage, _ = numpy_stream(directory, PACKED, CUTS)
    with StreamDataset(storage, 5, 2).sync_reader() as reader:
        before = places(reader, range(len(reader)))
        shutil.rmtree(directory)
        after = places(reader, range(len(reader)))
        assert [after.pieces(k) for k in range(len(after))] == [
            before.pieces(k) for k in range(len(before))
        ]


def test_what_was_found_stays(tmp_path: Path) -> None:
    """When the reader is closed, the ids change, or it goes to another process."""
    storage, _ = numpy_stream(tmp_path / "d", PACKED, CUTS)
    ids = np.array([3, 0, 5])
    with StreamDataset(storage, 5, 2).sync_reader() as reader:
        found = places(reader, ids)
        layout = layout_of(reader)
        pieces = [found.pieces(k) for k in range(3)]
    ids[:] = 0
    assert found.samples.tolist() == [3, 0, 5]
    assert [found.pieces(k) for k in range(3)] == pieces
    again = layout.places(np.array([3, 0, 5]))
    assert [again.pieces(k) for k in range(3)] == pieces
    copy = pickle.loads(pickle.dumps(found))
    assert [copy.pieces(k) for k in range(3)] == pieces


def test_a_trillion_elements_in_100_000_parts(tmp_path: Path) -> None:
    """Exact, and in no time."""
    parts, elements = 100_000, 10**12
    storage = huge_stream(tmp_path / "d", parts, elements)
    in_part = elements // parts
    with StreamDataset(storage, 4096).sync_reader() as reader:
        assert len(reader) == elements // 4096
        ids = np.random.default_rng(0).integers(0, len(reader), 10_000)
        ids[:2] = 0, len(reader) - 1
        times = []
        for _ in range(5):
            begun = time.perf_counter()
            one = places(reader, ids[1:2])
            times.append(time.perf_counter() - begun)
        found = places(reader, ids)
        lengths = np.add.reduceat(found.length, found.offsets[:-1])
        assert (lengths == 4096).all()
        first = found.offsets[:-1]
        starts = ids * 4096
        assert (found.shard[first] == starts // in_part // 10).all()
        assert (found.part[first] == starts // in_part % 10).all()
        assert (found.start[first] == starts % (10 * in_part)).all()
        assert (found.byte_start[first] == starts % in_part * 4).all()
        assert one.pieces(0)[-1].file == "data/9999-9.elements"
    assert min(times) < 0.005, times


# What is refused.


def test_a_reader_that_is_not_open_is_named(tmp_path: Path) -> None:
    stream, _ = numpy_stream(tmp_path / "s", PLAIN, CUTS)
    documents, _ = document_cases.dataset(tmp_path / "d")
    for reader in (
        StreamDataset(stream, 3).sync_reader(),
        DocumentDataset(documents).sync_reader(),
    ):
        with pytest.raises(ValueError, match=r"^the reader is not open; "):
            places(reader, [0])
        with reader:
            assert len(places(reader, [0])) == 1
        with pytest.raises(ValueError, match=r"^the reader is not open; "):
            places(reader, [0])


def test_readers_without_samples_are_refused(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "s", PLAIN, CUTS)
    with storage.sync_reader() as reader:
        other: Any
        for other in (reader, storage, StreamDataset(storage, 3), None, 5):
            with pytest.raises(
                TypeError, match=rf"^reader is {type(other).__name__}; expected a reader of samples"
            ):
                places(other, [0])


def test_payloads_need_spans(tmp_path: Path) -> None:
    stream, _ = numpy_stream(tmp_path / "s", PLAIN, CUTS)
    documents, _ = document_cases.dataset(tmp_path / "d")
    for reader in (
        StreamDataset(stream, 3).sync_reader(),
        DocumentDataset(documents).sync_reader(),
    ):
        with reader, pytest.raises(ValueError, match=r"^payloads were asked for, and only a "):
            places(reader, [0], payloads=True)


@pytest.mark.parametrize("kind", ["stream", "documents"])
def test_ids_that_cannot_be(tmp_path: Path, kind: str) -> None:
    reader: Any
    if kind == "stream":
        reader = StreamDataset(numpy_stream(tmp_path / "s", PLAIN, CUTS)[0], 3).sync_reader()
    else:
        reader = DocumentDataset(document_cases.dataset(tmp_path / "d")[0]).sync_reader()
    with reader:
        count = len(reader)
        for bad in (-1, count, 2**62, 2**63 - 1, -(2**63)):
            with pytest.raises(IndexError, match=rf" {bad} at position 1 is outside \[0, "):
                places(reader, [0, bad])
        wrong: Any
        for wrong in ([0.0], np.zeros(0), ["1"], [True], [2**64], 1.5):
            with pytest.raises(TypeError, match=r"^ids has dtype .*; expected integers$"):
                places(reader, wrong)
        with pytest.raises(ValueError, match=r"^ids holds 18446744073709551615; the largest"):
            places(reader, np.array([2**64 - 1], dtype=np.uint64))
        for wrong in ([[0]], 0, np.int64(0)):
            with pytest.raises(ValueError, match=r"^ids has [02] dimensions; expected 1$"):
                places(reader, wrong)
        for kind_of in ("i1", "u1", "u2", "i4", "u8", ">i8"):
            ids: NDArray[Any] = np.array([count - 1, 0, 1]).astype(kind_of)
            found = places(reader, ids)
            assert found.samples.tolist() == [count - 1, 0, 1]
            assert found.samples.dtype == np.int64
        empty = places(reader, [])
        assert (len(empty), empty.offsets.tolist(), empty.shard.size) == (0, [0], 0)


def test_damaged_ends_are_named(tmp_path: Path) -> None:
    storage, _ = document_cases.dataset(tmp_path / "d")
    for path in (tmp_path / "d").rglob("*.ends"):
        path.write_bytes(b"\xff" * path.stat().st_size)
    with DocumentDataset(storage).sync_reader() as reader:
        assert len(places(reader, [3], read_ends=False)) == 1
        with pytest.raises(DamagedFileError, match=r"\.ends, bytes "):
            places(reader, [3])

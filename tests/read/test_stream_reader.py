"""`StreamReader` against slices of one array, whatever the cuts into shards and parts."""

from __future__ import annotations

import itertools
import re
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guideloom_format import (
    DatasetNotFoundError,
    DocumentBytesFormat,
    DocumentStorage,
    MismatchError,
    StreamNumpyFormat,
    StreamStorage,
)
from guideloom_read import StreamReader
from read.stream_cases import (
    BACKENDS,
    DTYPES,
    PACKED,
    PLAIN,
    Cuts,
    Origins,
    consolidate,
    craft,
    fields,
    is_stream_format,
    numpy_stream,
    shards_of,
    values,
    write_cut,
)

CUTS: Cuts = {0: [3, 1, 4], 2: [1], 3: [5, 9], 70: [2, 6, 5]}

cuts_of_any_kind = st.dictionaries(
    st.integers(0, 2000), st.lists(st.integers(0, 9), max_size=4), max_size=5
)
numbers = itertools.count()
into_one_folder = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def same(found: dict[str, Any], expected: np.ndarray[Any, Any]) -> bool:
    """Whether a sample holds exactly these elements, as arrays of the right type."""
    arrays = fields(expected)
    return found.keys() == arrays.keys() and all(
        found[name].dtype == arrays[name].dtype and np.array_equal(found[name], arrays[name])
        for name in arrays
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_window(dtype: np.dtype[Any], backend: str, tmp_path: Path) -> None:
    """All starts and lengths, so every border between parts and shards is crossed."""
    storage, expected = numpy_stream(tmp_path / "x", dtype, CUTS)
    storage.read_interface = BACKENDS[backend](tmp_path / "x")
    total = len(expected)
    with storage.sync_reader() as reader:
        assert len(reader) == total == 36
        for length in (0, 1, 2, 7, 20, 36):
            starts = list(range(total - length + 1))
            for start, window in zip(starts, reader.read_many(starts, length), strict=True):
                assert same(window, expected[start : start + length])
        assert same(reader.read(5, 30), expected[5:35])


@into_one_folder
@given(cuts=cuts_of_any_kind, data=st.data())
def test_any_cuts_and_windows(cuts: Cuts, data: st.DataObject, tmp_path: Path) -> None:
    directory = tmp_path / str(next(numbers))
    storage, expected = numpy_stream(directory, PACKED, cuts)
    if data.draw(st.booleans(), "manifest"):
        consolidate(directory)
    backend = data.draw(st.sampled_from(sorted(BACKENDS)), "backend")
    storage.read_interface = BACKENDS[backend](directory)
    total = len(expected)
    with storage.sync_reader() as reader:
        assert len(reader) == total
        length = data.draw(st.integers(0, total), "length")
        starts = data.draw(st.lists(st.integers(0, total - length), max_size=20), "starts")
        for start, window in zip(starts, reader.read_many(starts, length), strict=True):
            assert same(window, expected[start : start + length])


@into_one_folder
@given(cuts=cuts_of_any_kind, data=st.data())
def test_a_custom_format_is_told_where_elements_came_from(
    cuts: Cuts, data: st.DataObject, tmp_path: Path
) -> None:
    """Parts of one shard count as one; shards that add nothing to a window are not named."""
    directory = tmp_path / str(next(numbers))
    storage = StreamStorage(directory, is_stream_format(Origins()))
    shards = shards_of(cuts)
    expected = values(np.dtype("<u4"), len(shards))
    write_cut(storage, cuts, expected)
    with storage.sync_reader() as reader:
        length = data.draw(st.integers(0, len(shards)), "length")
        starts = data.draw(st.lists(st.integers(0, len(shards) - length), max_size=20), "starts")
        for start, sample in zip(starts, reader.read_many(starts, length), strict=True):
            stream, shard_lengths, names = sample
            assert np.array_equal(stream, expected[start : start + length])
            runs = [(key, len(list(run))) for key, run in groupby(shards[start : start + length])]
            assert list(zip(names, shard_lengths, strict=True)) == runs
            assert all(type(number) is int for number in [*names, *shard_lengths])


def test_empty_parts_are_passed_over(tmp_path: Path) -> None:
    """Writers leave them out; the format allows them anywhere."""
    sizes = {(0, 0): 0, (0, 1): 3, (0, 2): 0, (1, 0): 0, (2, 0): 2, (2, 1): 0}
    storage = craft(tmp_path / "x", PLAIN, sizes)
    for stem, content in (("0-1", [1, 2, 3]), ("2-0", [4, 5])):
        np.array(content, "<u4").tofile(tmp_path / f"x/data/{stem}.elements")
    for backend in BACKENDS.values():
        storage.read_interface = backend(tmp_path / "x")
        with storage.sync_reader() as reader:
            assert len(reader) == 5
            for start, length in itertools.combinations(range(6), 2):
                window = reader.read(start, length - start)["token"]
                assert window.tolist() == [1, 2, 3, 4, 5][start:length]


@pytest.mark.parametrize(
    ("start", "length"),
    [(0, 37), (36, 1), (35, 2), (37, 0), (-1, 1), (-1, 0), (2**62, 1), (-(2**63), 1), (0, 2**61)],
)
def test_windows_outside_the_stream(start: int, length: int, tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    with storage.sync_reader() as reader:
        for call in (
            lambda: reader.read(start, length),
            lambda: reader.read_many([0, start], length),
            lambda: reader.read_many(np.array([start]), length),
        ):
            with pytest.raises((IndexError, ValueError), match=r"outside \[0, |more than 2\*\*62"):
                call()


def test_a_start_beyond_64_bits_is_outside_the_stream_too(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    with storage.sync_reader() as reader:
        for start in (2**63, 10**30, -(2**63) - 1):
            with pytest.raises((IndexError, ValueError), match="start"):
                reader.read(start, 1)


def test_the_text_of_an_index_error(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    with (
        storage.sync_reader() as reader,
        pytest.raises(
            IndexError,
            match=r"window 34 at position 1 is outside \[0, 34\): the stream has 36 elements, a "
            "window 3, with stride 1",
        ),
    ):
        reader.read_many([33, 34, 99], 3)


@pytest.mark.parametrize(
    ("start", "length"), [(1.0, 2), ("1", 2), (True, 2), (1, 2.0), (1, None), (1, True)]
)
def test_what_is_not_an_integer(start: Any, length: Any, tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    with storage.sync_reader() as reader, pytest.raises(TypeError, match="expected an integer"):
        reader.read(start, length)


def test_kinds_of_integers_and_arrays(tmp_path: Path) -> None:
    storage, expected = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    with storage.sync_reader() as reader:
        for kind in (np.int8, np.uint8, np.int32, np.uint16, np.uint64, np.int64):
            window = reader.read(kind(7), kind(20))  # type: ignore[arg-type]
            assert same(window, expected[7:27])
            windows = reader.read_many(np.array([5, 1], dtype=kind), int(kind(9)))
            assert same(windows[0], expected[5:14])
            assert same(windows[1], expected[1:10])
        strided = np.arange(20)[::4]
        for start, window in zip(strided, reader.read_many(strided, 2), strict=True):
            assert same(window, expected[start : start + 2])
        assert reader.read_many([], 3) == []
        assert reader.read_many((), 3) == []
        with pytest.raises(TypeError, match="starts has dtype float64; expected integers"):
            reader.read_many(np.array([1.0]), 3)
        with pytest.raises(TypeError, match="starts has dtype bool; expected integers"):
            reader.read_many([True], 3)
        with pytest.raises(ValueError, match="2 dimensions; expected 1"):
            reader.read_many(np.zeros((2, 2), dtype=np.int64), 3)


def test_what_was_read_stays_valid_and_is_writable(tmp_path: Path) -> None:
    for name, backend in BACKENDS.items():
        storage, expected = numpy_stream(tmp_path / name, PACKED, CUTS)
        storage.read_interface = backend(tmp_path / name)
        reader = storage.sync_reader().open()
        windows = reader.read_many([0, 1, 20], 15)
        reader.close()
        for path in (tmp_path / name).rglob("*.elements"):
            path.write_bytes(b"")
        for start, window in zip([0, 1, 20], windows, strict=True):
            assert same(window, expected[start : start + 15])
            for values_of in window.values():
                assert values_of.flags.writeable
                values_of[...] = 0
        assert same(windows[1], np.zeros(15, PACKED)), "a window shares memory with another"


def test_a_reader_that_is_not_open(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    reader = StreamReader(storage)
    for _ in range(2):
        for call in (
            lambda: len(reader),
            lambda: reader.read(0, 1),
            lambda: reader.read_many([0], 1),
            lambda: reader.fingerprint,
            lambda: reader.header,
            lambda: reader.elements([0], 1, 1),
            lambda: reader.windows(1, 1),
        ):
            with pytest.raises(ValueError, match="the reader is not open; use it in a with block"):
                call()
        assert reader.open() is reader.open()
        assert len(reader) == 36
        reader.close()
        reader.close()


def test_a_reader_shows_the_dataset_as_it_was_when_opened(tmp_path: Path) -> None:
    storage, expected = numpy_stream(tmp_path / "x", PLAIN, {0: [4], 1: [5]})
    with storage.sync_reader() as reader:
        fingerprint = reader.fingerprint
        with storage.sync_writer() as writer:
            writer.append(0, {"token": np.arange(7)})
            writer.append(9, {"token": np.arange(7)})
        assert len(reader) == 9
        assert reader.fingerprint == fingerprint
        assert same(reader.read(0, 9), expected)
        with storage.sync_reader() as newer:
            assert len(newer) == 23
            assert newer.fingerprint != fingerprint
            tokens = newer.read(0, 23)["token"].tolist()
            old = expected["token"].tolist()
            assert tokens == [*old[:4], *range(7), *old[4:], *range(7)]


def test_the_fingerprint_is_that_of_the_content_and_not_of_the_manifest(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    with storage.sync_reader() as reader:
        before = reader.fingerprint
    consolidate(tmp_path / "x")
    with storage.sync_reader() as reader:
        assert reader.fingerprint == before
        assert re.fullmatch("[0-9a-f]{64}", before)


def test_an_empty_dataset(tmp_path: Path) -> None:
    for consolidated in (False, True):
        storage, _ = numpy_stream(tmp_path / str(consolidated), PACKED, {})
        if consolidated:
            consolidate(tmp_path / str(consolidated))
        with storage.sync_reader() as reader:
            assert len(reader) == 0
            assert same(reader.read(0, 0), np.empty(0, PACKED))
            with pytest.raises(IndexError, match=r"outside \[0, 0\): the stream has 0 elements"):
                reader.read(0, 1)


def test_no_dataset(tmp_path: Path) -> None:
    storage = StreamStorage(tmp_path / "nowhere", StreamNumpyFormat(PLAIN))
    with pytest.raises(
        DatasetNotFoundError,
        match=re.escape(
            f"{tmp_path / 'nowhere'} holds no dataset: the file guideloom.json is not there. Check "
            "the path; a writer creates the file when it is opened"
        ),
    ):
        storage.sync_reader().open()


def test_opened_as_something_else(tmp_path: Path) -> None:
    numpy_stream(tmp_path / "x", PLAIN, CUTS)
    other = StreamStorage(tmp_path / "x", StreamNumpyFormat([("token", "<i4")]))
    with pytest.raises(
        MismatchError, match=re.escape("[['token', '<u4']], it was opened with a storage format")
    ):
        other.sync_reader().open()
    with pytest.raises(MismatchError, match="kind 'stream', it was opened as 'document'"):
        DocumentStorage(tmp_path / "x", DocumentBytesFormat()).sync_reader().open()

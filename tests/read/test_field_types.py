"""Fields of any type, aligned with each other: what was written is read field by field, bit by bit.

Tokens with a loss mask, concepts for each token, half floats and what else a stream can hold.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import guideloom
from format.dtype_cases import dtypes
from format.field_cases import (
    EXTENSIONS,
    any_bits,
    assert_same_bits,
    big_endian,
    every_value,
    field_dtypes,
    laid_out,
    layouts,
)
from guideloom import (
    DocumentBytesFormat,
    DocumentNumpyFormat,
    DocumentStorage,
    MissingPackageError,
    StreamDataset,
    StreamNumpyFormat,
    StreamSpansFormat,
    StreamStorage,
    StreamWithMetaStorage,
    UnsupportedFormatError,
)
from guideloom_format import Header
from guideloom_write import DocumentWriter, StreamWithMetaWriter, StreamWriter
from write.faulty_files import Watched

numbers = itertools.count()
into_one_folder = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
each_kind = pytest.mark.parametrize("kind", ["stream", "spans"])
Fields = Mapping[str, NDArray[Any]]
Storage = StreamStorage | StreamWithMetaStorage

ALIGNED = np.dtype([("tokens", "<u4"), ("loss", "?")])  # 5 bytes
CONCEPTS = np.dtype(
    [("tokens", "<u2"), ("loss", "?"), ("concepts", "<u4", (3,)), ("weights", ml_dtypes.bfloat16)]
)


def storage_of(kind: str, directory: Path, dtype: Any) -> Storage:
    if kind == "stream":
        return StreamStorage(directory, StreamNumpyFormat(dtype))
    return StreamWithMetaStorage(directory, StreamSpansFormat(dtype, DocumentBytesFormat()))


def write(storage: Storage, parts: list[Fields]) -> None:
    """Deal the parts to two shards; every second append is committed by itself."""
    plain = isinstance(storage, StreamStorage)
    writer = (StreamWriter if plain else StreamWithMetaWriter)(storage, files=Watched())
    with writer:
        for number, part in enumerate(parts):
            size = len(next(iter(part.values())))
            spans = ([size], [b"payload"])
            writer.append(number % 2, part if plain else (part, *spans))
            if number % 4 > 1:
                writer.commit()


def in_order(parts: list[Any]) -> list[Any]:
    """As they lie in the stream: those of shard 0 first."""
    return [*parts[::2], *parts[1::2]]


def given_as(
    values: NDArray[Any], fields: Mapping[str, Any], orders: list[bool], layout: str
) -> Fields:
    """The fields of records as arrays of their own, in some byte order and layout."""
    data = {}
    for (name, (base, shape)), swapped in zip(
        fields.items(), itertools.cycle(orders), strict=False
    ):
        column = np.empty((len(values), *shape), dtype=big_endian(base) if swapped else base)
        column[...] = values[name]
        data[name] = laid_out(column, layout)
    return data


def check(found: Any, expected: Any, fields: Mapping[str, Any]) -> None:
    """The fields of a sample or batch against records of the same shape."""
    if hasattr(found, "stream"):
        found = found.stream
    assert list(found) == list(fields)
    for name, (base, shape) in fields.items():
        array = found[name]
        assert type(array) is np.ndarray
        assert array.dtype == base
        assert array.shape == (*expected.shape, *shape)
        assert array.flags.carray  # contiguous, aligned, writable
        assert_same_bits(array, expected[name])


def empty_out(fields: Mapping[str, Any], *lead: int) -> dict[str, NDArray[Any]]:
    return {name: np.empty((*lead, *shape), base) for name, (base, shape) in fields.items()}


def windows(records: NDArray[Any], starts: Any, length: int) -> NDArray[Any]:
    rows = np.asarray(starts, dtype=np.int64)[:, None] + np.arange(length)
    return records[rows]


# Writing and reading


@each_kind
@into_one_folder
@given(
    dtype=field_dtypes(),
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    orders=st.lists(st.booleans(), min_size=4, max_size=4),
    layout=layouts,
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_any_fields_by_every_way(
    kind: str,
    dtype: np.dtype[Any],
    sizes: list[int],
    orders: list[bool],
    layout: str,
    seed: int,
    data: st.DataObject,
    tmp_path: Path,
) -> None:
    """Any types, byte order and memory layout; one at a time, many, stacked, and into arrays."""
    storage = storage_of(kind, tmp_path / str(next(numbers)), dtype)
    fields = StreamNumpyFormat(dtype).fields()
    rng = np.random.default_rng(seed)
    parts = [any_bits(dtype, (size,), rng) for size in sizes]
    write(storage, [given_as(part, fields, orders, layout) for part in parts])
    records = np.concatenate(in_order(parts))
    total = len(records)
    with storage.sync_reader() as reader:
        assert len(reader) == total
        check(reader.read(0, total), records, fields)
        length = data.draw(st.integers(0, total), "length")
        starts = data.draw(st.lists(st.integers(0, total - length), max_size=4), "starts")
        for found, start in zip(reader.read_many(starts, length), starts, strict=True):
            check(found, records[start : start + length], fields)
    length = data.draw(st.integers(1, max(total, 1)), "sequence_length")
    stride = data.draw(st.integers(1, 4), "stride")
    with StreamDataset(storage, length, stride).sync_reader() as samples:
        count = len(samples)
        ids = data.draw(st.lists(st.integers(0, count - 1), max_size=4) if count else st.just([]))
        expected = windows(records, stride * np.array(ids, np.int64), length)
        for k, number in enumerate(ids):
            check(samples[number], expected[k], fields)
        for found, window in zip(samples[np.array(ids, np.int64)], expected, strict=True):
            check(found, window, fields)
        check(samples.gather(ids), expected, fields)
        out = empty_out(fields, len(ids), length)
        arrays = dict(out)
        batch = samples.gather(ids, out=dict(reversed(out.items())))
        stream = batch if kind == "stream" else batch.stream
        assert all(stream[name] is out[name] is arrays[name] for name in fields)
        check(out, expected, fields)


@each_kind
@pytest.mark.parametrize("dtype", EXTENSIONS, ids=str)
def test_every_value_of_an_extension_type(kind: str, dtype: np.dtype[Any], tmp_path: Path) -> None:
    """Alone, beside a field that shifts it to odd places, and as pairs."""
    values = every_value(dtype)
    pairs = values.reshape(-1, 2)
    forms: list[tuple[Any, Fields]] = [
        ([("x", dtype)], {"x": values}),
        ([("odd", "u1"), ("x", dtype)], {"odd": np.ones(len(values), "u1"), "x": values}),
        ([("x", dtype, (2,))], {"x": pairs}),
    ]
    for number, (fields, data) in enumerate(forms):
        storage = storage_of(kind, tmp_path / str(number), np.dtype(fields))
        write(storage, [data])
        length = len(data["x"]) // 2
        with StreamDataset(storage, length).sync_reader() as samples:
            batch = samples.gather([1, 0, 1])
            found = (batch if kind == "stream" else batch.stream)["x"]
        assert found.dtype == dtype
        assert_same_bits(found, data["x"].reshape(2, length, *data["x"].shape[1:])[[1, 0, 1]])


@each_kind
@pytest.mark.parametrize("dtype", [ALIGNED, CONCEPTS, CONCEPTS[["weights"]]], ids=str)
def test_fields_do_not_share_memory(kind: str, dtype: np.dtype[Any], tmp_path: Path) -> None:
    """Whoever writes into one array changes no other, of this sample or of another."""
    dtype = np.dtype([(name, dtype[name]) for name in dtype.names or ()])
    storage = storage_of(kind, tmp_path, dtype)
    records = any_bits(dtype, (12,), np.random.default_rng(0))
    write(storage, [{name: records[name] for name in dtype.names or ()}])
    with StreamDataset(storage, 4, 2).sync_reader() as samples:
        batch = samples.gather([0, 1, 1])
        found = [batch, *samples[:4]]
    arrays = [
        array
        for one in found
        for array in (one if kind == "stream" else one.stream).values()
    ]  # fmt: skip
    before = [array.tobytes() for array in arrays]
    for k, array in enumerate(arrays):
        array.view(np.uint8)[...] = 255 - array.view(np.uint8)
        for j, other in enumerate(arrays):
            assert (other.tobytes() == before[j]) == (j > k)


@each_kind
def test_the_file_is_an_array_of_records(kind: str, tmp_path: Path) -> None:
    """Packed, little-endian, the bits of bfloat16 as uint16: NumPy reads it without help."""
    stored = np.dtype(
        [("tokens", "<u2"), ("loss", "?"), ("concepts", "<u4", (3,)), ("weights", "<u2")]
    )
    records = any_bits(stored, (50,), np.random.default_rng(1))
    typed = {name: records[name] for name in stored.names or ()}
    typed["weights"] = records["weights"].astype("u2").view(ml_dtypes.bfloat16)
    write(storage_of(kind, tmp_path, CONCEPTS), [typed])
    (path,) = tmp_path.glob("data/**/*.elements")
    assert stored.itemsize == 17
    assert np.fromfile(path, stored).tobytes() == records.tobytes()


# Arrays to fill that do not fit


def misfits(array: NDArray[Any]) -> Iterator[Any]:
    """Arrays that cannot take the values as they are, most of them of the same size in bytes."""
    bits = np.uint8 if array.dtype.itemsize == 1 else np.dtype(f"V{array.dtype.itemsize}")
    yield np.empty(array.shape, bits if array.dtype != bits else np.int8)
    if array.dtype.itemsize > 1:
        yield np.empty(array.shape, big_endian(array.dtype))
    for dtype in EXTENSIONS:
        if dtype.itemsize == array.dtype.itemsize and dtype != array.dtype:
            yield np.empty(array.shape, dtype)
    for shape in (array.shape[1:], (*array.shape, 1), (array.shape[0] + 1, *array.shape[1:])):
        yield np.empty(shape, array.dtype)
    yield np.empty((2, *array.shape), array.dtype).swapaxes(0, -1)[..., 0]
    frozen = array.copy()
    frozen.flags.writeable = False
    yield frozen
    yield np.ma.masked_array(array)
    yield array.tolist()
    yield None


@each_kind
@pytest.mark.parametrize(
    "dtype",
    [ALIGNED, CONCEPTS, *(np.dtype([("x", dtype)]) for dtype in ["<u2", *EXTENSIONS])],
    ids=str,
)
def test_out_must_fit_every_field(kind: str, dtype: np.dtype[Any], tmp_path: Path) -> None:
    storage = storage_of(kind, tmp_path, dtype)
    fields = StreamNumpyFormat(dtype).fields()
    write(storage, [{name: np.zeros((9, *shape), base) for name, (base, shape) in fields.items()}])
    with StreamDataset(storage, 3).sync_reader() as samples:
        for name in fields:
            out = empty_out(fields, 2, 3)
            for other in out.values():
                other.view(np.uint8)[...] = 1
            for misfit in misfits(out[name]):
                with pytest.raises(
                    TypeError, match=rf"^out\['{name}'\] is .*; expected a writable "
                ):
                    samples.gather([0, 1], out={**out, name: misfit})
            assert all((other.view(np.uint8) == 1).all() for other in out.values())
        with pytest.raises(TypeError, match="out has the fields"):
            samples.gather([0, 1], out={**empty_out(fields, 2, 3), "more": np.empty(1)})


# guideloom.open


def unsigned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype([(name, f"<u{dtype[name].itemsize}") for name in dtype.names or ()])


def with_views(directory: Path, views: Mapping[str, Any]) -> None:
    """Let the header of a dataset name other types."""
    path = directory / "guideloom.json"
    header = Header.decode(path.read_bytes())
    parameters: Any = header.storage_format["parameters"]
    parameters["views"] = dict(views)
    path.write_bytes(header.encode())


@each_kind
@pytest.mark.parametrize("dtype", EXTENSIONS, ids=str)
def test_opening_finds_the_types(kind: str, dtype: np.dtype[Any], tmp_path: Path) -> None:
    fields = np.dtype([("n", "<u2"), ("x", dtype, (2,))])
    values = every_value(dtype).reshape(-1, 2)
    write(storage_of(kind, tmp_path, fields), [{"n": np.arange(len(values)), "x": values}])
    opened = guideloom.open(tmp_path)
    assert type(opened) is (StreamStorage if kind == "stream" else StreamWithMetaStorage)
    with opened.sync_reader() as reader:
        sample = reader.read(0, len(values))
    found = (sample if kind == "stream" else sample.stream)["x"]
    assert found.dtype == dtype
    assert_same_bits(found, values)


@each_kind
@pytest.mark.parametrize("unreadable", ["not installed", "unknown type"])
def test_what_cannot_be_opened_can_be_read_as_bits(
    kind: str, unreadable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The errors say: pass a storage format with unsigned integers. It works."""
    dtype = np.dtype([("x", ml_dtypes.bfloat16), ("y", ml_dtypes.float8_e5m2)])
    values = {name: np.arange(9).astype(dtype[name]) for name in ("x", "y")}
    write(storage_of(kind, tmp_path, dtype), [values])
    expected: type[Exception] = MissingPackageError
    text = r"holds fields of types \['bfloat16', 'float8_e5m2'\], .* pip install ml_dtypes"
    if unreadable == "not installed":
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    else:
        expected = UnsupportedFormatError
        text = "field 'y' is said to hold 'float8_e9m9', which is not a type of ml_dtypes"
        with_views(tmp_path, {"x": "bfloat16", "y": "float8_e9m9"})
    with pytest.raises(expected, match=f"{tmp_path.name}.*{text}"):
        guideloom.open(tmp_path)
    form = storage_of(kind, tmp_path, unsigned(dtype)).storage_format
    with guideloom.open(tmp_path, form).sync_reader() as reader:
        sample = reader.read(2, 3)
        found = sample if kind == "stream" else sample.stream
        for name in ("x", "y"):
            bits = values[name][2:5].view(f"u{dtype[name].itemsize}")
            assert found[name].tolist() == bits.tolist()


# Documents


@into_one_folder
@given(
    dtype=dtypes,
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    swapped=st.booleans(),
    layout=layouts,
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_documents_of_any_type(
    dtype: np.dtype[Any],
    sizes: list[int],
    swapped: bool,
    layout: str,
    seed: int,
    data: st.DataObject,
    tmp_path: Path,
) -> None:
    """Records with fields, too. Documents are whole arrays; their fields are views."""
    storage = DocumentStorage(tmp_path / str(next(numbers)), DocumentNumpyFormat(dtype))
    rng = np.random.default_rng(seed)
    documents = [any_bits(dtype, (size,), rng) for size in sizes]
    with DocumentWriter(storage, files=Watched()) as writer:
        for number, document in enumerate(documents):
            ordered = document.astype(big_endian(dtype)) if swapped else document
            writer.append(number % 2, laid_out(ordered, layout))
    documents = in_order(documents)
    ids = data.draw(st.lists(st.integers(0, len(documents) - 1), max_size=5))
    with storage.sync_reader() as reader:
        for found in (reader.read_many(ids), reader[ids], reader.gather(ids).arrays()):
            assert len(found) == len(ids)
            for array, number in zip(found, ids, strict=True):
                assert array.dtype == dtype.newbyteorder("<")
                assert array.flags.carray
                assert_same_bits(array, documents[number])
        padded = reader.gather_padded(ids, 4)
        assert padded.values.shape == (len(ids), 4)
        for row, size, number in zip(*padded, ids, strict=True):
            assert_same_bits(row[:size], documents[number])

"""Fields of any type, aligned with each other: what was written is read field by field, bit by bit.

Tokens with a loss mask, concepts for each token, half floats and what else a stream can hold.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

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
from guideloom import DocumentNumpyFormat, DocumentStorage, StreamDataset, StreamNumpyFormat
from guideloom_write import DocumentWriter
from read.field_streams import (
    ALIGNED,
    CONCEPTS,
    Fields,
    check,
    each_kind,
    empty_out,
    fields_of,
    given_as,
    in_order,
    storage_of,
    write,
)
from write.faulty_files import Watched

numbers = itertools.count()
into_one_folder = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def windows(records: NDArray[Any], starts: Any, length: int) -> NDArray[Any]:
    rows = np.asarray(starts, dtype=np.int64)[:, None] + np.arange(length)
    found: NDArray[Any] = records[rows]
    return found


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
        stream = fields_of(samples.gather(ids, out=dict(reversed(out.items()))))
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
            found = fields_of(samples.gather([1, 0, 1]))["x"]
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
        for array in fields_of(one).values()
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
        if dtype.names is None and dtype.kind in "SUV":
            return  # text has no number to pad with
        padded = reader.gather_padded(ids, 4)
        assert padded.values.shape == (len(ids), 4)
        for row, size, number in zip(*padded, ids, strict=True):
            assert_same_bits(row[:size], documents[number])

"""Fields of every type that is stored, as tensors: the right type and bits, or an error that helps.

All kinds of data, and a format of a user's own, through the loader. Warnings are errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from format.field_cases import (
    EXTENSIONS,
    any_bits,
    assert_same_bits,
    big_endian,
    every_value,
    field_dtypes,
    laid_out,
    layouts,
    little_endian_bytes,
)
from guideloom import (
    DocumentBytesFormat,
    SpanBatch,
    StatefulDataLoader,
    StreamNumpyFormat,
    StreamSpansFormat,
    StreamStorage,
    StreamWithMetaStorage,
)
from guideloom_torch._collate import to_tensors

from .tensor_cases import KNOWN, TORCH_TYPES, UNKNOWN, check, memory_of

BATCH, LENGTH = 2, 3
COUNT = 4 * BATCH * LENGTH


def rows(values: NDArray[Any], number: int) -> NDArray[Any]:
    """The values of batch `number`."""
    begin = number * BATCH * LENGTH
    return values[begin : begin + BATCH * LENGTH].reshape(BATCH, LENGTH, *values.shape[1:])


# Streams


class Own:
    """A user's format that leaves the batch as it is: structured arrays, of any byte order."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.stream_dtype = dtype.newbyteorder("<")

    def pack(self, data: NDArray[Any]) -> NDArray[Any]:
        return data.astype(self.stream_dtype)

    def unpack(self, stream: NDArray[Any], shard_lengths: Any, shards: Any) -> Any:
        del shard_lengths, shards
        return self.unpack_batch(stream)

    def unpack_batch(self, stream: NDArray[Any]) -> Any:
        return stream.astype(big_endian(self.stream_dtype))


def write_stream(directory: Path, data: dict[str, NDArray[Any]]) -> StreamStorage:
    dtype = np.dtype([(name, values.dtype, values.shape[1:]) for name, values in data.items()])
    storage = StreamStorage(directory, StreamNumpyFormat(dtype))
    with storage.sync_writer() as writer:
        writer.append(0, data)
    return storage


def write_spans(directory: Path, data: dict[str, NDArray[Any]]) -> StreamWithMetaStorage:
    dtype = np.dtype([(name, values.dtype, values.shape[1:]) for name, values in data.items()])
    storage = StreamWithMetaStorage(directory, StreamSpansFormat(dtype, DocumentBytesFormat()))
    with storage.sync_writer() as writer:
        writer.append(0, (data, [COUNT], [b"payload"]))
    return storage


def streams(storage: Any, **options: Any) -> StatefulDataLoader:
    return StatefulDataLoader.from_storage(
        storage, sequence_length=LENGTH, local_batch_size=BATCH, **options
    )


def fields_of(batch: Any) -> Any:
    return batch.stream if isinstance(batch, SpanBatch) else batch


each_writer = pytest.mark.parametrize("write", [write_stream, write_spans])
Write = Callable[[Path, dict[str, NDArray[Any]]], Any]


@each_writer
@pytest.mark.parametrize("shape", [(), (2,), (3, 1)], ids=str)
@pytest.mark.parametrize("dtype", KNOWN, ids=str)
def test_a_field_becomes_a_tensor(
    write: Write, dtype: np.dtype[Any], shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Any bits: signalling NaNs, the largest integers. Alone, and beside a byte."""
    values = any_bits(dtype, (COUNT, *shape), np.random.default_rng(0))
    odd = any_bits(np.dtype("u1"), (COUNT,), np.random.default_rng(1))
    for number, data in enumerate(({"x": values}, {"odd": odd, "x": values})):
        loader = streams(write(tmp_path / str(number), data), num_workers=number)
        batches = [fields_of(batch) for batch in loader]
        assert len(batches) == COUNT // BATCH // LENGTH
        for k, batch in enumerate(batches):
            assert list(batch) == list(data)
            for name, tensor in batch.items():
                check(tensor, rows(data[name], k))


@each_writer
@pytest.mark.parametrize("dtype", UNKNOWN, ids=str)
def test_a_field_that_torch_cannot_hold_is_named(
    write: Write, dtype: np.dtype[Any], tmp_path: Path
) -> None:
    """What the message advises works: a `collate_fn`, here one that converts nothing."""
    values = any_bits(dtype, (COUNT,), np.random.default_rng(0))
    storage = write(tmp_path, {"tokens": np.arange(COUNT), "x": values})
    shown = dtype.newbyteorder("<")
    text = rf"^field 'x' has dtype .*{shown.str[1:] if shown.kind in 'SUV' else shown}"
    if dtype in EXTENSIONS:
        text = f"^field 'x' has dtype {dtype.name}"
    with pytest.raises(TypeError, match=text + ", which torch .*; pass a collate_fn"):
        next(iter(streams(storage)))
    for k, batch in enumerate(streams(storage, collate_fn=list)):
        samples = [sample.stream if hasattr(sample, "stream") else sample for sample in batch]
        found = np.stack([sample["x"] for sample in samples])
        assert found.tobytes() == little_endian_bytes(rows(values, k))


@settings(max_examples=300, deadline=None)
@given(
    dtype=st.sampled_from(KNOWN),
    swapped=st.booleans(),
    shape=st.sampled_from([(0,), (1,), (4,), (3, 2), (1, 1), (2, 0)]),
    layout=layouts,
    seed=st.integers(0, 99),
)
def test_any_layout_of_an_array(
    dtype: np.dtype[Any], swapped: bool, shape: tuple[int, ...], layout: str, seed: int
) -> None:
    """What a format of one's own may return: nothing is refused, and the tensor is writable."""
    values = any_bits(dtype, shape, np.random.default_rng(seed))
    ordered = values.astype(big_endian(dtype)) if swapped else values
    tensor = to_tensors(laid_out(ordered, layout))
    assert tensor.dtype == TORCH_TYPES[dtype.name]
    memory = memory_of(tensor)
    assert memory.flags.writeable
    assert memory.flags.aligned
    assert_same_bits(memory, values)


@settings(max_examples=100, deadline=None)
@given(
    dtype=field_dtypes(),
    shape=st.sampled_from([(), (0,), (1,), (2, 3), (1, 1)]),
    seed=st.integers(0, 99),
)
def test_any_fields_side_by_side(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> None:
    """Nested, padded, of odd sizes, one element only: aligned tensors, or an error with a name."""
    form = StreamNumpyFormat(dtype)
    records = any_bits(form.stream_dtype, (math.prod(shape),), np.random.default_rng(seed))
    batch = form.unpack_batch(records.reshape(shape))
    for found in (batch, records.reshape(shape)):
        expected = batch if found is batch else {name: found[name] for name in dtype.names or ()}
        unknown = [name for name, array in expected.items() if not known(array.dtype)]
        if unknown:
            with pytest.raises(TypeError, match=r"(?s)^field .* has dtype .*, which torch"):
                to_tensors(found)
        else:
            check_tree(to_tensors(found), expected)


def check_tree(tensors: Any, expected: dict[str, NDArray[Any]]) -> None:
    """Tensors for a mapping of arrays, none of which shares memory with another."""
    assert list(tensors) == list(expected)
    bits = {name: little_endian_bytes(array) for name, array in expected.items()}
    for name, tensor in tensors.items():
        assert little_endian_bytes(expected[name]) == bits[name]
        check(tensor, expected[name])
        invert(tensor)


def invert(tensor: Any) -> None:
    """Change every byte."""
    if isinstance(tensor, dict):
        for inner in tensor.values():
            invert(inner)
    else:
        memory = memory_of(tensor)
        raw = 255 - np.frombuffer(memory.tobytes(), dtype=np.uint8)
        memory[...] = raw.view(memory.dtype).reshape(memory.shape)


def known(dtype: np.dtype[Any]) -> bool:
    base = dtype.base
    if base.names is not None:
        return all(known(base[name]) for name in base.names)
    return base.name in TORCH_TYPES


@pytest.mark.parametrize("dtype", [d for d in KNOWN if d not in EXTENSIONS], ids=str)
def test_a_format_of_ones_own_may_give_any_byte_order(dtype: np.dtype[Any], tmp_path: Path) -> None:
    """Also records, which come as a mapping."""
    for number, stored in enumerate((dtype, np.dtype([("odd", "u1"), ("x", dtype, (2,))]))):
        values = any_bits(stored, (COUNT,), np.random.default_rng(0))
        storage = StreamStorage(tmp_path / str(number), Own(stored))
        with storage.sync_writer() as writer:
            writer.append(0, values)
        for k, batch in enumerate(streams(storage)):
            check(batch, rows(values, k))


@each_writer
@pytest.mark.parametrize("workers", [0, 2])
def test_one_element_at_a_time(write: Write, workers: int, tmp_path: Path) -> None:
    """Batches of one element, and empty ones: contiguous whatever their strides."""
    rng = np.random.default_rng(0)
    types = {"tokens": "<u4", "loss": "?", "weight": "<f8", "bits": ml_dtypes.bfloat16}
    data = {name: any_bits(np.dtype(dtype), (COUNT,), rng) for name, dtype in types.items()}
    storage = write(tmp_path, data)
    for rank in range(2):
        loader = StatefulDataLoader.from_storage(
            storage,
            sequence_length=1,
            stride=5,
            rank=rank,
            world_size=2,
            drop_last=False,
            num_workers=workers,
        )
        for number, batch in enumerate(loader):
            begin = 5 * (2 * number + rank)
            for name, tensor in fields_of(batch).items():
                check(tensor, data[name][begin : begin + 1].reshape(-1, 1))


# What the tensors are good for


def test_bits_stored_by_hand_are_viewed(tmp_path: Path) -> None:
    """Without ml_dtypes: uint16 fields, and a view on both sides."""
    numbers = torch.randn(COUNT, dtype=torch.bfloat16)
    bits = numbers.view(torch.uint16).numpy()
    for number, batch in enumerate(streams(write_stream(tmp_path, {"weights": bits}))):
        weights = batch["weights"].view(torch.bfloat16)
        assert torch.equal(weights.reshape(-1), numbers[6 * number : 6 * number + 6])


def test_bfloat16_is_the_number_that_was_written(tmp_path: Path) -> None:
    values = np.linspace(-3, 3, COUNT).astype(ml_dtypes.bfloat16)
    for number, batch in enumerate(streams(write_stream(tmp_path, {"weights": values}))):
        expected = rows(values, number).astype(np.float32).tolist()
        assert batch["weights"].float().tolist() == expected
        assert (2 * batch["weights"]).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [d for d in EXTENSIONS if d.name in TORCH_TYPES], ids=str)
def test_every_value_means_the_same_to_torch(dtype: np.dtype[Any]) -> None:
    values = every_value(dtype)
    converted = to_tensors(values).float().numpy()
    np.testing.assert_array_equal(converted, values.astype(np.float32))


@pytest.mark.parametrize("size", [2, 4, 8])
def test_unsigned_integers_are_converted_as_documented(size: int, tmp_path: Path) -> None:
    """torch.uint16 has few operations; `.long()` has all."""
    largest = min(np.iinfo(f"u{size}").max, np.iinfo("i8").max)
    values = np.arange(COUNT).astype(f"u{size}")
    values[-1] = largest
    batches = list(streams(write_stream(tmp_path, {"tokens": values})))
    tokens = torch.cat([batch["tokens"].long().flatten() for batch in batches])
    assert tokens.tolist() == values.tolist()
    assert (tokens + 0).dtype == torch.int64

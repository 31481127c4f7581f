"""What a batch is: tensors of the right type and shape, of the user's own kind, and for keeps."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from guideloom import StatefulDataLoader, StreamNumpyFormat, StreamStorage
from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom.types import IOReader

from .loader_cases import ids_of, make_loader, sample_id, write_stream

AHEAD = [(0, 0), (4, 0), (4, 3)]  # (prefetch, num_workers)
SAMPLES, LENGTH, BATCH = 6, 5, 2
COUNT = SAMPLES * LENGTH


def _values(dtype: str, shape: tuple[int, ...] = ()) -> NDArray[Any]:
    """The extremes of an integer type among them."""
    values = np.arange(COUNT * int(np.prod(shape))).astype(dtype)
    if values.dtype.kind in "iu":
        values[0], values[-1] = np.iinfo(values.dtype).min, np.iinfo(values.dtype).max
    if values.dtype.kind == "c":
        values *= 1 + 2j
    return values.reshape(COUNT, *shape)


def _write(directory: Path, storage_format: Any, data: Any, shards: int = 2) -> StreamStorage:
    storage = StreamStorage(directory, storage_format)
    with storage.sync_writer() as writer:
        for shard in range(shards):
            part = {name: np.array_split(one, shards)[shard] for name, one in data.items()}
            writer.append(shard, part)
    return storage


def _loader(storage: StreamStorage, *arguments: Any, **options: Any) -> StatefulDataLoader:
    return StatefulDataLoader.from_storage(
        storage, *arguments, sequence_length=LENGTH, local_batch_size=BATCH, **options
    )


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize(
    "dtype, expected",
    [
        ("?", torch.bool),
        ("u1", torch.uint8),
        ("i1", torch.int8),
        ("<u2", torch.uint16),
        ("<i2", torch.int16),
        ("<u4", torch.uint32),
        ("<i4", torch.int32),
        ("<u8", torch.uint64),
        ("<i8", torch.int64),
        ("<f2", torch.float16),
        ("<f4", torch.float32),
        ("<f8", torch.float64),
        ("<c8", torch.complex64),
        ("<c16", torch.complex128),
    ],
)
def test_a_field_becomes_a_tensor(
    tmp_path: Path, dtype: str, expected: torch.dtype, prefetch: int, workers: int
) -> None:
    values = _values(dtype)
    storage = _write(tmp_path / "s", StreamNumpyFormat(np.dtype([("x", dtype)])), {"x": values})
    batches = list(_loader(storage, prefetch=prefetch, num_workers=workers))
    assert len(batches) == SAMPLES // BATCH
    for number, batch in enumerate(batches):
        assert list(batch) == ["x"]
        assert type(batch["x"]) is torch.Tensor
        assert batch["x"].dtype == expected
        assert batch["x"].is_contiguous()
        begin = number * BATCH * LENGTH
        rows = values[begin : begin + BATCH * LENGTH].reshape(BATCH, LENGTH)
        assert batch["x"].tolist() == rows.tolist()


@pytest.mark.parametrize(
    "fields",
    [
        [("tokens", "<u4"), ("loss", "?")],  # 5 bytes
        [("loss", "?"), ("tokens", "<u2"), ("weight", "<f4")],  # 7 bytes, not aligned
        [("x", "<f4", (2, 3))],
        [("byte", "u1"), ("x", "<i8", (2,)), ("y", "<u2", (1, 1, 2))],
    ],
)
@pytest.mark.parametrize("workers", [0, 3])
def test_several_fields_packed_oddly_and_fields_with_a_shape(
    tmp_path: Path, fields: list[Any], workers: int
) -> None:
    dtype = np.dtype(fields)
    data = {name: _values(kind, *shape) for name, kind, *shape in fields}
    storage = _write(tmp_path / "s", StreamNumpyFormat(dtype), data)
    for number, batch in enumerate(_loader(storage, num_workers=workers)):
        assert list(batch) == list(data)
        begin = number * BATCH * LENGTH
        for name, values in data.items():
            rows = values[begin : begin + BATCH * LENGTH]
            assert batch[name].shape == (BATCH, LENGTH, *values.shape[1:])
            assert batch[name].is_contiguous()
            assert batch[name].tolist() == rows.reshape(batch[name].shape).tolist()


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize("backend", [PosixPreadIO(), MmapIO(), SeekIO()])
def test_a_batch_is_the_callers_own(
    tmp_path: Path, backend: IOReader, prefetch: int, workers: int
) -> None:
    """Writing into it changes no other batch, and it stays when loader and files are gone."""
    directory = write_stream(tmp_path / "stream", 8)
    loader = make_loader(
        directory, backend=backend, local_batch_size=2, prefetch=prefetch, num_workers=workers
    )
    kept = []
    for epoch in range(2):
        for number, batch in enumerate(loader):
            assert ids_of(batch) == [2 * number, 2 * number + 1]
            if epoch == 0:
                batch["tokens"].fill_(7)
            kept.append(batch)
    loader.close()
    shutil.rmtree(directory)
    del loader
    gc.collect()
    assert all(batch["tokens"].tolist() == [[7] * 3] * 2 for batch in kept[:4])
    assert [ids_of(batch) for batch in kept[4:]] == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize("dtype, shown", [("S5", r"\|S5"), ("<U2", "<U2"), ("V3", r"\|V3")])
def test_a_dtype_unknown_to_torch_is_named_with_its_field(
    tmp_path: Path, dtype: str, shown: str, prefetch: int, workers: int
) -> None:
    fields = np.dtype([("tokens", "<u2"), ("name", dtype)])
    data = {"tokens": np.zeros(COUNT, "<u2"), "name": np.zeros(COUNT, dtype)}
    storage = _write(tmp_path / "s", StreamNumpyFormat(fields), data)
    loader = _loader(storage, prefetch=prefetch, num_workers=workers)
    text = f"^field 'name' has dtype {shown}, which torch .* does not have; pass a collate_fn that"
    with pytest.raises(TypeError, match=text):
        next(iter(loader))
    assert loader.position == 0
    converted = _loader(storage, lambda samples: [sample["tokens"] for sample in samples])
    assert len(list(converted)) == 3


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize("drop_last", [False, True])
def test_collate_fn_gets_a_list_of_samples_in_order(
    tmp_path: Path, drop_last: bool, prefetch: int, workers: int
) -> None:
    """What it returns is the batch, whatever it is; an empty batch is an empty list."""
    directory = write_stream(tmp_path / "stream", 9)

    def collate(samples: list[dict[str, NDArray[Any]]]) -> object:
        assert type(samples) is list
        for sample in samples:
            assert list(sample) == ["tokens"]
            assert sample["tokens"].shape == (3,)
        return tuple(sample_id(sample) for sample in samples) or "nothing"

    found = [
        list(
            make_loader(
                directory,
                collate,
                world_size=2,
                rank=rank,
                local_batch_size=2,
                drop_last=drop_last,
                prefetch=prefetch,
                num_workers=workers,
            )
        )
        for rank in range(2)
    ]
    last: list[list[object]] = [[], []] if drop_last else [[(8,)], ["nothing"]]
    assert found == [[(0, 2), (4, 6), *last[0]], [(1, 3), (5, 7), *last[1]]]


class Pair(NamedTuple):
    """A batch of a custom format."""

    inputs: Any
    labels: Any


class Numbers:
    """A custom stream of int32; `make` turns elements into a sample or a batch."""

    stream_dtype = np.dtype("<i4")

    def __init__(self, make: Callable[[NDArray[Any]], Any]) -> None:
        self._make = make

    def pack(self, data: dict[str, NDArray[Any]]) -> NDArray[Any]:
        return data["numbers"]

    def unpack(self, stream: NDArray[Any], shard_lengths: Any, shards: Any) -> Any:
        assert sum(shard_lengths) == LENGTH
        assert len(shards) == len(shard_lengths)
        return self._make(stream)


class BatchedNumbers(Numbers):
    """The same with unpack_batch."""

    def unpack_batch(self, stream: NDArray[Any]) -> Any:
        assert stream.shape[1] == LENGTH
        return self._make(stream)


def _shifted(stream: NDArray[Any]) -> Pair:
    return Pair(stream[..., :-1], stream[..., 1:])


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize("kind", [Numbers, BatchedNumbers])
@pytest.mark.parametrize(
    "make, parts",
    [
        (lambda stream: stream, lambda batch: [batch]),
        (_shifted, lambda batch: [batch.inputs, batch.labels]),
        (lambda stream: [stream, stream + 1], list),
        (lambda stream: (stream,), list),
        (lambda stream: {"a": stream, "b": {"c": stream}}, lambda b: [b["a"], b["b"]["c"]]),
        (lambda stream: {"a": [stream, (stream, stream)]}, lambda b: [b["a"][0], *b["a"][1]]),
    ],
)
def test_a_custom_format_gives_batches_of_its_own_structure(
    tmp_path: Path,
    kind: type[Numbers],
    make: Callable[[NDArray[Any]], Any],
    parts: Callable[[Any], list[Any]],
    prefetch: int,
    workers: int,
) -> None:
    """With unpack_batch and without, the same: the structure of a sample, of stacked tensors."""
    numbers = np.arange(COUNT, dtype="<i4")
    storage = _write(tmp_path / "s", kind(make), {"numbers": numbers}, shards=1)
    batches = list(_loader(storage, prefetch=prefetch, num_workers=workers))
    assert len(batches) == SAMPLES // BATCH
    for batch, rows in zip(batches, numbers.reshape(-1, BATCH, LENGTH), strict=True):
        expected = make(rows)
        for part, array in zip(parts(batch), parts(expected), strict=True):
            assert type(part) is torch.Tensor
            assert part.dtype == torch.int32
            assert part.tolist() == array.tolist()


def test_unpack_batch_may_return_what_is_no_array(tmp_path: Path) -> None:
    """It is delivered as it is, beside the tensors."""
    batched = BatchedNumbers(lambda stream: {"x": stream, "name": "run-1", "first": None, "n": 5})
    data = {"numbers": np.arange(COUNT, dtype="<i4")}
    batch = next(iter(_loader(_write(tmp_path / "s", batched, data))))
    assert batch["x"].shape == (BATCH, LENGTH)
    assert (batch["name"], batch["first"], batch["n"]) == ("run-1", None, 5)


class Records:
    """A custom stream of 5-byte records; `make` sees them as a batch."""

    stream_dtype = np.dtype([("flag", "u1"), ("x", "<i4")])

    def __init__(self, make: Callable[[NDArray[Any]], Any]) -> None:
        self.unpack_batch = make

    def pack(self, data: dict[str, NDArray[Any]]) -> NDArray[Any]:
        records = np.zeros(len(data["x"]), self.stream_dtype)
        records["x"] = data["x"]
        return records

    def unpack(self, stream: NDArray[Any], shard_lengths: Any, shards: Any) -> Any:
        raise NotImplementedError


def _read_only(stream: NDArray[Any]) -> NDArray[Any]:
    array: NDArray[Any] = np.ascontiguousarray(stream["x"])
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "make",
    [
        _read_only,
        lambda stream: stream["x"],  # 5 bytes from one value to the next
        lambda stream: np.ascontiguousarray(stream["x"][:, ::-1])[:, ::-1],  # negative strides
        lambda stream: stream["x"].astype(">i4"),
        lambda stream: np.asfortranarray(stream["x"]),
    ],
)
def test_unpack_batch_may_return_views_of_any_layout(
    tmp_path: Path, make: Callable[[NDArray[Any]], Any]
) -> None:
    """A natural `stream["x"]` of a packed record, reversed or read-only: a writable tensor."""
    data = {"x": np.arange(COUNT, dtype="<i4")}
    storage = _write(tmp_path / "s", Records(lambda stream: {"x": make(stream)}), data)
    batches = [batch["x"] for batch in _loader(storage)]
    assert torch.stack(batches).flatten().tolist() == list(range(COUNT))
    batches[0].fill_(0)
    assert all(batch.dtype == torch.int32 for batch in batches)


@pytest.mark.parametrize("kind", [Numbers, BatchedNumbers])
def test_a_rank_with_nothing_left_gets_an_empty_batch_of_a_custom_format(
    tmp_path: Path, kind: type[Numbers]
) -> None:
    """Without collate_fn, as with StreamNumpyFormat: no error on one rank in the last step."""
    data = {"numbers": np.arange(COUNT, dtype="<i4")}
    storage = _write(tmp_path / "s", kind(lambda stream: stream), data)
    loader = _loader(storage, rank=1, world_size=5, drop_last=False)
    full, *_ = _loader(storage, rank=0, world_size=5, drop_last=False)
    assert full.shape == (BATCH, LENGTH)
    found = list(loader)
    assert [len(batch) for batch in found] == [1]
    loader = _loader(storage, rank=7, world_size=8, drop_last=False)
    assert [len(batch) for batch in loader] == [0]
    assert loader.epoch == 1

"""Loaders over streams with metadata, and what their batches must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from guideloom import SpanBatch, StatefulDataLoader, StreamWithMetaStorage
from read.span_cases import Model, Piece, check_batch, check_derived

AHEAD = [(0, 0), (4, 0), (0, 1), (4, 3)]  # (prefetch, num_workers)
COLUMNS = ("offsets", "starts", "lengths", "spans", "payload_index")


def load(storage: StreamWithMetaStorage, length: int, **options: Any) -> StatefulDataLoader:
    options = {"drop_last": False, "local_batch_size": 3, **options}
    return StatefulDataLoader.from_storage(storage, sequence_length=length, **options)


def arrays(value: Any) -> Any:
    """The same batch in NumPy arrays, which share memory with the tensors."""
    if isinstance(value, torch.Tensor):
        assert value.is_contiguous()
        return value.numpy()
    if isinstance(value, dict):
        return {name: arrays(one) for name, one in value.items()}
    if isinstance(value, SpanBatch):
        return SpanBatch(*map(arrays, value))
    if isinstance(value, tuple):
        return type(value)(*map(arrays, value))
    return value


def tensors_in(batch: SpanBatch) -> list[torch.Tensor]:
    assert batch.payloads is not None
    columns = [getattr(batch, name) for name in COLUMNS]
    return [*_fields(batch.stream), *columns, *batch.payloads]


def check(batch: SpanBatch, model: Model, starts: list[int], length: int) -> None:
    """Every field and every method against the model; all are tensors, of the same values."""
    assert all(type(tensor) is torch.Tensor for tensor in tensors_in(batch))
    in_numpy = arrays(batch)
    check_batch(in_numpy, model, starts, length)
    check_derived(in_numpy, model, starts, length)
    for method in ("document_ids", "position_ids", "cu_seqlens"):
        tensor, array = getattr(batch, method)(), getattr(in_numpy, method)()
        assert type(tensor) is torch.Tensor
        assert tensor.is_contiguous()
        assert torch.equal(tensor, torch.from_numpy(array))
        tensor.fill_(0)
    check_per_element(batch, [model.window(start, length) for start in starts])


def check_per_element(batch: SpanBatch, windows: list[list[Piece]]) -> None:
    """The sizes of the payloads, one for each of `batch.payloads`, at each element."""
    assert batch.payloads is not None
    assert type(batch.payloads.lengths) is torch.Tensor
    sizes = batch.per_element(batch.payloads.lengths)
    assert type(sizes) is torch.Tensor
    assert sizes.dtype == torch.int64
    assert sizes.tolist() == [
        [len(piece.payload) for piece in window for _ in range(piece.length)] for window in windows
    ]


def check_narrow(batch: SpanBatch, model: Model, rows: list[int], start: int, stop: int) -> None:
    """Columns of a batch, element by element; `rows` is where its windows start."""
    part = batch.narrow(start, stop)
    assert type(part) is type(batch)
    assert all(type(tensor) is torch.Tensor for tensor in tensors_in(part))
    assert part.sequence_length == stop - start
    windows = [model.window(row + start, stop - start) for row in rows]
    pieces = [piece for window in windows for piece in window]
    assert part.offsets.tolist() == np.cumsum([0, *map(len, windows)]).tolist()
    assert part.starts.tolist() == [piece.start for piece in pieces]
    assert part.lengths.tolist() == [piece.length for piece in pieces]
    assert part.spans.tolist() == [piece.span for piece in pieces]
    for name in COLUMNS:
        assert getattr(part, name).dtype == torch.int64
    assert part.payloads is batch.payloads
    payloads = [payload.numpy().tobytes() for payload in batch.payloads.arrays()]  # type: ignore[union-attr]
    found = [payloads[k] for k in part.payload_index.tolist()]
    assert found == [piece.payload for piece in pieces]
    check_per_element(part, windows)
    check_derived(
        arrays(part._replace(stream=None)), model, [r + start for r in rows], stop - start
    )
    assert torch.equal(part.document_ids(), batch.document_ids()[:, start:stop])
    for narrow, whole in zip(_fields(part.stream), _fields(batch.stream), strict=True):
        assert torch.equal(narrow.view(torch.uint8), whole[:, start:stop].view(torch.uint8))
        assert not narrow.numel() or narrow.data_ptr() == whole[:, start:].data_ptr()


def _fields(stream: Any) -> list[torch.Tensor]:
    return list(stream.values()) if isinstance(stream, dict) else [stream]

"""Streams with metadata in a user's own format, with `unpack_batch` and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from guideloom import SpanBatch, StreamDataset
from read.span_cases import SOME, Model, model_of, spans_dataset, write_spans
from write.span_formats import Pairs, Runs, as_pairs, storage

from .span_cases import AHEAD, check, check_narrow, load

STARTS = [0, 6, 12, 18, 24, 30]


class Counted(Runs):
    """A sample: the elements, and for each the size of its document's payload."""

    def unpack(self, *arguments: Any) -> Any:
        stream, shards, index, payloads = super().unpack(*arguments)
        assert len(shards) == len(payloads)
        sizes = np.array([len(payload) for payload in payloads])
        return {"stream": stream, "sizes": sizes[index], "first": int(index[0])}


class Pair(NamedTuple):
    """A batch of elements in a user's own form."""

    inputs: Any
    labels: Any


class Batched(Runs):
    """Elements as they are."""

    def unpack_batch(self, stream: NDArray[Any]) -> Any:
        return stream


class Mapped(Runs):
    """Elements under a name."""

    def unpack_batch(self, stream: NDArray[Any]) -> Any:
        return {"tokens": stream}


class Shifted(Runs):
    """Inputs and labels."""

    def unpack_batch(self, stream: NDArray[Any]) -> Any:
        return Pair(stream[:, :-1], stream[:, 1:])


@pytest.mark.parametrize("prefetch, workers", AHEAD)
def test_without_unpack_batch_samples_are_stacked(
    prefetch: int, workers: int, tmp_path: Path
) -> None:
    """As for plain streams: what `unpack` makes of each window, through torch's default_collate."""
    data, model = spans_dataset(tmp_path, SOME, "<i4", form=Counted("<i4"))
    batches = list(load(data, 6, prefetch=prefetch, num_workers=workers))
    assert len(batches) == 2
    for number, batch in enumerate(batches):
        starts = STARTS[3 * number : 3 * number + 3]
        assert list(batch) == ["stream", "sizes", "first"]
        assert batch["stream"].dtype == torch.int32
        assert batch["stream"].tolist() == [model.elements[k : k + 6].tolist() for k in starts]
        assert batch["sizes"].tolist() == [_sizes(model, start) for start in starts]
        assert batch["first"].tolist() == [0, 0, 0]


def _sizes(model: Model, start: int) -> list[int]:
    return [len(piece.payload) for piece in model.window(start, 6) for _ in range(piece.length)]


def test_samples_that_cannot_be_stacked_need_a_collate_fn(tmp_path: Path) -> None:
    """Payloads as a list, of which each sample has another number."""
    data, model = spans_dataset(tmp_path, SOME, "<i4", form=Runs("<i4"))
    with pytest.raises(RuntimeError, match="equal size") as raised:
        next(iter(load(data, 6)))
    assert "while loading samples 0, 1, 2 (epoch 0" in raised.value.__notes__[-2]
    batch = next(iter(load(data, 6, collate_fn=list)))
    for start, (stream, shards, _, payloads) in zip(STARTS, batch, strict=False):
        pieces = model.window(start, 6)
        assert stream.tolist() == model.elements[start : start + 6].tolist()
        assert shards == [piece.shard for piece in pieces]
        assert payloads == [piece.payload for piece in pieces]


@pytest.mark.parametrize("prefetch, workers", AHEAD)
def test_with_unpack_batch_a_batch_is_a_span_batch(
    prefetch: int, workers: int, tmp_path: Path
) -> None:
    """Its stream is what `unpack_batch` makes of the elements."""
    data, model = spans_dataset(tmp_path, SOME, form=Batched("<u2"))
    batches = list(load(data, 6, prefetch=prefetch, num_workers=workers))
    assert len(batches) == 2
    for number, batch in enumerate(batches):
        starts = STARTS[3 * number : 3 * number + 3]
        check(batch, model, starts, 6)
        check_narrow(batch, model, starts, 1, 5)


def test_a_stream_may_be_a_mapping(tmp_path: Path) -> None:
    data, model = spans_dataset(tmp_path, SOME, form=Mapped("<u2"))
    for number, batch in enumerate(load(data, 6)):
        starts = STARTS[3 * number : 3 * number + 3]
        assert list(batch.stream) == ["tokens"]
        check(batch._replace(stream=batch.stream["tokens"]), model, starts, 6)
        check_narrow(batch, model, starts, 2, 4)


def test_a_stream_may_be_anything_of_tensors(tmp_path: Path) -> None:
    """The spans are those of the window, whatever `unpack_batch` makes of the elements."""
    data, model = spans_dataset(tmp_path, SOME, "<i4", form=Shifted("<i4"))
    batch = next(iter(load(data, 6)))
    assert isinstance(batch, SpanBatch)
    rows = [model.elements[start : start + 6].tolist() for start in STARTS[:3]]
    assert type(batch.stream) is Pair
    assert batch.stream.inputs.tolist() == [row[:-1] for row in rows]
    assert batch.stream.labels.tolist() == [row[1:] for row in rows]
    whole = StreamDataset(data, 6)
    with whole.sync_reader() as reader:
        assert batch.document_ids().tolist() == reader.gather([0, 1, 2]).document_ids().tolist()
    with pytest.raises(TypeError, match=r"narrow .*Pair"):
        batch.narrow(0, 3)


def test_a_format_with_a_generator(tmp_path: Path) -> None:
    """The other form of `pack`; reading is the same."""

    class BatchedPairs(Pairs):
        def unpack_batch(self, stream: NDArray[Any]) -> Any:
            return stream

    elements = np.arange(100, 120, dtype="<u2")
    spans = [(7, b"seven"), (4, b""), (9, b"nine")]
    data = storage(tmp_path, BatchedPairs("<u2"))
    with data.sync_writer() as writer:
        writer.append(0, as_pairs(elements, spans))
    model = model_of({0: [[spans]]}, elements)
    (batch,) = load(data, 5, local_batch_size=4)
    check(batch, model, [0, 5, 10, 15], 5)


def test_an_empty_batch_of_each_format(tmp_path: Path) -> None:
    """On a rank with nothing left: what the others get, without rows."""
    for number, form in enumerate((Counted("<i4"), Batched("<i4"), Mapped("<i4"), Shifted("<i4"))):
        data = storage(tmp_path / str(number), form)
        write_spans(data, SOME, np.arange(36, dtype="<i4"))
        (batch,) = load(data, 30, rank=1, world_size=2)
        if isinstance(form, Counted):
            assert batch == []
            continue
        assert isinstance(batch, SpanBatch)
        assert batch.offsets.tolist() == [0]
        assert batch.document_ids().shape == (0, 30)
        (tensor, *_) = batch.stream.values() if isinstance(form, Mapped) else [batch.stream]
        if isinstance(form, Shifted):
            tensor = batch.stream.inputs
        assert (len(tensor), tensor.dtype) == (0, torch.int32)

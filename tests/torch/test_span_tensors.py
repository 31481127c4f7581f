"""What is computed of windows with spans: as tensors the same as in NumPy, on their own device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from guideloom_read import Ragged, SpanBatch
from guideloom_torch._collate import to_tensors


@st.composite
def batches(draw: st.DrawFn) -> SpanBatch:
    """Any windows, cut into any pieces; with payloads or without."""
    rows, length = draw(st.integers(0, 4)), draw(st.integers(1, 9))
    starts: list[int] = []
    lengths: list[int] = []
    offsets = [0]
    for _ in range(rows):
        cuts = sorted(draw(st.sets(st.integers(1, length - 1)))) if length > 1 else []
        borders = [0, *cuts, length]
        starts += borders[:-1]
        lengths += np.diff(borders).tolist()
        offsets.append(len(starts))
    count = len(starts)
    payloads = draw(st.integers(1, 5))
    index = draw(st.lists(st.integers(0, payloads - 1), min_size=count, max_size=count))
    ragged = Ragged(np.zeros(2 * payloads, np.uint8), np.arange(payloads + 1) * 2)
    spans = draw(st.lists(st.integers(0, 99), min_size=count, max_size=count))
    return SpanBatch(
        stream={"x": np.arange(rows * length, dtype="i4").reshape(rows, length)},
        offsets=np.array(offsets, dtype=np.int64),
        starts=np.array(starts, dtype=np.int64),
        lengths=np.array(lengths, dtype=np.int64),
        spans=np.array(spans, dtype=np.int64),
        payload_index=np.array(index, dtype=np.int64),
        payloads=ragged if draw(st.booleans()) else None,
        sequence_length=length,
    )


def same(found: Any, expected: Any) -> None:
    assert isinstance(found, torch.Tensor)
    assert found.numpy().dtype == expected.dtype
    assert found.shape == expected.shape
    assert np.array_equal(found.numpy(), expected)


@settings(max_examples=80, deadline=None)
@given(batch=batches(), data=st.data())
def test_tensors_say_the_same(batch: SpanBatch, data: st.DataObject) -> None:
    length = batch.sequence_length
    start = data.draw(st.integers(0, length))
    stop = data.draw(st.integers(start, length))
    tensors = to_tensors(batch)
    for ours, theirs in (
        (tensors, batch),
        (tensors.narrow(start, stop), batch.narrow(start, stop)),
    ):
        assert ours.sequence_length == theirs.sequence_length
        same(ours.stream["x"], theirs.stream["x"])
        for name in ("offsets", "starts", "lengths", "spans", "payload_index"):
            same(getattr(ours, name), getattr(theirs, name))
        same(ours.document_ids(), theirs.document_ids())
        same(ours.position_ids(), theirs.position_ids())
        same(ours.cu_seqlens(), theirs.cu_seqlens())
        count = 5 if batch.payloads is None else len(batch.payloads.offsets) - 1
        for values in (np.arange(count) * 1.5, np.arange(3 * count).reshape(count, 3)):
            same(ours.per_element(values), theirs.per_element(values))
            same(ours.per_element(torch.from_numpy(values)), theirs.per_element(values))


@settings(max_examples=50, deadline=None)
@given(batch=batches())
def test_nothing_is_fetched_from_the_device(batch: SpanBatch) -> None:
    """The device "meta" has shapes and no values: whoever asks for one gets an error."""
    on_cpu = to_tensors(batch)
    there = on_cpu._replace(
        **{
            name: getattr(on_cpu, name).to("meta")
            for name in ("offsets", "starts", "lengths", "spans", "payload_index")
        }
    )
    shape = (len(batch.offsets) - 1, batch.sequence_length)
    for found, dtype in (
        (there.document_ids(), torch.int64),
        (there.position_ids(), torch.int64),
        (there.cu_seqlens(), torch.int32),
    ):
        assert found.device.type == "meta"
        assert found.dtype == dtype
    assert there.document_ids().shape == there.position_ids().shape == shape
    assert there.cu_seqlens().shape == (len(batch.lengths) + 1,)
    if batch.payloads is not None:
        found = there.per_element(np.zeros(len(batch.payloads.offsets) - 1, np.float32))
        assert (found.device.type, found.shape) == ("meta", shape)


def test_wrong_numbers_of_values_and_borders() -> None:
    column = np.array([0, 1], dtype=np.int64)
    batch = SpanBatch(
        np.zeros((1, 2)), np.array([0, 2]), column, np.array([1, 1]), column, column, None, 2
    )
    tensors = to_tensors(batch)
    for values in ([1], 5, []):
        with pytest.raises(ValueError, match="expected one for each of the 2 payloads"):
            tensors.per_element(values)
    for start, stop in ((-1, 1), (1, 0), (0, 3)):
        with pytest.raises(ValueError, match="expected 0 <= start <= stop <= 2"):
            tensors.narrow(start, stop)


def test_more_elements_than_int32_holds() -> None:
    empty = torch.zeros(0, dtype=torch.int64)
    offsets = torch.zeros(2, dtype=torch.int64)
    tensors = to_tensors(SpanBatch(None, offsets, empty, empty, empty, empty, None, 2**31))
    with pytest.raises(ValueError, match="has 2147483648 elements"):
        tensors.cu_seqlens()

"""Streams with metadata as a loader delivers them: a `SpanBatch` of tensors."""

from __future__ import annotations

import copy
import gc
import itertools
import pickle
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from guideloom import (
    DocumentBytesFormat,
    DocumentJSONFormat,
    DocumentNumpyFormat,
    EpochPlan,
    SpanWindow,
    StreamSpansFormat,
    StreamWithMetaStorage,
)
from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom.types import IOReader
from read.span_cases import (
    DTYPES,
    SOME,
    Cut,
    cuts,
    element_count,
    spans_dataset,
)

from .span_cases import AHEAD, check, check_narrow, load, tensors_in

numbers = itertools.count()
into_one_folder = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@into_one_folder
@given(
    cut=cuts(),
    dtype=st.sampled_from(DTYPES),
    stride=st.none() | st.integers(1, 15),
    batch=st.integers(1, 5),
    seed=st.none() | st.integers(0, 9),
    ahead=st.sampled_from(AHEAD),
    data=st.data(),
)
def test_any_stream(
    cut: Cut,
    dtype: Any,
    stride: int | None,
    batch: int,
    seed: int | None,
    ahead: tuple[int, int],
    data: st.DataObject,
    tmp_path: Path,
) -> None:
    """Any spans in any shards and parts: each batch, and its columns, as the plan says."""
    count = element_count(cut)
    assume(count)
    storage, model = spans_dataset(tmp_path / str(next(numbers)), cut, dtype)
    length = data.draw(st.integers(1, min(count, 12)), "length")
    samples = model.samples(length, stride or length)
    options: dict[str, Any] = {"local_batch_size": batch, "shuffle": seed is not None}
    plan = EpochPlan(len(samples), seed=seed or 0, drop_last=False, **options)
    prefetch, workers = ahead
    loader = load(
        storage,
        length,
        stride=stride,
        shuffle_seed=seed,
        prefetch=prefetch,
        num_workers=workers,
        **options,
    )
    found = list(loader)
    assert len(found) == len(loader) == len(plan)
    start = data.draw(st.integers(0, length), "start")
    stop = data.draw(st.integers(start, length), "stop")
    for step, one in enumerate(found):
        starts = [samples[k] for k in plan.sample_ids(step)]
        check(one, model, starts, length)
        check_narrow(one, model, starts, start, stop)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all_columns_of_a_batch(dtype: Any, tmp_path: Path) -> None:
    """`narrow` at every border, and again of what is narrow already."""
    storage, model = spans_dataset(tmp_path, SOME, dtype)
    (batch,) = load(storage, 9, local_batch_size=9)
    starts = [0, 9, 18, 27]
    for start, stop in itertools.combinations_with_replacement(range(10), 2):
        check_narrow(batch, model, starts, start, stop)
        inner = batch.narrow(start, 9)
        check_narrow(inner, model, [k + start for k in starts], 0, stop - start)
    for start, stop in ((-1, 3), (0, 10), (5, 4), (10, 10)):
        text = f"narrow got {start} and {stop}; expected 0 <= start <= stop <= 9"
        with pytest.raises(ValueError, match=text):
            batch.narrow(start, stop)


def test_inputs_and_shifted_labels(tmp_path: Path) -> None:
    """sequence_length L + 1, stride L: every label is the element behind its input.

    A loss that is masked where a document ends: an input and its label in different documents.
    """
    storage, model = spans_dataset(tmp_path, SOME)
    length = 5
    seen = []
    for batch in load(storage, length + 1, stride=length):
        inputs, labels = batch.narrow(0, length), batch.narrow(1, length + 1)
        assert inputs.stream[:, 1:].tolist() == labels.stream[:, :-1].tolist()
        assert inputs.stream.shape == labels.stream.shape
        within = inputs.document_ids() == labels.document_ids()
        seen += list(
            zip(
                inputs.stream.flatten().tolist(),
                labels.stream.flatten().tolist(),
                within.flatten().tolist(),
                strict=True,
            )
        )
    spans = np.repeat(
        np.arange(len(model.spans)), [stop - start for start, stop, *_ in model.spans]
    )
    elements = model.elements
    assert seen == [
        (elements[k], elements[k + 1], bool(spans[k] == spans[k + 1])) for k in range(35)
    ]
    assert {within for _, _, within in seen} == {False, True}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [(0, 9), (1, 9), (0, 8)], ids=str)
def test_attention_by_pieces_is_attention_with_a_mask(
    causal: bool, window: tuple[int, int], tmp_path: Path
) -> None:
    """What `cu_seqlens` and `document_ids` are for, and that the two agree.

    A window may begin or end within a document; `position_ids` are the places within the pieces.
    """
    storage, _ = spans_dataset(tmp_path, SOME)
    attention = partial(scaled_dot_product_attention, is_causal=causal)
    heads, width = 2, 4
    generator = torch.Generator().manual_seed(0)
    for whole in load(storage, 9):
        batch = whole.narrow(*window)
        rows, length = batch.stream.shape
        shape = (3, rows, heads, length, width)
        query, key, value = torch.randn(shape, generator=generator, dtype=torch.float64)
        ids, places = batch.document_ids(), batch.position_ids()
        mask = ids[:, :, None] == ids[:, None, :]
        if causal:
            mask &= places[:, :, None] >= places[:, None, :]
        assert not mask.all()
        masked = scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None])
        flat = [one.transpose(1, 2).reshape(-1, heads, width) for one in (query, key, value)]
        bounds = batch.cu_seqlens()
        assert (bounds.dtype, int(bounds[-1])) == (torch.int32, rows * length)
        pieces = [
            attention(*(one[begin:end].transpose(0, 1) for one in flat)).transpose(0, 1)
            for begin, end in itertools.pairwise(bounds.tolist())
        ]
        assert max(map(len, pieces)) == int(batch.lengths.max())
        expected = masked.transpose(1, 2).reshape(-1, heads, width)
        torch.testing.assert_close(torch.cat(pieces), expected)


PAYLOADS: list[tuple[Any, list[Any]]] = [
    (DocumentJSONFormat(), [{"id": 7, "tags": ["a"]}, None, "ü", [1, 2.5], 0]),
    (DocumentNumpyFormat("<i4"), [[1, 2], [], [-5], [7, 8, 9], [2**31 - 1]]),
    (DocumentBytesFormat(), [b"abc", b"", b"\x00", b"z" * 300, b"\xff"]),
]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("form, payloads", PAYLOADS, ids=["json", "numpy", "bytes"])
def test_payloads_decode_through_their_format(
    form: Any, payloads: list[Any], workers: int, tmp_path: Path
) -> None:
    """Each that the batch touches, once, with the spans that they belong to."""
    storage = StreamWithMetaStorage(tmp_path, StreamSpansFormat("<u2", form))
    with storage.sync_writer() as writer:
        writer.append(0, (range(20), [7, 0, 4, 9], payloads[:4]))
        writer.append(9, (range(5), [5], payloads[4:]))
    touched = [[0], [0, 2], [2, 3], [3], [4]]
    for number, batch in enumerate(load(storage, 5, num_workers=workers)):
        order = [*itertools.chain(*touched[3 * number : 3 * number + 3])]
        found = [form.unpack(memoryview(one.numpy()), 0) for one in batch.payloads.arrays()]
        assert list(map(repr, found)) == [repr(_as_read(payloads[k])) for k in dict.fromkeys(order)]
        by_piece = [found[k] for k in batch.payload_index.tolist()]
        assert list(map(repr, by_piece)) == [repr(_as_read(payloads[k])) for k in order]
        assert batch.spans.tolist() == order


def _as_read(payload: Any) -> Any:
    is_array = isinstance(payload, list) and all(type(value) is int for value in payload)
    return np.array(payload, "<i4") if is_array else payload


def test_collate_fn_gets_a_list_of_samples(tmp_path: Path) -> None:
    """`SpanWindow`s with decoded payloads; an empty batch is an empty list."""
    form = StreamSpansFormat(np.dtype([("token", "<u2"), ("mask", "?")]), DocumentJSONFormat())
    storage = StreamWithMetaStorage(tmp_path, form)
    data = {"token": np.arange(10, dtype="<u2"), "mask": np.arange(10) % 3 == 0}
    with storage.sync_writer() as writer:
        writer.append(5, (data, [4, 0, 6], [{"a": 1}, "empty", [2]]))

    def collate(samples: list[SpanWindow]) -> Any:
        assert type(samples) is list
        for sample in samples:
            assert isinstance(sample, SpanWindow)
            assert list(sample.stream) == ["token", "mask"]
            assert sample.shards == [5] * len(sample.payloads)
        return [
            (sample.stream["token"].tolist(), sample.span_index.tolist(), sample.payloads)
            for sample in samples
        ] or "nothing"

    for prefetch, workers in AHEAD:
        options = {"prefetch": prefetch, "num_workers": workers, "local_batch_size": 1}
        found = [
            list(load(storage, 3, collate_fn=collate, rank=rank, world_size=2, **options))
            for rank in range(2)
        ]
        assert found == [
            [[([0, 1, 2], [0, 0, 0], [{"a": 1}])], [([6, 7, 8], [0, 0, 0], [[2]])]],
            [[([3, 4, 5], [0, 1, 1], [{"a": 1}, [2]])], "nothing"],
        ]


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize("backend", [PosixPreadIO(), MmapIO(), SeekIO()])
def test_a_batch_is_the_callers_own(
    tmp_path: Path, backend: IOReader, prefetch: int, workers: int
) -> None:
    """Writing into it changes no other batch, and it stays when loader and files are gone."""
    storage, model = spans_dataset(tmp_path / "x", SOME, io=backend)
    loader = load(storage, 6, prefetch=prefetch, num_workers=workers)
    kept = []
    for epoch in range(2):
        for batch in loader:
            kept.append(batch)
            if epoch == 0:
                for tensor in tensors_in(batch):
                    tensor.fill_(77)
    loader.close()
    shutil.rmtree(tmp_path / "x")
    del loader
    gc.collect()
    assert len(kept) == 4
    assert all((tensor == 77).all() for batch in kept[:2] for tensor in tensors_in(batch))
    check(kept[2], model, [0, 6, 12], 6)
    check(kept[3], model, [18, 24, 30], 6)


@pytest.mark.parametrize(
    "move", [copy.copy, copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))]
)
@pytest.mark.parametrize("dtype", ["<i4", np.dtype([("a", "<i4"), ("b", "?")])], ids=str)
def test_a_copied_batch_is_the_same(move: Any, dtype: Any, tmp_path: Path) -> None:
    """And its methods still return tensors. torch cannot pickle its uint16 and uint32."""
    storage, model = spans_dataset(tmp_path, SOME, dtype)
    batch = next(iter(load(storage, 6)))
    for copied in (move(batch), move(batch.narrow(0, 6))):
        assert type(copied) is type(batch)
        check(copied, model, [0, 6, 12], 6)
    check_narrow(move(batch.narrow(1, 6)), model, [1, 7, 13], 0, 4)


def test_a_field_may_be_replaced(tmp_path: Path) -> None:
    """As users do to convert tokens or to move them to a device; the methods go on."""
    storage, model = spans_dataset(tmp_path, SOME)
    batch = next(iter(load(storage, 6)))
    moved = batch._replace(stream=batch.stream.long())
    assert moved.narrow(0, 5).stream.dtype == torch.int64
    assert torch.equal(moved.document_ids(), batch.document_ids())
    assert type(moved.narrow(0, 5).position_ids()) is torch.Tensor
    assert batch.stream.tolist() == model.elements[:18].reshape(3, 6).tolist()


def test_what_was_computed_from_payloads_for_each_element(tmp_path: Path) -> None:
    """A number for each payload, or several; as a list, an array or a tensor. Of columns, too."""
    storage, _ = spans_dataset(tmp_path, SOME)
    for batch in load(storage, 9):
        count = len(batch.payloads.arrays())
        order = torch.repeat_interleave(batch.payload_index, batch.lengths).reshape(-1, 9)
        weights = torch.arange(count) / 8
        pairs = torch.arange(2 * count, dtype=torch.int32).reshape(count, 2)
        for values in (weights, weights.numpy(), weights.tolist()):
            found = batch.per_element(values)
            assert found.tolist() == weights[order].tolist()
        assert torch.equal(batch.per_element(pairs), pairs[order])
        for start, stop in ((0, 4), (2, 9), (3, 3)):
            part = batch.narrow(start, stop)
            assert torch.equal(part.per_element(pairs), pairs[order][:, start:stop])
        for wrong in ([], [1] * (count - 1), [1] * (count + 1), 5):
            with pytest.raises(ValueError, match=f"per_element got .*each of the {count} payloads"):
                batch.per_element(wrong)

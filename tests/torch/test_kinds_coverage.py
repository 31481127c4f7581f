"""Documents and streams with metadata: each sample once, and states of other data are refused.

`test_coverage` and `test_state` for the other kinds of data.
"""

from __future__ import annotations

import re
from functools import partial
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from guideloom import (
    DocumentDataset,
    DocumentNumpyFormat,
    DocumentStorage,
    SpanBatch,
    StatefulDataLoader,
    StateMismatchError,
    StreamDataset,
    StreamSpansFormat,
    StreamWithMetaStorage,
)

from .kind_cases import KINDS, LENGTH, PAD, WIDTH, Samples
from .loader_cases import (
    TOKENS,
    deal,
    expected_run,
    global_order,
    make_loader,
    within,
    write_stream,
)

SIZES = [*range(1, 10), 16, 17, 33]
AHEAD = [(0, 0), (4, 0), (0, 1), (4, 3)]  # (prefetch, num_workers)
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
@pytest.mark.parametrize("drop_last", [False, True])
def test_every_small_size_on_every_number_of_ranks(
    kind: str, drop_last: bool, tmp_path: Path
) -> None:
    """Each sample exactly once over all ranks, and as many steps on each."""
    for count in SIZES:
        samples = Samples.written(KINDS[kind], tmp_path / str(count), count)
        orders = {seed: global_order(count, 0, seed) for seed in (None, count)}
        for world_size, batch in product((1, 2, 3, 5), (1, 2, 3, 7)):
            if drop_last and count < world_size * batch:
                continue  # an epoch without a batch: below
            seed = count if (world_size + batch) % 2 else None
            expected = deal(
                orders[seed], world_size=world_size, local_batch_size=batch, drop_last=drop_last
            )
            where = (count, world_size, batch)
            seen: list[int] = []
            for rank in range(world_size):
                loader = samples.loader(
                    seed=seed,
                    rank=rank,
                    world_size=world_size,
                    local_batch_size=batch,
                    drop_last=drop_last,
                )
                found = [samples.ids_of(rows) for rows in loader]
                assert len(loader) == len(found) == len(expected), (where, rank)
                assert found == [hands[rank] for hands in expected], (where, rank)
                assert (loader.epoch, loader.position) == (1, 0), (where, rank)
                seen += [sample for rows in found for sample in rows]
            kept = count - count % (world_size * batch) if drop_last else count
            assert sorted(seen) == sorted(orders[seed][:kept]), where


def _no_documents(directory: Path) -> Any:
    storage = DocumentStorage(directory, DocumentNumpyFormat("<u2"))
    with storage.sync_writer() as writer:
        writer.extend(3, [])
    return storage, {}, 0


def _too_few_documents(directory: Path) -> Any:
    storage, _, _ = _no_documents(directory)
    with storage.sync_writer() as writer:
        writer.extend(3, [[], [1], [], [2, 3], []])
    return storage, {}, 5


def _spans(directory: Path, *appends: Any) -> Any:
    storage = StreamWithMetaStorage(directory, StreamSpansFormat("<u2", _PAYLOADS))
    with storage.sync_writer() as writer:
        for append in appends:
            writer.append(7, append)
    return storage, {"sequence_length": LENGTH}


_PAYLOADS = DocumentNumpyFormat("<u4")


def _no_spans(directory: Path) -> Any:
    return *_spans(directory), 0


def _spans_without_elements(directory: Path) -> Any:
    return *_spans(directory, ([], [0, 0], [[1], []]), ([], [], [])), 0


def _less_than_a_window(directory: Path) -> Any:
    return *_spans(directory, ([1, 2], [1, 1], [[], [1, 2, 3]])), 0


def _too_few_windows(directory: Path) -> Any:
    return *_spans(directory, (range(17), [10, 0, 7], [[1], [2], []])), 5


def _batches(loader: StatefulDataLoader) -> list[Any]:
    return list(loader)


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize(
    "make",
    [
        _no_documents,
        _too_few_documents,
        _no_spans,
        _spans_without_elements,
        _less_than_a_window,
        _too_few_windows,
    ],
)
def test_an_epoch_without_a_batch_warns_and_ends(
    make: Any, prefetch: int, workers: int, tmp_path: Path
) -> None:
    """The next epoch comes; nothing hangs, whoever loads."""
    storage, options, count = make(tmp_path / "data")
    paddings: list[Any] = [None, "longest", 4]
    for drop_last, pad_to in product((False, True), paddings):
        if (count and not drop_last) or ("sequence_length" in options and pad_to):
            continue
        loader = StatefulDataLoader.from_storage(
            storage,
            local_batch_size=2,
            world_size=3,
            rank=1,
            drop_last=drop_last,
            prefetch=prefetch,
            num_workers=workers,
            pad_to=pad_to,
            **options,
        )
        assert len(loader) == 0
        for epoch in range(2):
            assert (loader.epoch, loader.position) == (epoch, 0)
            text = f"^the epoch has no batch: {count} samples, global batch size 6, drop_last="
            with pytest.warns(UserWarning, match=text + str(drop_last)) as caught:
                assert within(10, partial(_batches, loader)) == []
            assert [Path(one.filename).name for one in caught] == [Path(__file__).name]
        state = loader.state_dict()
        assert (state["samples"], state["epoch"], state["position"]) == (count, 2, 0)
        loader.load_state_dict(state)


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@each_kind
def test_a_rank_with_nothing_left_gets_an_empty_batch(
    kind: str, prefetch: int, workers: int, tmp_path: Path
) -> None:
    """So that it takes part in the step; dtypes and all other dimensions are as always."""
    samples = Samples.written(KINDS[kind], tmp_path / "data", 9)
    for rank in range(4):
        loader = samples.loader(
            rank=rank,
            world_size=4,
            local_batch_size=2,
            drop_last=False,
            prefetch=prefetch,
            num_workers=workers,
        )
        first, last = loader
        assert (len(samples.ids_of(first)), samples.ids_of(last)) == (2, [] if rank else [8])
        assert loader.epoch == 1
        if rank:
            _check_empty(kind, last)


def _check_empty(kind: str, batch: Any) -> None:
    if kind == "spans":
        assert isinstance(batch, SpanBatch)
        assert (batch.stream.shape, batch.stream.dtype) == ((0, LENGTH), torch.uint32)
        assert batch.offsets.tolist() == batch.cu_seqlens().tolist() == [0]
        for column in (batch.starts, batch.lengths, batch.spans, batch.payload_index):
            assert (column.shape, column.dtype) == ((0,), torch.int64)
        assert batch.payloads is not None
        assert (batch.payloads.values.shape, batch.payloads.values.dtype) == ((0,), torch.uint8)
        assert batch.payloads.offsets.tolist() == [0]
        for ids in (batch.document_ids(), batch.position_ids()):
            assert (ids.shape, ids.dtype) == ((0, LENGTH), torch.int64)
        assert batch.narrow(1, LENGTH).document_ids().shape == (0, LENGTH - 1)
    elif kind in ("padded", "longest"):
        width = WIDTH if kind == "padded" else 0
        assert (batch.values.shape, batch.values.dtype) == ((0, width), torch.uint16)
        assert (batch.lengths.shape, batch.lengths.dtype) == ((0,), torch.int64)
    else:
        assert batch == []


@each_kind
def test_epochs_differ_and_are_the_same_for_ever(kind: str, tmp_path: Path) -> None:
    """The rows of the table in the format's specification, through every kind."""
    samples = Samples.written(KINDS[kind], tmp_path / "data", 10)
    epochs = samples.deliver(samples.loader(seed=0, local_batch_size=10), until_epoch=2)
    assert [ids for _, ids in epochs] == [
        [0, 9, 4, 5, 8, 6, 7, 1, 3, 2],
        [7, 0, 2, 5, 4, 8, 1, 9, 6, 3],
    ]


@each_kind
def test_a_dataset_gives_what_a_storage_gives(kind: str, tmp_path: Path) -> None:
    samples = Samples.written(KINDS[kind], tmp_path / "data", 7)
    storage = samples.kind.storage(samples.directory)
    options = dict(samples.kind.options)
    length = options.pop("sequence_length", None)
    dataset = StreamDataset(storage, length) if length else DocumentDataset(storage)
    loader = StatefulDataLoader(dataset, local_batch_size=3, drop_last=False, **options)
    run = expected_run(7, 2, local_batch_size=3, drop_last=False)
    assert samples.deliver(loader, until_epoch=2) == run
    assert repr(dataset) in repr(loader)


# States


@each_kind
def test_the_fields_of_a_state(kind: str, tmp_path: Path) -> None:
    """Nothing of batches, ranks, workers or padding."""
    samples = Samples.written(KINDS[kind], tmp_path / "data", 7)
    loader = samples.loader(seed=17, local_batch_size=2, num_workers=1, rank=0, world_size=3)
    next(iter(loader))
    state = loader.state_dict()
    fingerprint = state["dataset"]
    assert isinstance(fingerprint, str)
    assert len(bytes.fromhex(fingerprint)) == 32
    cut = {"sequence_length": LENGTH, "stride": LENGTH} if kind == "spans" else {}
    assert state == {
        "version": 2,
        "epoch": 1,
        "position": 0,
        "algorithm": "feistel-1",
        "shuffle": True,
        "shuffle_seed": 17,
        "samples": 7,
        "dataset": fingerprint,
        "manifest_version": None,
        **cut,
    }


def test_a_state_of_one_kind_is_refused_by_the_others(tmp_path: Path) -> None:
    """By the names of its fields, or by the dataset; and nothing changes."""
    makers: dict[str, Any] = {
        kind: Samples.written(KINDS[kind], tmp_path / kind, 7).loader
        for kind in ("documents", "json", "spans")
    }
    stream = write_stream(tmp_path / "stream", 7)
    makers["stream"] = lambda **options: make_loader(stream, **options)
    cut = ("spans", "stream")
    for saver, other in permutations(makers, 2):
        state = makers[saver](seed=3).state_dict()
        loader = makers[other](seed=3)
        next(iter(loader))
        before = loader.state_dict()
        text = r"the loader state has dataset '\w{64}', this loader has '\w{64}': .*other data"
        if saver in cut and other not in cut:
            text = r"lacks the fields \[\] and has the unknown fields \['sequence_length', 'stride"
        if saver not in cut and other in cut:
            text = r"lacks the fields \['sequence_length', 'stride'\] and has the unknown fields \["
        with pytest.raises(StateMismatchError, match=text):
            loader.load_state_dict(state)
        assert loader.state_dict() == before, (saver, other)


@each_kind
def test_another_order_and_other_data_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    samples = Samples.written(KINDS[kind], tmp_path / "data", 7)
    anew = Samples.written(KINDS[kind], tmp_path / "anew", 7)
    loader = samples.loader(seed=17)
    next(iter(loader))
    state = loader.state_dict()
    with pytest.raises(StateMismatchError, match="has shuffle_seed 17, this loader has 18"):
        samples.loader(seed=18).load_state_dict(state)
    with pytest.raises(StateMismatchError, match="has shuffle True, this loader has False"):
        samples.loader().load_state_dict(state)
    with pytest.raises(StateMismatchError, match=r"has dataset '.*written anew"):
        anew.loader(seed=17).load_state_dict(state)
    with pytest.raises(StateMismatchError, match="has position 8; expected 0 to 7"):
        loader.load_state_dict(state | {"position": 8})
    if kind == "spans":
        with pytest.raises(StateMismatchError, match="has stride 3, this loader has 2"):
            samples.loader(seed=17, stride=2).load_state_dict(state)
        with pytest.raises(StateMismatchError, match="has sequence_length 3, this loader has 4"):
            samples.loader(seed=17, sequence_length=4, stride=3).load_state_dict(state)
    moved = Samples(samples.kind, samples.directory.rename(tmp_path / "moved"), 7, samples.number)
    resumed = moved.loader(seed=17)
    resumed.load_state_dict(state)
    assert moved.deliver(resumed, until_epoch=1) == expected_run(7, 1, seed=17)[1:]


@pytest.mark.parametrize("kind", ["documents", "spans"])
def test_a_dataset_that_has_grown_is_named(kind: str, tmp_path: Path) -> None:
    """Also by a span or a document without an element."""
    samples = Samples.written(KINDS[kind], tmp_path / "data", 7)
    state = samples.loader(seed=17).state_dict()
    data = ([], [0], [b"payload"]) if kind == "spans" else []
    with samples.kind.storage(samples.directory).sync_writer() as writer:
        writer.append(5, data)
    with pytest.raises(StateMismatchError, match=r"has (samples|dataset) .*, this loader has"):
        samples.loader(seed=17).load_state_dict(state)


# What belongs to other kinds


@pytest.mark.parametrize("options", [{"sequence_length": 4}, {"stride": 4}], ids=str)
def test_documents_are_not_cut(options: dict[str, Any], tmp_path: Path) -> None:
    storage = DocumentStorage(tmp_path / "nowhere", DocumentNumpyFormat("<u2"))
    text = "^from_storage got sequence_length or stride for documents, which are samples as they"
    with pytest.raises(TypeError, match=text):
        StatefulDataLoader.from_storage(storage, **options)


def test_a_stream_with_metadata_needs_a_length(tmp_path: Path) -> None:
    storage = StreamWithMetaStorage(tmp_path / "nowhere", StreamSpansFormat("<u2", _PAYLOADS))
    with pytest.raises(TypeError, match=r"^from_storage needs sequence_length"):
        StatefulDataLoader.from_storage(storage)


@pytest.mark.parametrize("pad_to", [4, "longest"])
def test_streams_are_not_padded(pad_to: Any, tmp_path: Path) -> None:
    """Their windows all have the same length."""
    spans = StreamWithMetaStorage(tmp_path / "nowhere", StreamSpansFormat(TOKENS, _PAYLOADS))
    plain = make_loader(tmp_path / "nowhere").dataset
    assert isinstance(plain, StreamDataset)
    for dataset in (StreamDataset(spans, 4), plain):
        text = f"^pad_to is given for {re.escape(repr(dataset))}; it pads documents that are"
        with pytest.raises(TypeError, match=text):
            StatefulDataLoader(dataset, pad_to=pad_to)


def test_a_storage_is_no_dataset(tmp_path: Path) -> None:
    for kind in ("documents", "spans"):
        storage = KINDS[kind].storage(tmp_path)
        text = f"^dataset is {type(storage).__name__}; .*from_storage"
        with pytest.raises(TypeError, match=text):
            StatefulDataLoader(storage)


def test_the_padding_value_of_these_tests_is_none_of_theirs() -> None:
    """Otherwise a padded row could be taken for a longer document."""
    values = {value for row in KINDS["padded"].table(64) for value in row}  # type: ignore[attr-defined]
    assert PAD not in values
    assert max(values) <= np.iinfo("u2").max

"""`pad_to`: documents as the rows of one tensor, with their lengths."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from format.document_cases import Plain
from guideloom import (
    DocumentBytesFormat,
    DocumentJSONFormat,
    DocumentNumpyFormat,
    DocumentPickleFormat,
    DocumentStorage,
    EpochPlan,
    Padded,
    StatefulDataLoader,
    StreamNumpyFormat,
    StreamStorage,
)

from .document_cases import AHEAD, DOCUMENTS, NumberedBatch, load, written

numbers = itertools.count()
TOKENS = DocumentNumpyFormat("<u2")


def check(batch: Any, documents: list[list[int]], width: int, pad_value: Any) -> None:
    """A batch of padded documents; writable, and of its own."""
    assert type(batch) is Padded
    values, lengths = batch
    assert type(values) is type(lengths) is torch.Tensor
    assert lengths.dtype == torch.int64
    assert lengths.tolist() == [len(document) for document in documents]
    assert values.shape == (len(documents), width)
    assert values.is_contiguous()
    padded = [document + [pad_value] * (width - len(document)) for document in documents]
    assert values.tolist() == padded
    values.fill_(1)
    lengths.fill_(1)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    documents=st.lists(st.lists(st.integers(0, 65535), max_size=5), min_size=1, max_size=12),
    batch=st.integers(1, 5),
    seed=st.none() | st.integers(0, 9),
    pad_to=st.just("longest") | st.integers(5, 9),
    pad_value=st.integers(0, 65535),
    ahead=st.sampled_from(AHEAD),
)
def test_any_documents(
    documents: list[list[int]],
    batch: int,
    seed: int | None,
    pad_to: Any,
    pad_value: int,
    ahead: tuple[int, int],
    tmp_path: Path,
) -> None:
    """Also the last, shorter batch, and batches of nothing but empty documents."""
    storage = written(tmp_path / str(next(numbers)), TOKENS, documents)
    options: dict[str, Any] = {"local_batch_size": batch, "shuffle": seed is not None}
    plan = EpochPlan(len(documents), seed=seed or 0, drop_last=False, **options)
    prefetch, workers = ahead
    loader = load(
        storage,
        shuffle_seed=seed,
        pad_to=pad_to,
        pad_value=pad_value,
        prefetch=prefetch,
        num_workers=workers,
        **options,
    )
    found = list(loader)
    assert len(found) == len(plan)
    for step, padded in enumerate(found):
        expected = [documents[k] for k in plan.sample_ids(step)]
        longest = max(map(len, expected), default=0)
        check(padded, expected, longest if pad_to == "longest" else pad_to, pad_value)


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize("documents", [[[]], [[], []], [[], [5]], [[5], []], [[], [5], []]])
def test_documents_without_values_first_last_and_only(
    documents: list[list[int]], prefetch: int, workers: int, tmp_path: Path
) -> None:
    storage = written(tmp_path, TOKENS, documents)
    widths: list[Any] = ["longest", 1, 4]
    for pad_to, batch in itertools.product(widths, (1, 3)):
        loader = load(
            storage,
            local_batch_size=batch,
            pad_to=pad_to,
            pad_value=9,
            prefetch=prefetch,
            num_workers=workers,
        )
        for number, padded in enumerate(loader):
            expected = documents[batch * number : batch * (number + 1)]
            longest = max(map(len, expected))
            check(padded, expected, longest if pad_to == "longest" else pad_to, 9)


@pytest.mark.parametrize("pad_to", [6, "longest"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_over_ranks_of_which_some_get_nothing(drop_last: bool, pad_to: Any, tmp_path: Path) -> None:
    """9 documents on 4 ranks in batches of 2: the last step has one document, for rank 0."""
    documents = [*DOCUMENTS, [8, 9]]
    storage = written(tmp_path, TOKENS, documents)
    for rank in range(4):
        loader = load(
            storage,
            local_batch_size=2,
            rank=rank,
            world_size=4,
            drop_last=drop_last,
            pad_to=pad_to,
        )
        steps = [[documents[rank], documents[rank + 4]], [[8, 9]] if rank == 0 else []]
        found = list(loader)
        assert len(found) == (1 if drop_last else 2)
        for padded, expected in zip(found, steps, strict=False):
            longest = max(map(len, expected), default=0)
            check(padded, expected, longest if pad_to == "longest" else pad_to, 0)


@pytest.mark.parametrize("prefetch, workers", AHEAD)
def test_a_document_that_is_too_long_is_named_with_its_step(
    prefetch: int, workers: int, tmp_path: Path
) -> None:
    """The batches before it come first; the position stays there. The longest is what is named."""
    storage = written(tmp_path, TOKENS, [[1], [2, 2], [], [3], [4, 4, 4], [5] * 5, [6, 6]])
    loader = load(
        storage,
        local_batch_size=2,
        pad_to=2,
        prefetch=prefetch,
        num_workers=workers,
    )
    iterator = iter(loader)
    check(next(iterator), [[1], [2, 2]], 2, 0)
    check(next(iterator), [[], [3]], 2, 0)
    text = "^document 5 has 5 values; pad_to is 2. Raise pad_to"
    with pytest.raises(ValueError, match=text) as raised:
        next(iterator)
    step = "epoch 0, rank 0, step 2 since the epoch began or was resumed"
    assert raised.value.__notes__[0] == f"while loading samples 4, 5 ({step})"
    assert loader.position == 4
    wider = load(storage, local_batch_size=2, pad_to=5)
    wider.load_state_dict(loader.state_dict())
    first, second = wider
    check(first, [[4, 4, 4], [5] * 5], 5, 0)
    check(second, [[6, 6]], 5, 0)


def test_the_number_in_the_message_is_the_document_and_not_its_place(tmp_path: Path) -> None:
    """Shuffled, and on a rank: `reader[number]` is what is too long."""
    storage = written(tmp_path, TOKENS, [[k] * (k % 7) for k in range(30)])
    for rank in range(2):
        loader = load(
            storage,
            local_batch_size=15,
            rank=rank,
            world_size=2,
            shuffle=True,
            pad_to=5,
        )
        with pytest.raises(ValueError, match="document") as raised:
            list(loader)
        found = re.match(r"document (\d+) has 6 values; pad_to is 5", str(raised.value))
        assert found is not None
        with storage.sync_reader() as reader:
            assert len(reader[int(found[1])]) == 6


def test_bytes_are_padded(tmp_path: Path) -> None:
    """For models that read bytes: rows of uint8."""
    storage = written(tmp_path, DocumentBytesFormat(), [b"abc", b"", b"\xff"])
    (batch,) = load(storage, local_batch_size=3, pad_to="longest", pad_value=255)
    assert batch.values.dtype == torch.uint8
    check(batch, [[97, 98, 99], [], [255]], 3, 255)


def test_documents_of_a_users_own_format_are_padded_as_they_are_stored(tmp_path: Path) -> None:
    """If it says of which type they are, with `document_dtype`."""
    storage = written(tmp_path, NumberedBatch(), DOCUMENTS)
    (batch,) = load(storage, local_batch_size=8, pad_to=4, pad_value=-100)
    assert batch.values.dtype == torch.int32
    check(batch, DOCUMENTS, 4, -100)


def test_structured_documents_are_padded_with_zeros(tmp_path: Path) -> None:
    dtype = np.dtype([("flag", "?"), ("token", "<u4"), ("pair", "<f2", (2,))])
    documents = [np.zeros(size, dtype) for size in (2, 0, 1)]
    documents[0]["token"] = [7, 8]
    documents[0]["flag"] = True
    documents[2]["pair"] = [[0.5, -1]]
    storage = written(tmp_path, DocumentNumpyFormat(dtype), documents)
    (batch,) = load(storage, local_batch_size=3, pad_to=3)
    assert type(batch) is Padded
    assert batch.lengths.tolist() == [2, 0, 1]
    assert list(batch.values) == ["flag", "token", "pair"]
    assert batch.values["flag"].tolist() == [[True, True, False], [False] * 3, [False] * 3]
    assert batch.values["token"].tolist() == [[7, 8, 0], [0] * 3, [0] * 3]
    assert batch.values["pair"].tolist()[2] == [[0.5, -1], [0, 0], [0, 0]]
    assert batch.values["pair"].shape == (3, 3, 2)


def test_attention_and_loss_from_lengths(tmp_path: Path) -> None:
    """What the lengths are for: a mask of what is no padding."""
    storage = written(tmp_path, DocumentNumpyFormat("<i4"), DOCUMENTS)
    for batch in load(storage, local_batch_size=3, pad_to="longest", pad_value=-100):
        width = batch.values.shape[1]
        mask = torch.arange(width) < batch.lengths[:, None]
        assert mask.tolist() == (batch.values != -100).tolist()
        assert int(mask.sum()) == int(batch.lengths.sum())


# What is refused


@pytest.mark.parametrize("pad_to", [4, "longest"])
@pytest.mark.parametrize("form", [DocumentJSONFormat(), DocumentPickleFormat(), Plain()])
def test_documents_that_are_no_arrays_are_not_padded(
    form: Any, pad_to: Any, tmp_path: Path
) -> None:
    """The message shows which, and what to do; nothing is opened."""
    storage = DocumentStorage(tmp_path / "nowhere", form)
    text = (
        rf"^pad_to is given for DocumentDataset\({re.escape(repr(storage))}\); it pads documents "
        "that are arrays of numbers, as DocumentNumpyFormat has them. Pass a collate_fn for others"
    )
    with pytest.raises(TypeError, match=text):
        load(storage, pad_to=pad_to)


@pytest.mark.parametrize("pad_to", [4, "longest"])
def test_not_together_with_a_collate_fn(pad_to: Any, tmp_path: Path) -> None:
    storage = DocumentStorage(tmp_path / "nowhere", TOKENS)
    text = "^pad_to pads in place of a collate_fn; give one of them"
    with pytest.raises(TypeError, match=text):
        load(storage, list, pad_to=pad_to)


@pytest.mark.parametrize(
    "pad_to, error, text",
    [
        (0, ValueError, "pad_to is 0; expected between 1 and 1099511627776"),
        (-1, ValueError, "pad_to is -1; expected between 1 and"),
        (2**41, ValueError, "pad_to is 2199023255552; expected between 1 and"),
        (2.0, TypeError, r"pad_to is 2\.0 \(float\); expected an integer"),
        (True, TypeError, "pad_to is True; expected an integer"),
        (False, TypeError, "pad_to is False; expected an integer"),
        ([3], TypeError, r"pad_to is \[3\] \(list\); expected an integer"),
        (b"longest", TypeError, r"pad_to is b'longest' \(bytes\)"),
        ("max", ValueError, "pad_to is 'max'; expected a number of values, or \"longest\""),
        ("", ValueError, "pad_to is ''; expected a number of values, or"),
        ("16", ValueError, "pad_to is '16'; expected a number of values, or"),
        ("Longest", ValueError, "pad_to is 'Longest'; expected a number of values, or"),
    ],
)
def test_a_wrong_width_is_refused_before_anything_is_opened(
    pad_to: Any, error: type[Exception], text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=f"^{text}"):
        load(DocumentStorage(tmp_path / "nowhere", TOKENS), pad_to=pad_to)


def test_numpy_integers_are_welcome(tmp_path: Path) -> None:
    storage = written(tmp_path, TOKENS, DOCUMENTS)
    (batch,) = load(storage, local_batch_size=8, pad_to=np.int16(4), pad_value=np.uint8(7))
    check(batch, DOCUMENTS, 4, 7)


WRONG_VALUES = [
    ("<u2", -1),
    ("<u2", 65536),
    ("<u2", 1.5),
    ("<u2", float("nan")),
    ("<u2", 2**70),
    ("<u2", None),
    ("<u2", "0"),
    ("<u2", [0]),
    ("<u2", 1j),
    ("i1", 128),
    ("?", 2),
    ("<u8", -1),
    ("<i8", 2**63),
    ("<f2", 1e6),
    ("<f4", 1e39),
    ("<f4", 2**24 + 1),
    ("<f8", 2**53 + 1),
    ("<f4", "nan"),
    ("S3", b"abc"),
    ("S3", 1),
    ([("x", "<u2")], 1),
]


@pytest.mark.parametrize("dtype, pad_value", WRONG_VALUES, ids=str)
def test_a_wrong_value_is_refused(dtype: Any, pad_value: Any, tmp_path: Path) -> None:
    """No document is padded with another number than the one given."""
    form = DocumentNumpyFormat(dtype)
    storage = written(tmp_path, form, [np.zeros(size, form.document_dtype) for size in (0, 2, 4)])
    text = (
        f"^pad_value is {re.escape(repr(pad_value))}, (which .* does not hold unchanged|and docu)"
    )
    for pad_to in ("longest", 4):
        with pytest.raises(ValueError, match=text):
            next(iter(load(storage, local_batch_size=3, pad_to=pad_to, pad_value=pad_value)))


@pytest.mark.parametrize("dtype, pad_value", WRONG_VALUES, ids=str)
def test_a_wrong_value_is_refused_before_anything_is_opened(
    dtype: Any, pad_value: Any, tmp_path: Path
) -> None:
    """As every other option: at the start of a job, and not by a worker at its first batch."""
    storage = DocumentStorage(tmp_path / "nowhere", DocumentNumpyFormat(dtype))
    with pytest.raises(ValueError, match=r"^pad_value is "):
        load(storage, pad_to=4, pad_value=pad_value)


@pytest.mark.parametrize("pad_value", [1, -100, float("nan"), None, "0"])
def test_a_value_without_a_width_is_refused(pad_value: Any, tmp_path: Path) -> None:
    """Whoever gives one believes that batches are padded."""
    nowhere = tmp_path / "nowhere"
    storages: list[tuple[Any, dict[str, Any]]] = [
        (DocumentStorage(nowhere, TOKENS), {}),
        (DocumentStorage(nowhere, TOKENS), {"collate_fn": list}),
        (StreamStorage(nowhere, StreamNumpyFormat([("x", "<u2")])), {"sequence_length": 4}),
    ]
    for storage, options in storages:
        text = f"^pad_value is {re.escape(repr(pad_value))} and pad_to is not given, so that noth"
        with pytest.raises(TypeError, match=text):
            load(storage, pad_value=pad_value, **options)


@pytest.mark.parametrize(
    "dtype, pad_value, expected",
    [
        ("<u2", 65535, 65535),
        ("i1", -128, -128),
        ("?", True, True),
        ("<i8", -(2**63), -(2**63)),
        ("<u8", 2**64 - 1, 2**64 - 1),
        ("<f2", -1.5, -1.5),
        ("<f4", float("inf"), float("inf")),
        ("<f8", 0.1, 0.1),
        ("<f4", 0.1, np.float32(0.1).item()),
        ("<f2", -1e-3, np.float16(-1e-3).item()),
        ("<c8", 1 - 2j, 1 - 2j),
        ("<c8", 3, 3),
    ],
)
def test_values_that_the_type_holds(
    dtype: str, pad_value: Any, expected: Any, tmp_path: Path
) -> None:
    """At its borders; floats may be rounded."""
    storage = written(tmp_path, DocumentNumpyFormat(dtype), [np.zeros(k, dtype) for k in (0, 1)])
    (batch,) = load(storage, local_batch_size=2, pad_to=2, pad_value=pad_value)
    zero = np.zeros((), dtype).item()
    assert batch.values.tolist() == [[expected, expected], [zero, expected]]


def test_not_a_number_pads_floats(tmp_path: Path) -> None:
    storage = written(tmp_path, DocumentNumpyFormat("<f4"), [np.ones(k, "f4") for k in (0, 1)])
    (batch,) = load(storage, local_batch_size=2, pad_to=2, pad_value=float("nan"))
    assert batch.values.isnan().tolist() == [[True, True], [False, True]]


def test_a_loader_shows_its_dataset(tmp_path: Path) -> None:
    storage = DocumentStorage(tmp_path, TOKENS)
    loader: StatefulDataLoader = load(storage, pad_to=4)
    assert repr(loader.dataset) in repr(loader)


def test_the_loader_shows_how_it_pads(tmp_path: Path) -> None:
    storage = DocumentStorage(tmp_path / "x", DocumentNumpyFormat("<u2"))
    padded = repr(StatefulDataLoader.from_storage(storage, pad_to="longest", pad_value=9))
    assert "pad_to='longest', pad_value=9" in padded
    assert "pad" not in repr(StatefulDataLoader.from_storage(storage))

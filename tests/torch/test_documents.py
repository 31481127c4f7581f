"""Documents as a loader delivers them: a list, decoded, with arrays as tensors of their own."""

from __future__ import annotations

import gc
import itertools
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guideloom import (
    DamagedFileError,
    DocumentBytesFormat,
    DocumentJSONFormat,
    DocumentNumpyFormat,
    DocumentPickleFormat,
    EpochPlan,
)
from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom.types import IOReader

from .document_cases import AHEAD, DOCUMENTS, Numbered, NumberedBatch, load, written

numbers = itertools.count()
into_one_folder = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@into_one_folder
@given(
    documents=st.lists(st.lists(st.integers(0, 65535), max_size=5), min_size=1, max_size=12),
    batch=st.integers(1, 5),
    seed=st.none() | st.integers(0, 9),
    ahead=st.sampled_from(AHEAD),
)
def test_any_documents_are_a_list_of_tensors(
    documents: list[list[int]],
    batch: int,
    seed: int | None,
    ahead: tuple[int, int],
    tmp_path: Path,
) -> None:
    """In the order of the plan, each exactly as it was appended; many are empty."""
    storage = written(tmp_path / str(next(numbers)), DocumentNumpyFormat("<u2"), documents)
    options: dict[str, Any] = {"local_batch_size": batch, "shuffle": seed is not None}
    plan = EpochPlan(len(documents), seed=seed or 0, drop_last=False, **options)
    prefetch, workers = ahead
    loader = load(storage, shuffle_seed=seed, prefetch=prefetch, num_workers=workers, **options)
    found = list(loader)
    assert len(found) == len(loader) == len(plan)
    for step, documents_found in enumerate(found):
        assert type(documents_found) is list
        for document in documents_found:
            assert type(document) is torch.Tensor
            assert (document.dtype, document.ndim) == (torch.uint16, 1)
            assert document.is_contiguous()
        expected = [documents[k] for k in plan.sample_ids(step)]
        assert [document.tolist() for document in documents_found] == expected


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize("documents", [[[]], [[], [], []], [[], [1]], [[1], []], [[], [1], []]])
def test_documents_without_values_first_last_and_only(
    documents: list[list[int]], prefetch: int, workers: int, tmp_path: Path
) -> None:
    for number, dtype in enumerate(("u1", "<f8")):
        arrays = [np.array(document, dtype) for document in documents]
        storage = written(tmp_path / str(number), DocumentNumpyFormat(dtype), arrays)
        for batch in (1, 2, 5):
            loader = load(storage, local_batch_size=batch, prefetch=prefetch, num_workers=workers)
            found = [document for batch in loader for document in batch]
            assert [document.tolist() for document in found] == documents
            assert {document.dtype for document in found} == {
                torch.from_numpy(arrays[0].copy()).dtype
            }


@pytest.mark.parametrize("prefetch, workers", AHEAD)
def test_bytes_stay_bytes(prefetch: int, workers: int, tmp_path: Path) -> None:
    documents = [b"", b"abc", b"\x00\xff", b"", b"x" * 70_000]
    storage = written(tmp_path, DocumentBytesFormat(), documents)
    loader = load(storage, local_batch_size=2, prefetch=prefetch, num_workers=workers)
    found = list(loader)
    assert found == [documents[:2], documents[2:4], documents[4:]]
    assert all(type(document) is bytes for batch in found for document in batch)


@pytest.mark.parametrize("prefetch, workers", AHEAD)
def test_json_stays_as_it_is(prefetch: int, workers: int, tmp_path: Path) -> None:
    """Lists in it are no tensors, and nothing is lost on the way."""
    documents: list[Any] = [
        {"turns": [{"role": "user", "text": "höre"}, {"role": "none", "text": None}], "n": 1},
        [],
        {},
        "",
        0,
        None,
        [True, 2, 2.0, [3, [4]], {"5": [6]}],
        2**70,
    ]
    storage = written(tmp_path, DocumentJSONFormat(), documents)
    loader = load(storage, local_batch_size=3, prefetch=prefetch, num_workers=workers)
    found = list(loader)
    assert [repr(batch) for batch in found] == [repr(documents[k : k + 3]) for k in (0, 3, 6)]


class Turn(NamedTuple):
    """A document of a user."""

    tokens: Any
    speaker: str


def test_arrays_within_pickled_documents_are_tensors(tmp_path: Path) -> None:
    """In mappings, lists, tuples and named tuples; of any layout, and writable. The rest stays."""
    read_only = np.arange(3)
    read_only.flags.writeable = False
    documents: list[Any] = [
        np.arange(6, dtype=np.uint32).reshape(2, 3)[:, ::-1],
        {"a": np.arange(2, dtype=">i4"), "b": [np.array([1.5], "f4"), "text", None]},
        (read_only, 7, b"bytes"),
        Turn(np.zeros(0, np.int16), "user"),
        np.array([1.5, 2], dtype=ml_dtypes.bfloat16),
        torch.arange(3),
        {1, 2},
    ]
    storage = written(tmp_path, DocumentPickleFormat(), documents)
    (found,) = load(storage, local_batch_size=9)
    reversed_rows, mapping, pair, turn, halves, tensor, small = found
    assert reversed_rows.dtype == torch.uint32
    assert reversed_rows.tolist() == [[2, 1, 0], [5, 4, 3]]
    assert list(mapping) == ["a", "b"]
    assert (mapping["a"].dtype, mapping["a"].tolist()) == (torch.int32, [0, 1])
    assert torch.equal(mapping["b"][0], torch.tensor([1.5]))
    assert mapping["b"][1:] == ["text", None]
    assert type(pair) is tuple
    assert pair[0].tolist() == [0, 1, 2]
    assert pair[1:] == (7, b"bytes")
    pair[0].fill_(0)
    assert type(turn) is Turn
    assert (turn.tokens.dtype, turn.tokens.shape, turn.speaker) == (torch.int16, (0,), "user")
    assert torch.equal(halves, torch.tensor([1.5, 2], dtype=torch.bfloat16))
    assert torch.equal(tensor, torch.arange(3))
    assert small == {1, 2}


@pytest.mark.parametrize("prefetch, workers", AHEAD)
def test_documents_of_a_users_own_format(prefetch: int, workers: int, tmp_path: Path) -> None:
    """Structures as `unpack` makes them; the buffer that it is given is writable."""
    for form, shards in ((Numbered(), [2] * 4 + [40] * 4), (NumberedBatch(), ["any"] * 8)):
        storage = written(tmp_path / type(form).__name__, form, DOCUMENTS)
        loader = load(storage, local_batch_size=3, prefetch=prefetch, num_workers=workers)
        found = [document for batch in loader for document in batch]
        assert [document["shard"] for document in found] == shards
        assert [document["numbers"].tolist() for document in found] == DOCUMENTS
        for document in found:
            assert document["numbers"].dtype == torch.int32
            document["numbers"].fill_(3)


class Turns(list[Any]):
    """A list of a user that is not made from an iterable."""

    def __init__(self, *turns: Any) -> None:
        super().__init__(turns)

    def __reduce__(self) -> Any:
        return Turns, tuple(self)


def test_lists_of_a_users_own_class_stay_as_they_are(tmp_path: Path) -> None:
    """They cannot be made anew; ordinary ones around them can."""
    documents: list[Any] = [Turns(1, np.arange(2)), [Turns("a")], {"turns": Turns()}]
    storage = written(tmp_path, DocumentPickleFormat(), documents)
    (found,) = load(storage, local_batch_size=3)
    assert [type(found[0]), type(found[1][0]), type(found[2]["turns"])] == [Turns] * 3
    assert found[0][0] == 1
    assert found[0][1].tolist() == [0, 1]
    assert found[1:] == documents[1:]


def test_a_masked_array_is_refused(tmp_path: Path) -> None:
    """Its mask would be lost."""
    storage = written(
        tmp_path, DocumentPickleFormat(), [{"a": np.ma.array([1, 2], mask=[False, True])}]
    )
    with pytest.raises(TypeError, match=r"^field 'a' is a masked array, which torch does not have"):
        list(load(storage))


def test_structured_documents_are_mappings_of_tensors(tmp_path: Path) -> None:
    """Each field a tensor of its own, contiguous, whatever lies beside it."""
    dtype = np.dtype([("flag", "?"), ("token", "<u4"), ("pair", "<f2", (2,))])
    documents = [np.zeros(size, dtype) for size in (0, 3, 1)]
    documents[1]["flag"] = [True, False, True]
    documents[1]["token"] = [1, 2, 2**32 - 1]
    documents[1]["pair"] = [[1, 2], [3, 4], [5, 6]]
    (found,) = load(written(tmp_path, DocumentNumpyFormat(dtype), documents), local_batch_size=4)
    for mapping, document in zip(found, documents, strict=True):
        assert list(mapping) == ["flag", "token", "pair"]
        for name, tensor in mapping.items():
            assert tensor.is_contiguous()
            assert tensor.tolist() == document[name].tolist()
            assert tuple(tensor.shape) == document[name].shape
            tensor.fill_(0)
    assert [found[1][name].dtype for name in dtype.names or ()] == [
        torch.bool,
        torch.uint32,
        torch.float16,
    ]


def test_bits_of_types_that_documents_do_not_have(tmp_path: Path) -> None:
    """As the message says that refuses bfloat16: an unsigned type, and a view on both sides."""
    with pytest.raises(TypeError, match=r"bfloat16, a type of ml_dtypes; .*store the bits"):
        DocumentNumpyFormat(ml_dtypes.bfloat16)
    documents = [np.array(values, dtype=ml_dtypes.bfloat16) for values in ([1.5, -2], [], [3])]
    storage = written(
        tmp_path, DocumentNumpyFormat("<u2"), [document.view(np.uint16) for document in documents]
    )
    (found,) = load(storage, local_batch_size=3)
    halves = [bits.view(torch.bfloat16) for bits in found]
    assert [half.float().tolist() for half in halves] == [[1.5, -2], [], [3]]


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize("backend", [PosixPreadIO(), MmapIO(), SeekIO()])
def test_a_document_is_the_callers_own(
    tmp_path: Path, backend: IOReader, prefetch: int, workers: int
) -> None:
    """Writing into it changes no other, and it stays when loader and files are gone."""
    storage = written(tmp_path / "x", DocumentNumpyFormat("<u2"), DOCUMENTS, backend)
    loader = load(storage, local_batch_size=4, prefetch=prefetch, num_workers=workers)
    kept: list[torch.Tensor] = []
    for epoch in range(2):
        for number, batch in enumerate(loader):
            for k, document in enumerate(batch):
                assert document.tolist() == DOCUMENTS[4 * number + k]
                if epoch == 0:
                    document.fill_(9)
            kept += batch
    loader.close()
    shutil.rmtree(tmp_path / "x")
    del loader
    gc.collect()
    lists = [document.tolist() for document in kept]
    assert lists == [[9] * len(document) for document in DOCUMENTS] + DOCUMENTS


@pytest.mark.parametrize("prefetch, workers", AHEAD)
def test_collate_fn_gets_a_list_of_decoded_documents(
    prefetch: int, workers: int, tmp_path: Path
) -> None:
    """Arrays, and no tensors yet; what it returns is the batch. An empty batch is an empty list."""

    def collate(documents: list[Any]) -> Any:
        assert type(documents) is list
        for document in documents:
            assert type(document) is np.ndarray
            assert document.dtype == np.uint16
            assert document.flags.writeable
        return [int(document.sum()) for document in documents] or "nothing"

    storage = written(tmp_path, DocumentNumpyFormat("<u2"), DOCUMENTS[:5])
    ahead = {"prefetch": prefetch, "num_workers": workers}
    found = [
        list(load(storage, collate, local_batch_size=2, rank=rank, world_size=2, **ahead))
        for rank in range(2)
    ]
    assert found == [[[0, 4], [0]], [[6, 0], "nothing"]]


@pytest.mark.parametrize("layout", ["ragged", "list"])
def test_nested_tensors(layout: str, tmp_path: Path) -> None:
    """From what `gather` returns without a copy, or from the list of a batch."""
    nested: Any
    documents = [np.array(document, "<i8") for document in DOCUMENTS]
    storage = written(tmp_path, DocumentNumpyFormat("<i8"), documents)
    ids = [6, 0, 1, 6, 7]
    with storage.sync_reader() as reader:
        if layout == "ragged":
            ragged = reader.gather(ids)
            values, offsets = map(torch.from_numpy, (ragged.values, ragged.offsets))
            longest = int(ragged.lengths.max())
            nested = torch.nested.nested_tensor_from_jagged(values, offsets, max_seqlen=longest)
            assert nested.values().data_ptr() == ragged.values.ctypes.data
            assert nested.offsets().tolist() == [0, 4, 4, 7, 11, 11]
        else:
            tensors = [torch.from_numpy(document) for document in reader[ids]]
            nested = torch.nested.nested_tensor(tensors, layout=torch.jagged)
        padded = reader.gather_padded(ids, pad_value=-1)
    assert nested.is_nested
    assert [row.tolist() for row in nested.unbind()] == [DOCUMENTS[k] for k in ids]
    found = torch.nested.to_padded_tensor(nested.float(), padding=-1)
    assert found.tolist() == padded.values.tolist()


class Parsed(DocumentJSONFormat):
    """Text that is parsed when it is read."""

    def pack(self, data: bytes) -> bytes:
        return data


def test_a_document_that_cannot_be_decoded_is_named_with_its_step(tmp_path: Path) -> None:
    """The batches before it come first, and the position stays there."""
    documents = [b"[0]", b"[1]", b"[2]", b"[3]", b'{"half": ', b"[5]"]
    storage = written(tmp_path, Parsed(), documents)
    step = "epoch 0, rank 0, step 2 since the epoch began or was resumed"
    for prefetch, workers in AHEAD:
        loader = load(storage, local_batch_size=2, prefetch=prefetch, num_workers=workers)
        delivered: list[Any] = []
        with pytest.raises(DamagedFileError, match="a document of shard 40 is not JSON") as raised:
            delivered.extend(loader)
        assert delivered == [[[0], [1]], [[2], [3]]]
        assert loader.position == 4
        *others, note, _ = raised.value.__notes__
        assert note == f"while loading samples 4, 5 ({step})"
        assert "document 4 " in others[0]

"""What DocumentIndex and `split` are given: kinds of arrays, numbers outside, other threads."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format.document_model import Model, Sizes
from format.gil_cases import ticks_meanwhile
from guideloom_format import DocumentIndex, _documents
from guideloom_format._documents import split

INTEGER_TYPES = [np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)]


@pytest.mark.parametrize("dtype", INTEGER_TYPES, ids=str)
def test_ids_of_every_integer_type_and_layout(dtype: np.dtype[Any]) -> None:
    model = Model([[1, 2], [], [3] * 100])
    ids = [3, 0, 101, 1, 3]
    expected = model.index.plan_ends(ids).tolist()
    for order in "<>":
        array = np.array(ids, dtype=dtype.newbyteorder(order))  # type: ignore[arg-type]
        frozen = array.copy()
        frozen.flags.writeable = False
        raw = np.zeros(array.nbytes + 1, dtype=np.uint8)
        unaligned = raw[1:].view(array.dtype)
        unaligned[:] = array
        for same in (array, list(array), tuple(array), frozen, unaligned, np.repeat(array, 3)[::3]):
            assert model.index.plan_ends(same).tolist() == expected
    lengths = DocumentIndex(
        np.array([2, 0, 100], dtype), np.array([3, 0, 127], dtype), dtype.type(1)
    )
    assert lengths.plan_ends(ids).tolist() == expected


@pytest.mark.parametrize("ids", [[], (), np.zeros(0, dtype=np.uint8), range(0)], ids=repr)
@pytest.mark.parametrize("sizes", [[], [[]], [[1, 2]]])
def test_no_documents_make_no_rows(ids: Any, sizes: Sizes) -> None:
    model = Model(sizes)
    end_rows = model.index.plan_ends(ids)
    assert end_rows.shape == (0, 4)
    rows, offsets = model.index.plan(end_rows, np.zeros((0, 2), np.int64))
    assert rows.shape == (0, 4)
    assert offsets.tolist() == [0]


@pytest.mark.parametrize("document", [-(2**63), -1, 5, 6, 2**31, 2**62, 2**63 - 1])
@pytest.mark.parametrize("position", [0, 1, 4])
def test_a_document_outside_is_named(document: int, position: int) -> None:
    ids = [0, 4, 0, 4, 2]
    ids[position] = document
    with pytest.raises(
        IndexError,
        match=rf"^document {document} at position {position} is outside \[0, 5\), the documents of "
        "this dataset$",
    ):
        Model([[1, 1], [], [0, 0, 0]]).index.plan_ends(ids)


@pytest.mark.parametrize("sizes", [[], [[]], [[], []]])
def test_every_document_of_an_empty_dataset_is_outside(sizes: Sizes) -> None:
    with pytest.raises(IndexError, match=r"document 0 at position 0 is outside \[0, 0\)"):
        Model(sizes).index.plan_ends([0])


@pytest.mark.parametrize(
    "ids", [[0.0], [True], ["0"], [None], np.zeros(0), np.zeros(1, dtype="M8[s]")], ids=repr
)
def test_ids_that_are_no_integers_are_refused(ids: Any) -> None:
    with pytest.raises(TypeError, match=r"^ids has dtype .*; expected integers$"):
        DocumentIndex([5], [5], 1).plan_ends(ids)
    with pytest.raises(TypeError, match=r"^lengths has dtype .*; expected integers$"):
        DocumentIndex(ids, [5], 1)


@pytest.mark.parametrize("shape", [(), (1, 1), (0, 1)])
def test_ids_that_are_no_vector_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"^ids has {len(shape)} dimensions; expected 1$"):
        DocumentIndex([5], [5], 1).plan_ends(np.zeros(shape, np.int64))


def test_ids_beyond_64_bits() -> None:
    with pytest.raises(ValueError, match=r"ids holds 9223372036854775808; the largest"):
        DocumentIndex([5], [5], 1).plan_ends(np.array([2**63], np.uint64))


@pytest.mark.parametrize("itemsize", [0, -1, -(2**62)])
def test_an_itemsize_below_1_is_refused(itemsize: int) -> None:
    with pytest.raises(ValueError, match=f"^itemsize is {itemsize}; expected at least 1$"):
        DocumentIndex([1], [1], itemsize)


@pytest.mark.parametrize("sizes", [[], [1], [1, 2, 3]])
def test_as_many_sizes_as_parts(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match=f"^{len(sizes)} sizes for 2 parts; expected as many$"):
        DocumentIndex([1, 1], sizes, 1)


def test_lengths_and_sizes_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="lengths holds -1; expected 0 or more"):
        DocumentIndex([3, -1], [3, 3], 1)
    with pytest.raises(ValueError, match=r"more than 2\*\*62"):
        DocumentIndex([2**62, 1], [3, 3], 1)
    with pytest.raises(ValueError, match=r"parts hold 576460752303423489 documents; expected at"):
        DocumentIndex([2**59, 1], [3, 3], 1)
    assert DocumentIndex([2**59], [3], 1).plan_ends([2**59 - 1]).tolist() == [
        [1, 2**62 - 16, 16, 0]
    ]
    with pytest.raises(ValueError, match="sizes holds -1; expected 0 or more"):
        DocumentIndex([3, 1], [3, -1], 1)
    for sizes in ([1.5], [True], ["1"], np.zeros(1)):
        with pytest.raises(TypeError, match=r"sizes has dtype .*; expected integers"):
            DocumentIndex([1], sizes, 1)
    with pytest.raises(ValueError, match="sizes holds 9223372036854775808; the largest"):
        DocumentIndex([1], np.array([2**63], np.uint64), 1)


def test_rows_that_are_not_of_this_index_are_refused() -> None:
    """A row's file must be one of ends; anything else would be read from other memory."""
    index = DocumentIndex([2, 2], [2, 2], 1)
    bounds = np.array([[0, 1]])
    for file in (-1, 0, 1, 4, 2**40, -(2**63)):
        with pytest.raises(IndexError, match=f"row 0 names file {file}, which has no ends"):
            index.plan(np.array([[file, 0, 8, 8]]), bounds)
    rows = index.plan_ends([0])
    for wrong in (
        np.zeros((2, 2), np.int64),
        np.zeros((1, 3), np.int64),
        np.zeros((0, 2), np.int64),
    ):
        with pytest.raises(ValueError, match="as many bounds as rows are needed"):
            index.plan(rows, wrong)
    with pytest.raises(ValueError, match="as many bounds as rows are needed"):
        index.plan(np.array([[2, 0, 8]]), bounds)
    with pytest.raises(IndexError, match="which has no ends"):
        DocumentIndex([], [], 1).plan(rows, bounds)


def test_other_threads_run_while_a_plan_is_made() -> None:
    count = 3_000_000
    index = DocumentIndex([1] * 1000 + [count], [1] * 1000 + [count], 1)
    ids = np.random.default_rng(0).integers(1001, count, count)
    end_rows = index.plan_ends(ids)
    bounds = np.stack([ids - 1001, ids - 1000], axis=1)
    for call in (lambda: index.plan_ends(ids), lambda: index.plan(end_rows, bounds)):
        ticks, seconds = ticks_meanwhile(call)
        assert ticks > 0, f"no other thread ran in the middle of a plan of {seconds:.2f} s"


def test_ids_that_another_thread_changes_stay_harmless() -> None:
    """Each id is read once and checked then; anything else would read from other memory."""
    index = DocumentIndex(np.ones(100_000, dtype=np.int64), np.ones(100_000, dtype=np.int64), 1)
    ids = np.zeros(50_000, dtype=np.int64)
    done = threading.Event()

    def scribble() -> None:
        while not done.is_set():
            ids[-1] = -(2**60)
            ids[-1] = 0

    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        for _ in range(100):
            try:
                rows = index.plan_ends(ids)
            except IndexError as error:
                assert "document" in str(error)  # noqa: PT017
            else:
                assert rows[:, 0].tolist() == [100_000] * 50_000
    finally:
        done.set()
        thread.join()


@settings(max_examples=200, deadline=None)
@given(documents=st.lists(st.binary(max_size=9), max_size=30), before=st.integers(0, 5))
def test_split_gives_the_documents(documents: list[bytes], before: int) -> None:
    """Also where the first one does not begin at 0."""
    values = np.frombuffer(b"x" * before + b"".join(documents) + b"rest", np.uint8)
    offsets = before + np.cumsum([0, *map(len, documents)])
    found = split(values, offsets)
    assert found == documents
    assert all(type(document) is bytes for document in found)
    assert split(values, offsets[:0]) == split(values, offsets[:1]) == []


@pytest.mark.parametrize(
    "offsets, bad", [([0, 5], 0), ([0, 2, 1], 1), ([-1, 2], 0), ([0, 4, 2**62], 1), ([5, 5], 0)]
)
def test_split_stays_in_its_buffer(offsets: list[int], bad: int) -> None:
    with pytest.raises(IndexError, match=f"^document {bad} lies outside the buffer$"):
        split(np.zeros(4, np.uint8), np.array(offsets))


def test_split_of_other_types_is_refused() -> None:
    for values in (np.zeros(4, np.uint16), np.zeros((2, 2), np.uint8), np.zeros(8, np.uint8)[::2]):
        with pytest.raises(ValueError, match=r"[Bb]uffer|contiguous"):
            split(values, np.array([0, 2]))


def test_the_kernels_are_compiled() -> None:
    assert _documents.__file__.endswith(".so")

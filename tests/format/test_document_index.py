"""DocumentIndex against lists of documents: which ends to read, and then which bytes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from format.document_model import Model, Sizes
from guideloom_format import DocumentIndex
from guideloom_format._documents import WrongEndsError

small = st.lists(st.lists(st.sampled_from([0, 0, 1, 2, 7]), max_size=6), max_size=8)
huge = st.lists(st.lists(st.integers(0, 3) | st.integers(2**31, 2**55), max_size=4), max_size=5)
itemsizes = st.sampled_from([1, 2, 3, 8])


def check(model: Model, ids: Sequence[int]) -> None:
    """The ends to read are those of each document and the one before it; then the bytes follow."""
    end_rows = model.index.plan_ends(np.array(ids, dtype=np.int64))
    assert end_rows.dtype == np.int64
    assert end_rows.shape == (len(ids), 4)
    for k, document in enumerate(ids):
        part, within = model.places[document]
        first = within == 0
        assert end_rows[k].tolist() == [
            model.parts + part,
            8 * max(within - 1, 0),
            8 if first else 16,
            16 * k + 8 * first,
        ]
    bounds = model.bounds(end_rows)
    for width in (None, 1, 1000, 2**40):
        rows, offsets = (
            model.index.plan(end_rows, bounds)
            if width is None
            else model.index.plan(end_rows, bounds, width)
        )
        assert rows.dtype == offsets.dtype == np.int64
        assert rows.shape[1:] == (4,)
        assert (rows.tolist(), offsets.tolist()) == model.plan_by_hand(ids, width)


def some_ids(count: int, data: st.DataObject) -> list[int]:
    return data.draw(st.lists(st.integers(0, count - 1), max_size=20) if count else st.just([]))


@settings(max_examples=300, deadline=None)
@given(sizes=small, itemsize=itemsizes, data=st.data())
def test_plans_are_those_of_the_lists(sizes: Sizes, itemsize: int, data: st.DataObject) -> None:
    """Any cut into parts, empty parts and empty documents anywhere, any order, repeated or not."""
    model = Model(sizes, itemsize)
    assert len(model.index) == model.index.total == len(model.places)
    assert model.index.itemsize == itemsize
    check(model, some_ids(len(model.places), data))
    check(model, range(len(model.places)))


@settings(max_examples=150, deadline=None)
@given(sizes=huge, itemsize=itemsizes, data=st.data())
def test_bytes_far_inside_are_exact(sizes: Sizes, itemsize: int, data: st.DataObject) -> None:
    """Offsets beyond 2**32 in the files and in the output."""
    model = Model(sizes, itemsize)
    check(model, some_ids(len(model.places), data))


def test_every_small_cut() -> None:
    """All cuts into up to 3 parts of up to 3 documents of 0 or 2 values, all pairs of documents."""
    parts = [inside for count in range(4) for inside in itertools.product((0, 2), repeat=count)]
    tried = 0
    for count in range(4):
        for sizes in itertools.product(parts, repeat=count):
            model = Model(sizes, 3)
            check(model, range(len(model.places)))
            tried += 1
    assert tried == 1 + 15 + 15**2 + 15**3


@pytest.mark.parametrize("lengths", [[3_000_000_000], [2**31, 0, 2**32 + 5], [1] * 1000 + [2**40]])
def test_billions_of_documents(lengths: list[int]) -> None:
    """By number alone: nothing is kept for a document."""
    index = DocumentIndex(lengths, [10 * length for length in lengths], 1)
    assert len(index) == sum(lengths)
    borders = [0, *itertools.accumulate(lengths)]
    for document in {
        border + step
        for border in (*borders[:3], *borders[-2:], 2**31, 2**32, 2_999_999_999)
        for step in (-1, 0, 1)
        if 0 <= border + step < sum(lengths)
    }:
        part = next(k for k, end in enumerate(borders[1:]) if document < end)
        within = document - borders[part]
        expected = [len(lengths) + part, 8 * (within - 1), 16, 0]
        if not within:
            expected = [len(lengths) + part, 0, 8, 8]
        end_rows = index.plan_ends([document])
        assert end_rows.tolist() == [expected]
        rows, _ = index.plan(end_rows, np.array([[10 * within, 10 * within + 10]]))
        assert rows.tolist() == [[part, 10 * within, 10, 0]]


def test_sizes_near_2_to_the_62() -> None:
    """A document, a file and a batch of up to 2**62 bytes are exact; a larger batch is refused."""
    top = 2**62
    for itemsize in (1, 2, 2**24):
        index = DocumentIndex([2], [top], itemsize)
        end_rows = index.plan_ends([0, 1])
        for border in (0, itemsize, top - itemsize, top):
            bounds = np.array([[7, border], [border, top]])
            rows, offsets = index.plan(end_rows, bounds)
            assert offsets.tolist() == [0, border // itemsize, top // itemsize]
            expected = [[0, 0, border, 0], [0, border, top - border, border]]
            assert rows.tolist() == [row for row in expected if row[2]]
    index = DocumentIndex([1, 1], [top, 1], 1)
    with pytest.raises(WrongEndsError) as raised:
        index.plan(index.plan_ends([0, 1]), np.array([[0, top], [0, 1]]))
    assert raised.value.position == 1


def allowed(start: int, end: int, size: int, itemsize: int, *, last: bool) -> bool:
    """Whether a document of a file of this size may have these bytes: what the format page says."""
    return 0 <= start <= end <= size and (end - start) % itemsize == 0 and (not last or end == size)


def check_wrong(model: Model, ids: Sequence[int], bounds: NDArray[np.int64]) -> bool:
    """Whatever the ends are: the first document that cannot be is named, or all of them can be."""
    end_rows = model.index.plan_ends(list(ids))
    ranges = []
    for document, (start, end) in zip(ids, bounds.tolist(), strict=True):
        part, k = model.places[document]
        size = model.file_sizes[part]
        begin = start if k else 0
        last = k == len(model.ends[part]) - 1
        ranges.append((part, begin, end, allowed(begin, end, size, model.itemsize, last=last)))
    bad = [k for k, (*_, fine) in enumerate(ranges) if not fine]
    if bad:
        with pytest.raises(WrongEndsError, match=rf"ends of document {bad[0]} of the batch are"):
            model.index.plan(end_rows, bounds)
        with pytest.raises(WrongEndsError) as raised:
            model.index.plan(end_rows, bounds, 5)
        assert raised.value.position == bad[0]
    else:
        rows, offsets = model.index.plan(end_rows, bounds)
        sizes = [end - start for _, start, end, _ in ranges]
        assert np.diff(offsets).tolist() == [size // model.itemsize for size in sizes]
        assert rows[:, :3].tolist() == [[p, s, e - s] for p, s, e, _ in ranges if e > s]
    return bool(bad)


@settings(max_examples=400, deadline=None)
@given(sizes=small, itemsize=itemsizes, data=st.data())
def test_any_ends_at_all(sizes: Sizes, itemsize: int, data: st.DataObject) -> None:
    """Ends from 0 to 2**64 - 1, as a damaged file may have them."""
    model = Model(sizes, itemsize)
    ids = some_ids(len(model.places), data)
    end = (
        st.integers(0, 2**64 - 1)
        | st.integers(0, 20)
        | st.sampled_from([0, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
        | st.sampled_from([end for ends in model.ends for end in ends] or [0])
    )
    pairs = data.draw(st.lists(st.tuples(end, end), min_size=len(ids), max_size=len(ids)))
    bounds = np.array(pairs, dtype=np.uint64).reshape(-1, 2).view(np.int64)
    check_wrong(model, ids, bounds)


def test_every_way_of_being_wrong() -> None:
    """Each end of a part replaced by each value that is not what it must be."""
    model = Model([[1, 0, 3], [2], [0, 4], [5, 5, 5]], 2)
    strange = [*range(40), 2**32, 2**62, 2**63 - 1, -1, -2, -(2**63)]
    wrong = fine = 0
    for document in range(len(model.places)):
        ids = [0, document, 4]
        for column, value in itertools.product((0, 1), strange):
            bounds = model.bounds(model.index.plan_ends(ids)).copy()
            bounds[1, column] = value
            if check_wrong(model, ids, bounds):
                wrong += 1
            else:
                fine += 1
    assert wrong > 500
    assert fine > 100


@pytest.mark.parametrize(
    "bounds, position",
    [
        ([[4, 10], [10, 8]], 1),  # decreasing
        ([[4, 10], [10, 22]], 1),  # beyond the file
        ([[-2, 10], [10, 12]], 0),  # negative
        ([[4, 11], [10, 12]], 0),  # not a multiple
        ([[4, 10], [10, 12]], None),
        ([[4, 4], [4, 4]], None),  # empty
    ],
)
def test_examples_of_wrong_ends(bounds: list[list[int]], position: int | None) -> None:
    index = DocumentIndex([10], [20], 2)
    end_rows = index.plan_ends([3, 4])
    if position is None:
        index.plan(end_rows, np.array(bounds))
        return
    with pytest.raises(WrongEndsError) as raised:
        index.plan(end_rows, np.array(bounds))
    assert raised.value.position == position

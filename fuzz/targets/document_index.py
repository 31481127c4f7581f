"""`DocumentIndex`: hostile tables, ids and ends, against plain arithmetic."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from guideloom_format import DocumentIndex
from guideloom_format._documents import WrongEndsError
from targets.base import Target, attempt
from targets.taking import Taking, mutate_plain

ITEMSIZES = [1, 2, 3, 8, 4096, 1 << 24]
MOST = 1 << 62


def feed(data: bytes) -> None:
    taking = Taking(data)
    itemsize = ITEMSIZES[taking.below(len(ITEMSIZES))]
    parts = taking.below(6)
    lengths, sizes = taking.numbers(parts, 5), taking.numbers(parts, 200)
    index = attempt(lambda: [DocumentIndex(lengths, sizes, itemsize)], ValueError)
    total = sum(lengths.tolist())
    if index is None:
        bad = min(lengths.tolist(), default=0) < 0 or min(sizes.tolist(), default=0) < 0
        assert bad or total > MOST // 8
        return
    assert len(index[0]) == total <= MOST // 8
    ids = taking.numbers(taking.below(20), max(1, min(total, 100)))
    rows = attempt(lambda: index[0].plan_ends(ids), IndexError)
    assert (rows is None) == any(not 0 <= k < total for k in ids.tolist())
    if rows is not None:
        ends = taking.numbers(2 * ids.size, 200).reshape(-1, 2)
        if taking.below(2):
            ends.sort(axis=1)
        check_plan(index[0], lengths, sizes, ids, rows, ends)


def check_plan(
    index: DocumentIndex,
    lengths: NDArray[np.int64],
    sizes: NDArray[np.int64],
    ids: NDArray[np.int64],
    rows: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> None:
    """Compare both plans with what the format's page says of each document."""
    firsts = [0, *itertools.accumulate(lengths.tolist())]
    documents, wrong, packed = [], None, 0
    for k, number in enumerate(ids.tolist()):
        part = max(p for p in range(len(lengths)) if firsts[p] <= number and lengths[p])
        within = number - firsts[part]
        expected = (len(lengths) + part, 8 * max(within - 1, 0), 16 if within else 8)
        assert tuple(rows[k, :3].tolist()) == expected
        assert rows[k, 3] == 16 * k + (0 if within else 8)
        start = int(ends[k, 0]) if within else 0
        end, size = int(ends[k, 1]), int(sizes[part])
        last = within == lengths[part] - 1
        fits = 0 <= start <= end <= size and (end - start) % index.itemsize == 0
        packed += end - start
        if wrong is None and (not fits or (last and end != size) or packed > MOST):
            wrong = k
        documents.append((part, start, end - start))
    found, at = plan_or_wrong(index, rows, ends)
    assert at == wrong
    if found is None:
        return
    plan, offsets = found
    starts = [0, *itertools.accumulate(nbytes for _, _, nbytes in documents)]
    assert offsets.tolist() == [start // index.itemsize for start in starts]
    assert plan.tolist() == [
        [*document, start]
        for document, start in zip(documents, starts[:-1], strict=True)
        if document[2]
    ]


def plan_or_wrong(
    index: DocumentIndex, rows: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]] | None, int | None]:
    try:
        return index.plan(rows, ends), None
    except WrongEndsError as error:
        return None, error.position


def seeds() -> list[bytes]:
    return [
        bytes([1, 2, 3, 2, 40, 60, 5, 0, 1, 2, 3, 4, 0, 10, 10, 20, 20, 40, 0, 30, 30, 60, 1]),
        bytes([0, 4, 0, 1, 0, 4, 0, 5, 0, 100, 6, 0, 1, 2, 3, 4, 1, 0, 5, 0, 7, 7, 7, 50, 100, 0]),
        bytes([2, 1, 200, 201, 202, 203, 204, 205, 206, 207, 208, 209, 210, 1]),
        bytes(8),
    ]


TARGET = Target("document_index", feed, mutate_plain, seeds)

"""Whether the ends of documents and spans are what they must be, for `verify`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from guideloom_format import Header, IOFiles, PartTable
from guideloom_format._parts import DOCUMENTS, END_BYTES, ENDS, PAYLOADS, SPAN_BYTES, SPANS
from guideloom_read._byte_order import native

_STEP_ROWS = 1 << 17

Problem = tuple[int, int, str]


def end_faults(
    header: Header, table: PartTable, k: int, role: str, files: IOFiles
) -> Iterator[Problem]:
    """Start, stop and description of each fault in the ends of part k.

    Args:
        header: of the dataset.
        table: of its parts.
        k: number of the part.
        role: of the file; one without ends has no faults.
        files: the files of this role.
    """
    length = int(table.length[k])
    if role == ENDS:
        size = int(table.nbytes[DOCUMENTS][k])
        columns = [("the documents", size, header.element_type.itemsize)]
        rows = length
    elif role == SPANS:
        size = int(table.nbytes[PAYLOADS][k])
        columns = [("the elements", length, 1), ("the payloads", size, 1)]
        rows = int(table.nbytes[SPANS][k]) // SPAN_BYTES
    else:
        return
    width = END_BYTES * len(columns)
    before = np.zeros((1, len(columns)), dtype=np.int64)
    for first in range(0, rows, _STEP_ROWS):
        count = min(_STEP_ROWS, rows - first)
        chunk = np.empty((count, len(columns)), dtype=np.int64)
        files.fill(np.array([[k, first * width, count * width, 0]], dtype=np.int64), chunk)
        ends = np.concatenate((before, native(chunk)))
        for column, (what, last, step) in enumerate(columns):
            yield from _wrong(ends[:, column], first, width, what, last, step)
        before = ends[-1:]
    for column, (what, last, _) in enumerate(columns):
        if rows and before[0, column] < last:
            problem = (
                f"the last end of {what} is {_unsigned(before[0, column])}; expected {last}. "
                "Restore the file from a copy"
            )
            yield (rows - 1) * width, rows * width, problem


def _wrong(
    ends: NDArray[np.int64], first: int, width: int, what: str, last: int, step: int
) -> Iterator[Problem]:
    bad = (ends[1:] < ends[:-1]) | (ends[1:] > last) | (ends[1:] % step != 0)
    for row in np.flatnonzero(bad)[:1].tolist():
        found, before = _unsigned(ends[row + 1]), _unsigned(ends[row])
        problem = (
            f"end {first + row} of {what} is {found} after {before}; expected ends that grow to "
            f"{last} in steps of {step}. Restore the file from a copy"
        )
        yield (first + row) * width, (first + row + 1) * width, problem


def _unsigned(end: np.int64) -> int:
    return int(end) % 2**64

"""Whether the ends of documents and spans are what they must be, for `verify`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from guideloom_format import Header, PartTable
from guideloom_format._parts import DOCUMENTS, END_BYTES, ENDS, PAYLOADS, SPANS
from guideloom_read._byte_order import native

Problem = tuple[int, int, str]


class EndsCheck:
    """Looks at the ends of one file from its beginning to its end, piece by piece.

    Args:
        header: of the dataset.
        table: of its parts.
        k: number of the part.
        role: of the file; one without ends has no faults.
    """

    def __init__(self, header: Header, table: PartTable, k: int, role: str) -> None:
        self._columns: list[tuple[str, int, int]] = []
        if role == ENDS:
            size = int(table.nbytes[DOCUMENTS][k])
            self._columns = [("the documents", size, header.element_type.itemsize)]
        elif role == SPANS:
            size = int(table.nbytes[PAYLOADS][k])
            self._columns = [
                ("the elements", int(table.length[k]), 1),
                ("the payloads", size, 1),
            ]
        self._width = END_BYTES * len(self._columns)
        self._rows = 0
        self._before = np.zeros((1, len(self._columns)), dtype=np.int64)

    def faults(self, piece: NDArray[np.uint8]) -> Iterator[Problem]:
        """Start, stop and description of each fault in the next bytes, which are whole rows."""
        if not self._columns or not piece.size:
            return
        chunk = native(piece.view(np.int64).reshape(-1, len(self._columns)))
        ends = np.concatenate((self._before, chunk))
        for column, (what, last, step) in enumerate(self._columns):
            yield from self._wrong(ends[:, column], what, last, step)
        self._before = ends[-1:].copy()
        self._rows += len(chunk)

    def faults_of_the_end(self) -> Iterator[Problem]:
        """Whether the last ends are the sizes that they must be."""
        for column, (what, last, _) in enumerate(self._columns):
            if self._rows and self._before[0, column] < last:
                problem = (
                    f"the last end of {what} is {_unsigned(self._before[0, column])}; expected "
                    f"{last}. Restore the file from a copy"
                )
                yield (self._rows - 1) * self._width, self._rows * self._width, problem

    def _wrong(self, ends: NDArray[np.int64], what: str, last: int, step: int) -> Iterator[Problem]:
        bad = (ends[1:] < ends[:-1]) | (ends[1:] > last) | (ends[1:] % step != 0)
        for row in np.flatnonzero(bad)[:1].tolist():
            found, before = _unsigned(ends[row + 1]), _unsigned(ends[row])
            number = self._rows + row
            problem = (
                f"end {number} of {what} is {found} after {before}; expected ends that grow to "
                f"{last} in steps of {step}. Restore the file from a copy"
            )
            yield number * self._width, (number + 1) * self._width, problem


def _unsigned(end: np.int64) -> int:
    return int(end) % 2**64

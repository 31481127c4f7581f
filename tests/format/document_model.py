"""A dataset of documents as lists of sizes: what `DocumentIndex` is compared with."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from guideloom_format import DocumentIndex

Rows = list[list[int]]
Sizes = Sequence[Sequence[int]]
"""For each part the sizes of its documents, in values."""


class Model:
    """A dataset of documents as lists, and the files of ends that it would have."""

    def __init__(self, sizes: Sizes, itemsize: int = 1) -> None:
        self.itemsize = itemsize
        self.parts = len(sizes)
        self.places = [(part, k) for part, inside in enumerate(sizes) for k in range(len(inside))]
        self.ends = [[end * itemsize for end in itertools.accumulate(inside)] for inside in sizes]
        self.file_sizes = [ends[-1] if ends else 0 for ends in self.ends]
        self.index = DocumentIndex([*map(len, sizes)], self.file_sizes, itemsize)

    def range_of(self, document: int) -> tuple[int, int, int]:
        """Part, first byte and the byte behind the last one."""
        part, k = self.places[document]
        return part, self.ends[part][k - 1] if k else 0, self.ends[part][k]

    def bounds(self, end_rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """What a backend reads for these rows; bytes that no row covers are left as they were."""
        files = [struct.pack(f"<{len(ends)}Q", *ends) for ends in self.ends]
        out = bytearray(b"\xaa" * (16 * len(end_rows)))
        for file, offset, nbytes, at in end_rows.tolist():
            content = files[file - self.parts]
            assert 0 <= offset <= offset + nbytes <= len(content)
            out[at : at + nbytes] = content[offset : offset + nbytes]
        return np.frombuffer(out, np.int64).reshape(-1, 2)

    def plan_by_hand(self, ids: Sequence[int], width: int | None = None) -> tuple[Rows, list[int]]:
        rows, offsets = [], [0]
        for k, document in enumerate(ids):
            part, start, end = self.range_of(document)
            at = offsets[-1] * self.itemsize if width is None else k * width
            if end > start:
                rows.append([part, start, end - start, at])
            offsets.append(offsets[-1] + (end - start) // self.itemsize)
        return rows, offsets

"""The loops of c_document_loops.c: the bare minimum for batches of documents of any length."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from c_loops import Call, CompiledLoops

Arrays = Sequence[NDArray[Any]]


class CDocumentLoops(CompiledLoops):
    """The compiled loops. Each method prepares a call; nothing runs until it is called.

    Args:
        batch: documents of a batch.
        capacity: bytes of the buffer that is filled again and again; the largest batch fits.
    """

    def __init__(self, batch: int, capacity: int) -> None:
        super().__init__("c_document_loops.c")
        self.values = np.empty(capacity, dtype=np.uint8)
        self.offsets = np.zeros(batch + 1, dtype=np.int64)

    def pread_documents(
        self,
        ends_files: NDArray[np.int32],
        files: NDArray[np.int32],
        documents: NDArray[np.int64],
    ) -> Call:
        """Read documents, (count, 2) file and number in the file; where they lie is read, too."""
        return self._batches("pread_documents", (ends_files, files, documents))

    def pread_ranges(self, files: NDArray[np.int32], ranges: NDArray[np.int64]) -> Call:
        """Read byte ranges, (count, 3) file, offset and bytes."""
        return self._batches("pread_ranges", (files, ranges))

    def copy_documents(self, ends_maps: Arrays, maps: Arrays, documents: NDArray[np.int64]) -> Call:
        """Copy documents of mapped files; where they lie is looked up in other mapped files."""
        arrays = (_addresses(ends_maps), _addresses(maps), documents)
        return self._batches("copy_documents", arrays, (ends_maps, maps))

    def copy_ranges(self, maps: Arrays, ranges: NDArray[np.int64]) -> Call:
        """Copy byte ranges of mapped files."""
        return self._batches("copy_ranges", (_addresses(maps), ranges), maps)

    def _batches(self, name: str, arrays: tuple[NDArray[Any], ...], kept: object = None) -> Call:
        count = len(arrays[-1])
        sizes = (count, self.offsets.size - 1, self.values.size)
        numbers = [ctypes.c_int64(size) for size in sizes]
        return self.prepare(
            name, count, *arrays, *numbers, self.offsets, self.values, kept=(self, kept)
        )


def _addresses(maps: Arrays) -> NDArray[np.int64]:
    return np.array([mapped.ctypes.data for mapped in maps], dtype=np.int64)

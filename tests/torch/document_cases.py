"""Datasets of documents, and loaders over them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from guideloom import DocumentStorage, StatefulDataLoader
from guideloom.types import IOReader
from guideloom_write import DocumentWriter
from write.faulty_files import Watched

AHEAD = [(0, 0), (4, 0), (0, 1), (4, 3)]  # (prefetch, num_workers)
DOCUMENTS = [[], [1, 2, 3], [4], [], [], [5, 6], [65535, 0, 0, 7], []]


def written(
    directory: Path, form: Any, documents: Sequence[Any], io: IOReader | None = None
) -> DocumentStorage:
    """The documents in two shards of two parts; in the order given."""
    half = len(documents) // 2
    storage = DocumentStorage(directory, form, io)
    for part in range(2):
        with DocumentWriter(storage, files=Watched()) as writer:
            for shard, some in ((2, documents[:half]), (40, documents[half:])):
                middle = len(some) // 2
                writer.extend(shard, some[:middle] if part == 0 else some[middle:])
    return storage


def load(storage: DocumentStorage, *arguments: Any, **options: Any) -> StatefulDataLoader:
    return StatefulDataLoader.from_storage(storage, *arguments, **{"drop_last": False, **options})


class Numbered:
    """A user's format: documents are lists of numbers; a sample says its shard, too."""

    def pack(self, data: list[int]) -> bytes:
        return np.array(data, dtype="<i4").tobytes()

    def unpack(self, buffer: memoryview, shard: int) -> Any:
        return {"shard": shard, "numbers": np.frombuffer(buffer, "<i4")}


class NumberedBatch(Numbered):
    """The same with a way for many at once, which says that it was taken."""

    document_dtype = np.dtype("<i4")

    def unpack_batch(self, values: Any, offsets: Any) -> list[Any]:
        bounds = offsets.tolist()
        return [
            {"shard": "any", "numbers": values[begin:end]}
            for begin, end in itertools.pairwise(bounds)
        ]

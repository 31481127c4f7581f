"""What the readers of documents compete with: loops in C, and bagz if it is installed.

A contestant gets the ids of a round, (batches, BATCH), and returns the call that reads them; the
call returns the documents of the last batch, in a form that `batch_bytes` understands.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from c_document_loops import CDocumentLoops
from c_loops import Call
from document_set import BATCH, DocumentSet, document_bytes, read_through

Ids = NDArray[np.int64]
Contestant = Callable[[Ids], Callable[[], Any]]

PREADS, PREADS_ONLY = "C loop, pread", "C loop, pread, places known"
COPIES, COPIES_ONLY = "C loop, memcpy", "C loop, memcpy, places known"
BAGZ, BAGZ_MANY = "bagz reader[i]", "bagz read_indices"


def c_contestants(documents: DocumentSet, opened: ExitStack) -> dict[str, Contestant]:
    """The loops in C, with the ends looked up and without."""
    loops = CDocumentLoops(BATCH, documents.largest_batch)

    def descriptors(role: str) -> NDArray[np.int32]:
        numbers = [os.open(path, os.O_RDONLY) for path in documents.files(role)]
        for number in numbers:
            opened.callback(os.close, number)
        return np.array(numbers, dtype=np.int32)

    def maps(role: str, dtype: str) -> list[NDArray[Any]]:
        return [np.memmap(path, dtype=dtype, mode="r") for path in documents.files(role)]

    files, ends_files = descriptors("documents"), descriptors("ends")
    mapped, ends_mapped = maps("documents", "|u1"), maps("ends", "<i8")

    def numbers(ids: Ids) -> NDArray[np.int64]:
        return np.stack(np.divmod(ids.reshape(-1), documents.per_shard), axis=1)

    def ranges(ids: Ids) -> NDArray[np.int64]:
        flat = ids.reshape(-1)
        lengths = documents.lengths[flat]
        shards = flat // documents.per_shard
        return np.stack([shards, documents.ends[flat] - lengths, lengths], axis=1)

    def contestant(prepare: Callable[[Ids], Call]) -> Contestant:
        def prepared(ids: Ids) -> Callable[[], Any]:
            call = prepare(ids)

            def run() -> Any:
                call()
                return loops

            return run

        return prepared

    return {
        PREADS: contestant(lambda ids: loops.pread_documents(ends_files, files, numbers(ids))),
        PREADS_ONLY: contestant(lambda ids: loops.pread_ranges(files, ranges(ids))),
        COPIES: contestant(lambda ids: loops.copy_documents(ends_mapped, mapped, numbers(ids))),
        COPIES_ONLY: contestant(lambda ids: loops.copy_ranges(mapped, ranges(ids))),
    }


def bagz_file(folder: Path, documents: DocumentSet) -> Path | None:
    """The same documents as records of one uncompressed file; None if bagz is not installed."""
    if importlib.util.find_spec("bagz") is None:
        return None
    bagz = importlib.import_module("bagz")
    path = folder / "documents.bag"
    options = bagz.Writer.Options(compression=bagz.CompressionNone())
    with bagz.Writer(str(path), options) as writer:
        for document in document_bytes(documents.lengths):
            writer.write(document)
    with path.open("rb") as file:
        os.fsync(file.fileno())  # or the kernel writes while others are measured
    read_through(path)
    return path


def bagz_contestants(path: Path) -> dict[str, Contestant]:
    """Records one by one, as a sequence gives them, and a batch at a time.

    One thread, like all others: with more, `read_indices` takes thirty times as long here.
    """
    bagz = importlib.import_module("bagz")
    options = bagz.Reader.Options(compression=bagz.CompressionNone(), max_parallelism=1)
    reader = bagz.Reader(str(path), options)

    def one_by_one(ids: Ids) -> Callable[[], Any]:
        batches = ids.tolist()

        def run() -> Any:
            for some in batches:
                batch = [reader[i] for i in some]
            return batch

        return run

    def many(ids: Ids) -> Callable[[], Any]:
        batches = list(ids)

        def run() -> Any:
            for some in batches:
                batch = reader.read_indices(some)
            return batch

        return run

    return {BAGZ: one_by_one, BAGZ_MANY: many}


def batch_bytes(batch: Any) -> list[bytes]:
    """The documents of a batch, whoever read it."""
    if isinstance(batch, list):
        return [bytes(document) for document in batch]
    values, offsets = batch.values, batch.offsets.tolist()
    return [values[offsets[k] : offsets[k + 1]].tobytes() for k in range(len(offsets) - 1)]

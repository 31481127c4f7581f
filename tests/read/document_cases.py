"""Document datasets of known content, the lists they should read as, and a backend that counts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from format.document_cases import Typed
from guideloom.io import PosixPreadIO
from guideloom.types import IOFiles, IOReader, IOSession
from guideloom_format import DocumentStorage
from guideloom_read import DocumentReader
from guideloom_write import DocumentWriter
from write.faulty_files import Watched

VALUES: dict[int, np.dtype[Any]] = {
    1: np.dtype("u1"),
    2: np.dtype("<u2"),
    5: np.dtype([("token", "<u4"), ("mask", "u1")]),
}
"""A type of values of each size."""

SHARDS = [0, 1, 3, 1000, 10**9]

Append = tuple[int, Sequence[bytes], str]
"""A shard, documents to append to it, and how."""
Commits = Sequence[Sequence[Append]]


def append(writer: DocumentWriter, shard: int, documents: Sequence[bytes], how: str) -> None:
    """One call for each document, or one call for all of them, given as a list or one by one."""
    before = writer.length(shard)
    if how == "append":
        for document in documents:
            writer.append(shard, document)
    else:
        writer.extend(shard, list(documents) if how == "extend" else iter(documents))
    assert writer.length(shard) == before + len(documents)


def write_commits(storage: DocumentStorage, commits: Commits, new_writer: int = 2) -> None:
    """Every commit of this number is that of a new writer, which goes on behind what it finds."""
    writer = DocumentWriter(storage, files=Watched()).open()
    for number, appends in enumerate(commits):
        for shard, documents, how in appends:
            append(writer, shard, documents, how)
        writer.commit()
        if number % new_writer == 0:
            writer.close()
            writer = DocumentWriter(storage, files=Watched()).open()
    writer.close()


def in_order(commits: Commits) -> list[tuple[bytes, int]]:
    """Every document and its shard."""
    shards: dict[int, list[bytes]] = {}
    for shard, documents, _ in itertools.chain.from_iterable(commits):
        shards.setdefault(shard, []).extend(documents)
    return [(document, shard) for shard in sorted(shards) for document in shards[shard]]


def documents_of(itemsize: int) -> st.SearchStrategy[bytes]:
    """Many are empty."""
    return st.sampled_from([0, 0, 1, 2, 3, 30]).flatmap(
        lambda count: st.binary(min_size=count * itemsize, max_size=count * itemsize)
    )


def commits_of(itemsize: int) -> st.SearchStrategy[Commits]:
    """Any cut into commits, shards with gaps between their numbers, and calls of the writer."""
    how = st.sampled_from(["append", "extend", "iterator"])
    documents = st.lists(documents_of(itemsize), max_size=5)
    appends = st.tuples(st.sampled_from(SHARDS), documents, how)
    return st.lists(st.lists(appends, max_size=4), max_size=4)


def some_commits(itemsize: int = 1, seed: int = 0) -> Commits:
    """30 documents in shards 0, 3 and 1000, of one to three parts."""
    rng = np.random.default_rng(seed)
    sizes = [int(size) for size in rng.choice([0, 1, 2, 7, 40], 30)]
    sizes[0] = sizes[-1] = sizes[14] = 0
    made = [rng.bytes(size * itemsize) for size in sizes]
    return [
        [(3, made[:5], "extend"), (0, made[5:9], "append")],
        [(3, made[9:10], "append"), (1000, made[10:20], "iterator")],
        [(3, made[20:25], "append"), (0, made[25:30], "extend")],
    ]


def dataset(
    directory: Path, itemsize: int = 1, io: IOReader | None = None, seed: int = 0
) -> tuple[DocumentStorage, list[tuple[bytes, int]]]:
    """Those documents on disk, and what a reader gives for each."""
    storage = DocumentStorage(directory, Typed(VALUES[itemsize]), io)
    commits = some_commits(itemsize, seed)
    write_commits(storage, commits)
    return storage, in_order(commits)


def raw(values: Any) -> bytes:
    return np.ascontiguousarray(values).tobytes()


def check_batch(
    reader: DocumentReader, expected: Sequence[tuple[bytes, int]], ids: Sequence[int]
) -> None:
    """These documents in every form in which a batch can be had."""
    wanted = [expected[k] for k in ids]
    dtype = reader.storage.element_type
    assert reader.read_many(ids) == wanted
    assert reader[np.array(ids, dtype=np.int64)] == wanted
    ragged = reader.gather(ids)
    assert ragged.values.dtype == dtype
    assert ragged.values.ndim == 1
    assert ragged.values.flags.c_contiguous
    assert ragged.offsets.dtype == np.int64
    assert ragged.offsets.shape == (len(ids) + 1,)
    assert ragged.values.tobytes() == b"".join(document for document, _ in wanted)
    assert [raw(array) for array in ragged.arrays()] == [document for document, _ in wanted]
    assert ragged.lengths.tolist() == [len(document) // dtype.itemsize for document, _ in wanted]
    longest = max(ragged.lengths.tolist(), default=0)
    for pad_to in (None, longest, longest + 3):
        padded = reader.gather_padded(ids, pad_to)
        width = longest if pad_to is None else pad_to
        assert padded.values.shape == (len(ids), width)
        assert padded.values.dtype == dtype
        assert padded.lengths.dtype == np.int64
        assert padded.lengths.tolist() == ragged.lengths.tolist()
        for row, (document, _) in zip(padded.values, wanted, strict=True):
            assert raw(row) == document.ljust(width * dtype.itemsize, b"\0")


def check_reader(reader: DocumentReader, expected: Sequence[tuple[bytes, int]]) -> None:
    """All documents, in every way of asking for them."""
    count = len(expected)
    assert len(reader) == count
    assert [reader.read(k) for k in range(count)] == list(expected)
    assert [reader[k - count] for k in range(count)] == list(expected)
    assert list(reader) == list(expected)
    assert list(reversed(reader)) == list(reversed(expected))
    for part in (slice(None), slice(None, None, -1), slice(1, -1, 2), slice(-3, None), slice(5, 2)):
        assert reader[part] == list(expected)[part]
    check_batch(reader, expected, range(count))
    check_batch(reader, expected, [*range(count - 1, -1, -2), *range(0, count, 3)])
    check_batch(reader, expected, [])


@dataclass(frozen=True)
class CountingIO:
    """Reads with another backend, and notes what is asked for: the rows of each `fill`."""

    inner: IOReader = field(default_factory=PosixPreadIO)
    fills: list[tuple[list[str], list[list[int]]]] = field(default_factory=list)

    def open(self, directory: str) -> IOSession:
        session: Any = self.inner.open(directory)
        open_files = session.open_files

        def counted(names: Sequence[str], sizes: NDArray[np.int64]) -> IOFiles:
            return _CountedFiles(open_files(names, sizes), names, self.fills)

        session.open_files = counted
        return session  # type: ignore[no-any-return]

    def take(self) -> list[list[tuple[str, int, int]]]:
        """For each fill since the last call: role, offset and size of its ranges."""
        found = [
            [(names[row[0]].rpartition(".")[2], row[1], row[2]) for row in rows]
            for names, rows in self.fills
        ]
        self.fills.clear()
        return found


class _CountedFiles:
    def __init__(self, inner: IOFiles, names: Sequence[str], fills: list[Any]) -> None:
        self._inner = inner
        self._names = names
        self._fills = fills

    def fill(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        self._fills.append((self._names, rows.tolist()))
        self._inner.fill(rows, out)

    def close(self) -> None:
        self._inner.close()

"""Documents beyond 4 GiB, billions of them, and memory that does not grow with their number.

The files are sparse: holes are zeros, and only what a test reads is marked.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom import DocumentBytesFormat, DocumentStorage
from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom.types import IOReader
from guideloom_format import CommitRecord, FileFacts, Header, Owner, Part, crc32c
from guideloom_read import verify
from read.document_cases import CountingIO
from read.document_processes import read_many, write_many
from write.writer_processes import in_new_process

GIB = 2**30
BACKENDS: list[Any] = [PosixPreadIO(), PosixPreadIO(max_open_files=1), MmapIO(), SeekIO()]


@dataclass
class SparsePart:
    """A part made by hand: its documents, the size of their bytes, and the ends that are set."""

    length: int
    size: int
    ends: Mapping[int, int]
    marks: Mapping[int, bytes] = field(default_factory=dict)


def craft(directory: Path, parts: Mapping[tuple[int, int], SparsePart]) -> DocumentStorage:
    """A dataset of these parts. The checksums are those of nothing: to be read, not verified."""
    storage = DocumentStorage(directory, DocumentBytesFormat())
    (directory / "commits").mkdir(parents=True)
    (directory / "data").mkdir()
    header = Header("document", storage.element_type, {"name": "document-bytes", "parameters": {}})
    (directory / "guideloom.json").write_bytes(header.encode())
    for (shard, number), part in parts.items():
        stem = f"{shard}-{number}"
        sizes = {"documents": part.size, "ends": 8 * part.length}
        sizes |= {f"{role}.crc": 4 * -(-size // 65536) for role, size in sizes.items()}
        for role, size in sizes.items():
            with open(directory / f"data/{stem}.{role}", "wb") as file:
                file.truncate(size)
        with open(directory / f"data/{stem}.ends", "r+b") as file:
            for k, end in part.ends.items():
                file.seek(8 * k)
                file.write(end.to_bytes(8, "little"))
        with open(directory / f"data/{stem}.documents", "r+b") as file:
            for offset, mark in part.marks.items():
                file.seek(offset)
                file.write(mark)
        facts = {role: FileFacts(size, crc32c(b"")) for role, size in sizes.items()}
        record = CommitRecord(
            header.dataset_id,
            Part(shard, number, "0123456789abcdef", part.length, stem, facts),
            Owner("host", 1, "2024-01-01T00:00:00+00:00"),
        )
        (directory / f"commits/{shard:07d}-{number:04d}.json").write_bytes(record.encode())
    return storage


def by_number(length: int, numbers: set[int]) -> SparsePart:
    """A part whose documents have 3 bytes each; those with these numbers are marked."""
    asked = {k for k in numbers if 0 <= k < length}
    ends = {end: 3 * (end + 1) for k in asked for end in (k - 1, k) if end >= 0}
    return SparsePart(length, 3 * length, ends, {3 * k: mark(k) for k in asked})


def mark(number: int) -> bytes:
    return (number % 16_777_213 + 1).to_bytes(3, "little")


LENGTHS = {(0, 0): 2**31 + 7, (2, 0): 3, (2, 1): 3_000_000_000 - 2**31 - 15, (9, 0): 5}
TOTAL = 3_000_000_000
FIRSTS = [0, *itertools.accumulate(LENGTHS.values())]
ASKED = sorted(
    {
        place + step
        for place in (*FIRSTS, 2**31, 2**31 // 3, 2**32 // 3, 2_147_483_647, 2_500_000_000)
        for step in range(-3, 4)
        if 0 <= place + step < TOTAL
    }
)


@pytest.mark.parametrize("io", BACKENDS, ids=repr)
def test_three_billion_documents(io: IOReader, tmp_path: Path) -> None:
    """A file of ends of 17 GB, and numbers beyond 2**31 in one part."""
    assert sum(LENGTHS.values()) == TOTAL
    parts = {
        place: by_number(length, {k - first for k in ASKED})
        for (place, length), first in zip(LENGTHS.items(), FIRSTS, strict=False)
    }
    storage = craft(tmp_path / "x", parts)
    storage.read_interface = io
    within = {k: k - max(first for first in FIRSTS[:-1] if first <= k) for k in ASKED}
    expected = [mark(within[k]) for k in ASKED]
    assert len(expected) > 40
    with storage.sync_reader() as reader:
        assert len(reader) == TOTAL
        assert reader.read_many(ASKED) == expected
        assert [reader.read(k) for k in ASKED] == expected
        assert [reader[k - TOTAL] for k in ASKED] == expected
        assert reader[np.array(ASKED[::-1], dtype=np.uint32)] == expected[::-1]
        assert reader.gather(ASKED).values.tobytes() == b"".join(expected)
        assert reader.gather_padded(ASKED, 5).values[:, 3:].any() == np.False_
        assert reader[TOTAL - 3 :] == expected[-3:]
        assert reader[-1 : -3 : -1] == expected[:-3:-1]  # fmt: skip
        assert next(iter(reader)) == expected[0]
        assert next(reversed(reader)) == expected[-1]
        with pytest.raises(IndexError, match=f"document {TOTAL} is outside"):
            reader.read(TOTAL)


SIZES = [5 * GIB, 100, 0, 7, 2 * GIB + 3, 11]
ENDS = [*itertools.accumulate(SIZES)]
STARTS = [end - size for end, size in zip(ENDS, SIZES, strict=True)]


def big_documents(directory: Path) -> DocumentStorage:
    """Two parts alike, in which small documents lie beyond 5 and 7 GiB."""
    marks = {
        start + at: bytes([k + 1])
        for k, (start, size) in enumerate(zip(STARTS, SIZES, strict=True))
        for at in {0, size - 1}
        if 0 <= at < size
    }
    part = SparsePart(len(SIZES), ENDS[-1], dict(enumerate(ENDS)), marks)
    return craft(directory, {(0, 0): part, (4, 0): part})


def document(k: int) -> bytes:
    """Document k of a part: its number at both ends, zeros between."""
    return bytes([k + 1, *bytes(SIZES[k] - 2), k + 1]) if SIZES[k] else b""


@pytest.mark.parametrize("io", BACKENDS, ids=repr)
def test_documents_beyond_4_gib_in_their_file(io: IOReader, tmp_path: Path) -> None:
    storage = big_documents(tmp_path / "x")
    storage.read_interface = io
    ids = [1, 2, 3, 5, 7, 8, 9, 11, 11, 1]
    expected = [document(k % 6) for k in ids]
    with storage.sync_reader() as reader:
        assert reader.read_many(ids) == expected
        assert [reader.read(k) for k in ids] == expected
        padded = reader.gather_padded(ids)
        for row, wanted in zip(padded.values, expected, strict=True):
            assert row.tobytes() == wanted.ljust(100, b"\0")


class PlannedOnly(Exception):  # noqa: N818  # not an error
    """What would be read."""


def test_what_is_read_of_documents_beyond_4_gib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges and places in the batch are exact; nothing of 19 GiB is read."""
    io = CountingIO()
    storage = big_documents(tmp_path / "x")
    storage.read_interface = io
    reader = storage.sync_reader().open()
    files: Any = reader._opened().files
    fill = files.fill
    targets: list[int] = []

    def plan_only(rows: Any, out: Any) -> None:
        if out.size == sum(SIZES[k % 6] for k in ids):
            targets.extend(rows[:, 3].tolist())
            io.fills.append((["0.documents", "4.documents"], rows.tolist()))
            raise PlannedOnly
        fill(rows, out)

    monkeypatch.setattr(files, "fill", plan_only)
    ids = [3, 0, 1, 6, 10, 2, 11]
    with pytest.raises(PlannedOnly):
        reader.gather(ids)
    rows = io.take()[-1]
    with_bytes = [k % 6 for k in ids if SIZES[k % 6]]
    assert rows == [("documents", STARTS[k], SIZES[k]) for k in with_bytes]
    assert targets == [0, *itertools.accumulate(SIZES[k] for k in with_bytes[:-1])]
    reader.close()


@pytest.mark.slow
@pytest.mark.parametrize("io", [PosixPreadIO(), MmapIO(), SeekIO()], ids=repr)
def test_a_document_of_5_gib(io: IOReader, tmp_path: Path) -> None:
    """Needs as much memory; `SeekIO` twice."""
    storage = big_documents(tmp_path / "x")
    storage.read_interface = io
    with storage.sync_reader() as reader:
        ragged = reader.gather([3, 0])
    assert ragged.offsets.tolist() == [0, 7, 7 + SIZES[0]]
    assert ragged.values[:8].tolist() == [4, 0, 0, 0, 0, 0, 4, 1]
    assert np.count_nonzero(ragged.values) == 4
    assert ragged.values[-1] == 1


@pytest.mark.slow
def test_a_document_beyond_4_gib_is_written_and_verified(tmp_path: Path) -> None:
    storage = DocumentStorage(tmp_path / "x", DocumentBytesFormat())
    big = np.zeros(4 * GIB + 5, dtype=np.uint8)
    big[[0, 2**32, -1]] = [1, 2, 3]
    with storage.sync_writer() as writer:
        writer.append(0, b"before")
        writer.append(0, big)
        writer.append(0, b"behind")
        assert writer.length(0) == 3
    assert verify(tmp_path / "x").clean
    with storage.sync_reader() as reader:
        assert reader.read_many([2, 0]) == [b"behind", b"before"]
        values = reader.gather([1]).values
        assert np.array_equal(values, big)


@pytest.mark.parametrize("count", [1_000_000])
def test_memory_stays_flat_over_a_million_documents(count: int, tmp_path: Path) -> None:
    """Written to three shards, then read at random: what is kept for a document would show.

    Eight bytes for each document are 8 MB; less than half of it is allowed.
    """
    grown = in_new_process(write_many, tmp_path / "x", count)
    print(f"writing {count} documents: {grown} KiB more")
    assert grown < 3000
    grown, wrong = in_new_process(read_many, tmp_path / "x", count)
    print(f"reading {count} documents: {grown} KiB more")
    assert wrong == 0
    assert grown < 3000

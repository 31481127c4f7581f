"""Ends that cannot be, under checksums that are right: a writer with a bug, or a hostile one.

Also what happens to the documents beside a damaged one, and to files that change while they are
open.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from format.document_cases import Typed
from format.independent_writing import HandWriter, MadePart, ends_file, seal
from guideloom import DocumentStorage
from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom_format import BLOCK_BYTES, DamagedFileError, MissingFileError, ReadError
from guideloom_read import DocumentReader, verify
from guideloom_write import DocumentWriter
from read.document_cases import VALUES, dataset
from read.stream_cases import BACKENDS
from write.faulty_files import Watched

numbers = itertools.count()
into_one_folder = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def craft(directory: Path, itemsize: int, parts: Sequence[tuple[bytes, list[int]]]) -> Any:
    """A dataset whose parts have these bytes and these ends, with right checksums."""
    dtype = VALUES[itemsize]
    described = dtype.str if dtype.names is None else [[*one] for one in dtype.descr]
    writer = HandWriter.create(directory, "document", described, {"class": "of.a.user"})
    made = [
        MadePart(7, number, len(ends), {"documents": content, "ends": ends_file(ends)})
        for number, (content, ends) in enumerate(parts)
    ]
    writer.publish(made, 0, "all")
    return DocumentStorage(directory, Typed(dtype))


def problems(size: int, ends: list[int], itemsize: int) -> list[bool]:
    """For each document of a part whether a reader must refuse it, as the format page says."""
    found = []
    for k, end in enumerate(ends):
        start = ends[k - 1] if k else 0
        fine = 0 <= start <= end <= size and (end - start) % itemsize == 0
        found.append(not fine or (k == len(ends) - 1 and end != size))
    return found


def check_reads(reader: DocumentReader, content: bytes, bad: list[bool], ends: list[int]) -> None:
    """Each document alone, and all together."""
    for k, refused in enumerate(bad):
        start = ends[k - 1] if k else 0
        if not refused:
            assert reader.read(k) == (content[start : ends[k]], 7)
            continue
        offset, stop = 8 * max(k - 1, 0), 8 * (k + 1)
        with pytest.raises(
            DamagedFileError,
            match=rf"\.ends, bytes {offset} to {stop}: document {k} of the part is said to have "
            rf"the bytes {start} to {ends[k]} of a file of {len(content)} bytes; expected ends "
            "that grow to that size in steps of ",
        ):
            reader.read(k)
    ids = np.arange(len(bad))
    for read in (reader.read_many, reader.gather, reader.gather_padded, lambda _: reader[:]):
        if any(bad):
            with pytest.raises(DamagedFileError, match=f"document {bad.index(True)} of the part"):
                read(ids)
        else:
            read(ids)


@into_one_folder
@given(data=st.data(), itemsize=st.sampled_from([*VALUES]))
def test_any_ends_at_all(data: st.DataObject, itemsize: int, tmp_path: Path) -> None:
    """`verify` finds what the page forbids; a reader never reads outside the file."""
    count = data.draw(st.integers(1, 6), "documents")
    content = bytes(range(1, 1 + itemsize * data.draw(st.integers(0, 9), "values")))
    good = st.integers(0, len(content) // itemsize).map(lambda value: value * itemsize)
    end = good | good | st.integers(0, 2**64 - 1) | st.integers(0, len(content) + 3)
    ends = data.draw(st.lists(end, min_size=count, max_size=count), "ends")
    if data.draw(st.booleans(), "sorted"):
        ends = [*sorted(ends)[:-1], len(content)]
    directory = tmp_path / str(next(numbers))
    storage = craft(directory, itemsize, [(content, ends)])
    bad = problems(len(content), ends, itemsize)
    backend = data.draw(st.sampled_from(sorted(BACKENDS)), "backend")
    storage.read_interface = BACKENDS[backend](directory)
    report = verify(directory, storage.read_interface)
    assert report.clean == (not any(bad)), report.faults
    assert all(fault.file.endswith(".ends") for fault in report.faults)
    if not report.clean:
        first = report.faults[0]
        assert (first.start, first.stop) in [
            (8 * k, 8 * k + 8) for k, refused in enumerate(bad) if refused
        ]
    with storage.sync_reader() as reader:
        check_reads(reader, content, bad, ends)


def test_every_end_replaced_by_every_value(tmp_path: Path) -> None:
    """One wrong end of the middle part: only the documents on either side of it are refused."""
    content = bytes(range(12))
    good = [2, 2, 6, 10, 12]
    strange = [*range(15), 2**32 + 4, 2**62, 2**63 - 2, 2**63, 2**64 - 2, 2**64 - 1]
    for k, value in itertools.product(range(5), strange):
        ends = [*good[:k], value, *good[k + 1 :]]
        directory = tmp_path / f"{k}-{value}"
        storage = craft(directory, 2, [(b"ab", [2]), (content, ends), (b"cdef", [0, 4])])
        bad = problems(12, ends, 2)
        assert not any(refused for j, refused in enumerate(bad) if j not in (k, k + 1))
        report = verify(directory)
        assert report.clean == (not any(bad)), (k, value, report.faults)
        assert all("0000007-0001" in fault.file for fault in report.faults)
        with storage.sync_reader() as reader:
            assert reader.read(0) == (b"ab", 7)
            assert reader[-2:] == [(b"", 7), (b"cdef", 7)]
            for j in range(5):
                if bad[j]:
                    with pytest.raises(DamagedFileError, match=r"0000007-0001-\w+\.ends, bytes"):
                        reader.read(1 + j)
                else:
                    start = ends[j - 1] if j else 0
                    assert reader.read(1 + j) == (content[start : ends[j]], 7)


def test_each_damaged_block_is_named_with_its_range(tmp_path: Path) -> None:
    """In files of several blocks, of documents and of ends; and then the whole file."""
    documents = [bytes([k % 251]) * (k % 9) for k in range(40_000)]
    storage = DocumentStorage(tmp_path / "x", Typed("u1"))
    with DocumentWriter(storage, files=Watched()) as writer:
        writer.extend(5, documents)
    assert verify(tmp_path / "x").clean
    for role in ("documents", "ends"):
        path = next((tmp_path / "x").glob(f"data/0000/*.{role}"))
        intact = path.read_bytes()
        assert len(intact) > 2 * BLOCK_BYTES
        last = (len(intact) - 1) // BLOCK_BYTES
        changed = bytearray(intact)
        for block in (1, last):
            changed[block * BLOCK_BYTES + 7] ^= 128  # the highest byte of an end
        path.write_bytes(changed)
        name = str(path.relative_to(tmp_path / "x"))
        found = [(f.file, f.start, f.stop) for f in verify(tmp_path / "x").faults]
        assert found[:2] == [
            (name, BLOCK_BYTES, 2 * BLOCK_BYTES),
            (name, last * BLOCK_BYTES, len(intact)),
        ]
        assert found[-1] == (name, 0, len(intact)), "the whole file"
        assert all(file == name for file, _, _ in found)
        if role == "ends":
            assert (name, BLOCK_BYTES, BLOCK_BYTES + 8) in found[2:-1], (
                "the first wrong end as well"
            )
        else:
            assert len(found) == 3
        path.write_bytes(intact)
    assert verify(tmp_path / "x").clean


def test_the_text_of_the_error(tmp_path: Path) -> None:
    storage = craft(tmp_path, 2, [(bytes(12), [2, 2, 20, 10, 12])])
    with (
        storage.sync_reader() as reader,
        pytest.raises(
            DamagedFileError,
            match=re.escape(
                "data/0000/0000007-0000-9f3c21ab5d0e7711.ends, bytes 8 to 24: document 2 of the "
                "part is said to have the bytes 2 to 20 of a file of 12 bytes; expected ends that "
                "grow to that size in steps of 2. The file is damaged: restore it from a copy"
            ),
        ),
    ):
        reader.read_many([0, 1, 2, 3])


@pytest.mark.parametrize("size", [2**20, 2**32, 2**36, 2**40, 2**50, 2**61])
@pytest.mark.parametrize(
    "io", [PosixPreadIO(), MmapIO(), SeekIO()], ids=lambda io: type(io).__name__
)
def test_a_size_that_a_record_only_states(io: Any, size: int, tmp_path: Path) -> None:
    """No memory is asked for that the file does not have."""
    document = b"a document"
    storage = craft(tmp_path, 1, [(document, [3, 10])])
    record = next((tmp_path / "commits").iterdir())
    members = json.loads(record.read_text(encoding="ascii"))
    del members["crc32c"]
    members["files"]["documents"]["bytes"] = size
    members["files"]["documents.crc"]["bytes"] = 4 * -(-size // BLOCK_BYTES)
    record.write_bytes(seal(members))
    next((tmp_path / "data").glob("*/*.ends")).write_bytes(ends_file([3, size]))
    storage.read_interface = io
    with storage.sync_reader() as reader:
        assert len(reader) == 2
        for read in (reader.read_many, reader.gather, reader.gather_padded):
            with pytest.raises(DamagedFileError, match=rf"\.documents.*{size}"):
                read([0, 1])
    report = verify(tmp_path, io)
    assert any(".documents" in fault.file for fault in report.faults)


@pytest.mark.parametrize("role", ["documents", "ends"])
@pytest.mark.parametrize("io", [PosixPreadIO(), SeekIO()], ids=lambda io: type(io).__name__)
def test_a_file_that_is_truncated_while_it_is_open(io: Any, role: str, tmp_path: Path) -> None:
    """No signal and no hang: an error, and the other parts can still be read."""
    storage, expected = dataset(tmp_path / "x", io=io)
    with storage.sync_reader() as reader:
        assert len(reader[:]) == 30
        path = next((tmp_path / "x").glob(f"data/0000/0000003-0001-*.{role}"))
        intact = path.read_bytes()
        os.truncate(path, len(intact) // 2)
        k = [shard for _, shard in expected].index(3) + 5  # the only document of that part
        assert expected[k][0]
        with pytest.raises(DamagedFileError, match=rf"\.{role}.*truncated"):
            reader.read(k)
        for k in (0, 29):
            assert reader.read(k) == expected[k]
        path.write_bytes(intact)
        assert reader[:] == expected


@pytest.mark.parametrize("role", ["documents", "ends"])
@pytest.mark.parametrize(
    "io", [PosixPreadIO(), MmapIO(), SeekIO()], ids=lambda io: type(io).__name__
)
def test_a_file_that_is_gone(io: Any, role: str, tmp_path: Path) -> None:
    storage, expected = dataset(tmp_path / "x", io=io)
    path = next((tmp_path / "x").glob(f"data/0000/0000003-0001-*.{role}"))
    path.unlink()
    with storage.sync_reader() as reader:
        with pytest.raises(MissingFileError, match=rf"0000003-0001-\w+\.{role}"):
            reader[:]
        assert reader.read(0) == expected[0]
        assert reader[-3:] == expected[-3:]


@pytest.mark.parametrize("io", [PosixPreadIO(), MmapIO()], ids=lambda io: type(io).__name__)
def test_a_symbolic_link_is_refused(io: Any, tmp_path: Path) -> None:
    storage, _ = dataset(tmp_path / "x", io=io)
    path = next((tmp_path / "x").glob("data/0000/0000003-0001-*.ends"))
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with storage.sync_reader() as reader, pytest.raises(ReadError, match="symbolic link"):
        reader[:]

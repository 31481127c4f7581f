"""The report of `verify`: what it names, what it counts, and damage larger than a block."""

from __future__ import annotations

import itertools
import os
import re
import tracemalloc
from pathlib import Path

import pytest

from guideloom.io import PosixPreadIO
from guideloom.types import IOSession
from guideloom_format import (
    BLOCK_BYTES,
    DatasetNotFoundError,
    ReadError,
    crc32c,
)
from guideloom_read import verify
from read.stream_cases import BACKENDS, PACKED, PLAIN, Cuts, consolidate, craft, numpy_stream

BLOCKS = 5
ELEMENTS = BLOCKS * BLOCK_BYTES // 4
BIG: Cuts = {0: [ELEMENTS, ELEMENTS - 100], 1: [ELEMENTS]}


def data_file(directory: Path, shard: int, part: int, suffix: str = "elements") -> Path:
    return next(directory.glob(f"data/*/{shard:07d}-{part:04d}-*.{suffix}"))


def name_of(path: Path, directory: Path) -> str:
    return str(path.relative_to(directory))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cuts", [{}, {0: [1]}, {3: [5, 2], 9: [70_000]}, BIG], ids=str)
def test_a_whole_dataset(cuts: Cuts, backend: str, tmp_path: Path) -> None:
    numpy_stream(tmp_path, PACKED, cuts)
    for consolidated in (False, True):
        if consolidated:
            consolidate(tmp_path)
        report = verify(tmp_path, BACKENDS[backend](tmp_path))
        assert report.clean
        assert report.faults == []
        assert report.parts == sum(map(len, cuts.values()))
        assert report.nbytes == 5 * sum(map(sum, cuts.values()))
        assert verify(str(tmp_path)) == report


def test_garbage_does_not_matter(tmp_path: Path) -> None:
    """A reader ignores every file that no record names, whatever it is called."""
    storage, _ = numpy_stream(tmp_path, PLAIN, {0: [5]})
    for name in (
        "commits/0000000-0001.json.0123456789abcdef.tmp",
        "commits/0-1.json",
        "commits/00000000-0001.json",
        "commits/0000001-00000.json",
        "commits/notes.txt",
        "data/0000/0000000-0001-0123456789abcdef.elements",
        "manifests/1.json",
        "manifest.json.tmp",
        "README",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"garbage")
    (tmp_path / "commits/folder").mkdir()
    report = verify(tmp_path)
    assert report.clean
    assert report.orphans == [
        "commits/0000000-0001.json.0123456789abcdef.tmp",
        "data/0000/0000000-0001-0123456789abcdef.elements",
        "manifest.json.tmp",
    ]
    with storage.sync_reader() as reader:
        assert len(reader) == 5


def test_each_block_is_named_with_its_range(tmp_path: Path) -> None:
    numpy_stream(tmp_path, PLAIN, BIG)
    path = data_file(tmp_path, 0, 1)
    size = path.stat().st_size
    with open(path, "r+b") as file:
        for block in (0, 2, BLOCKS - 1):
            file.seek(block * BLOCK_BYTES + 17)
            file.write(b"\xff\xff\xff\xff")
    report = verify(tmp_path)
    assert not report.clean
    assert report.parts == 3
    name = name_of(path, tmp_path)
    assert [(fault.file, fault.start, fault.stop) for fault in report.faults] == [
        (name, 0, BLOCK_BYTES),
        (name, 2 * BLOCK_BYTES, 3 * BLOCK_BYTES),
        (name, (BLOCKS - 1) * BLOCK_BYTES, size),
        (name, 0, size),
    ]
    texts = [str(fault) for fault in report.faults]
    assert re.fullmatch(
        rf"{re.escape(name)}, bytes 131072 to 196608: block 2 has the checksum [0-9a-f]{{8}}, "
        r"[0-9a-f]{8} was stored\. The block is damaged, or belongs elsewhere: restore the file "
        r"from a copy",
        texts[1],
    )
    assert re.fullmatch(
        rf"{re.escape(name)}, bytes 0 to {size}: the whole file has the checksum [0-9a-f]{{8}}, "
        r"[0-9a-f]{8} was committed\. Restore the file from a copy",
        texts[3],
    )


def test_every_damaged_part_is_reported(tmp_path: Path) -> None:
    """One fault does not hide the next."""
    numpy_stream(tmp_path, PLAIN, {0: [10, 10, 10], 1: [10, 10], 2: [10]})
    data_file(tmp_path, 0, 0).unlink()
    os.truncate(data_file(tmp_path, 0, 2), 39)
    data_file(tmp_path, 1, 0, "elements.crc").unlink()
    os.truncate(data_file(tmp_path, 1, 1, "elements.crc"), 5)
    data_file(tmp_path, 2, 0).write_bytes(bytes(40))
    report = verify(tmp_path)
    assert report.parts == 6
    parts = [re.findall(r"000000\d-000\d", fault.file)[0] for fault in report.faults]
    assert sorted(set(parts)) == [
        "0000000-0000",
        "0000000-0002",
        "0000001-0000",
        "0000001-0001",
        "0000002-0000",
    ]
    texts = "\n".join(map(str, report.faults))
    assert re.search(r"elements\.crc, bytes 4 to 5: it has 5 bytes; 4 were committed", texts)
    assert re.search(r"elements, bytes 39 to 40: it has 39 bytes; 40 were committed", texts)
    assert texts.count("is not there") == 2


def swap(first: tuple[Path, int], second: tuple[Path, int], size: int) -> None:
    """Exchange `size` bytes at two places of two files, or of one."""
    chunks = []
    for path, offset in (first, second):
        with open(path, "rb") as file:
            file.seek(offset)
            chunks.append(file.read(size))
    for (path, offset), chunk in zip((first, second), reversed(chunks), strict=True):
        with open(path, "r+b") as file:
            file.seek(offset)
            file.write(chunk)


def test_intact_blocks_in_each_others_place_are_found_with_their_checksums(
    tmp_path: Path,
) -> None:
    """A block is moved together with its stored checksum: only the position gives it away."""
    numpy_stream(tmp_path, PLAIN, BIG)
    places = [(0, 0, 0), (0, 0, 3), (0, 1, 0), (0, 1, 3), (1, 0, 0), (1, 0, 3)]
    for pair in itertools.combinations(places, 2):
        data = [(data_file(tmp_path, shard, part), k * BLOCK_BYTES) for shard, part, k in pair]
        marks = [
            (data_file(tmp_path, shard, part, "elements.crc"), 4 * k) for shard, part, k in pair
        ]
        swap(data[0], data[1], BLOCK_BYTES)
        swap(marks[0], marks[1], 4)
        faults = verify(tmp_path).faults
        found = {(fault.file, fault.start) for fault in faults if "block" in fault.problem}
        assert found == {(name_of(path, tmp_path), start) for path, start in data}
        swap(data[0], data[1], BLOCK_BYTES)
        swap(marks[0], marks[1], 4)
    assert verify(tmp_path).clean


def test_a_block_with_a_checksum_made_for_another_place(tmp_path: Path) -> None:
    """The stored checksum fits the bytes, but names another dataset, shard, part or token."""
    storage, elements = numpy_stream(tmp_path, PLAIN, {0: [10], 1: [10]})
    path = data_file(tmp_path, 1, 0, "elements.crc")
    token = path.name.split("-")[2].split(".")[0]
    with storage.sync_reader() as reader:
        dataset_id = reader.header.dataset_id
    data = elements[10:].tobytes()

    def stored(place: str) -> bytes:
        """The checksum of the data as the only block of the file that is described so."""
        return crc32c(f"{place}/".encode() + data).to_bytes(4, "little")

    assert path.read_bytes() == stored(f"{dataset_id}/1/0/{token}/elements/0")
    for place in (
        f"{'0' * 32}/1/0/{token}/elements/0",
        f"{dataset_id}/0/0/{token}/elements/0",
        f"{dataset_id}/1/1/{token}/elements/0",
        f"{dataset_id}/1/0/{'0' * 16}/elements/0",
        f"{dataset_id}/1/0/{token}/documents/0",
        f"{dataset_id}/1/0/{token}/elements/1",
    ):
        path.write_bytes(stored(place))
        assert [fault.file for fault in verify(tmp_path).faults] == [
            name_of(data_file(tmp_path, 1, 0), tmp_path),
            name_of(path, tmp_path),
        ]


def test_files_of_an_empty_part_are_looked_at_too(tmp_path: Path) -> None:
    """There is nothing to read in them, so nothing but their size can be wrong."""
    craft(tmp_path, PLAIN, {(0, 0): 0, (1, 0): 0})
    assert verify(tmp_path).clean
    for name in ("0-0.elements", "1-0.elements", "0-0.elements.crc"):
        path = tmp_path / "data" / name
        path.write_bytes(b"x")
        assert name in str(verify(tmp_path).faults[0])
        path.unlink()
        assert name in str(verify(tmp_path).faults[0])
        path.write_bytes(b"")
    assert verify(tmp_path).clean


def test_a_structural_fault_hides_no_other(tmp_path: Path) -> None:
    """Missing and damaged records, and damage in a part whose record is right: each is named."""
    numpy_stream(tmp_path, PLAIN, {0: [5, 5], 1: [5], 2: [5]})
    gone, damaged = "commits/0000000-0000.json", "commits/0000001-0000.json"
    (tmp_path / gone).unlink()
    with open(tmp_path / damaged, "r+b") as file:
        file.write(b"?")
    path = data_file(tmp_path, 2, 0)
    path.write_bytes(bytes(20))
    report = verify(tmp_path)
    found = [(fault.file, fault.start, fault.stop) for fault in report.faults]
    size = (tmp_path / damaged).stat().st_size
    name = name_of(path, tmp_path)
    assert found == [(damaged, 0, size), (gone, 0, 0), (name, 0, 20), (name, 0, 20)]
    assert "shard 0 has part 1 where part 0 is expected" in report.faults[1].problem
    assert report.parts == 2
    assert len(report.orphans or ()) == 4  # the files of the parts whose records are lost


def test_where_there_is_no_dataset(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DatasetNotFoundError, match=r"the file guideloom\.json is not there"):
            verify(place)


def test_it_gives_back_what_it_opened(tmp_path: Path) -> None:
    numpy_stream(tmp_path, PLAIN, {shard: [5] for shard in range(50)})
    os.truncate(data_file(tmp_path, 7, 0), 3)
    before = len(os.listdir("/proc/self/fd"))
    assert len(verify(tmp_path).faults) == 1
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_storage_that_fails_is_no_damage(tmp_path: Path) -> None:
    """Nobody restores a file from a copy because the network was down."""
    numpy_stream(tmp_path, PLAIN, {0: [5], 1: [5]})

    class Broken:
        def open(self, directory: str) -> IOSession:
            session = PosixPreadIO().open(directory)
            size = session.file_size

            def broken(name: str) -> int:
                if "0000000-" in name:
                    raise ReadError(f"{name}: Input/output error (errno 5)")
                return size(name)

            session.file_size = broken  # type: ignore[method-assign]
            return session

    with pytest.raises(ReadError, match=r"Input/output error \(errno 5\)$"):
        verify(tmp_path, Broken())


def test_memory_stays_small(tmp_path: Path) -> None:
    """Files are read in steps of 4 MiB."""
    numpy_stream(tmp_path, PLAIN, {0: [10 * 2**20]})
    tracemalloc.start()
    try:
        assert verify(tmp_path).clean
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * 2**20

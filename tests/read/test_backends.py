"""Every backend, also one that a user wrote: the same bytes, and errors that say where."""

from __future__ import annotations

import os
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom.io import MmapIO, PosixPreadIO, RangeFiles, SeekIO
from guideloom.types import IOReader
from guideloom_format import (
    DamagedFileError,
    DatasetNotFoundError,
    MissingFileError,
    ReadError,
    StreamNumpyFormat,
    StreamStorage,
)
from read.stream_cases import (
    BACKENDS,
    PACKED,
    PLAIN,
    Backend,
    Cuts,
    MemoryIO,
    consolidate,
    numpy_stream,
    values,
)

CUTS: Cuts = {0: [30, 10], 4: [20]}
LOCAL: dict[str, Callable[[], IOReader]] = {
    "pread": PosixPreadIO,
    "mmap": MmapIO,
    "seek": SeekIO,
}
local = pytest.mark.parametrize("io", [make() for make in LOCAL.values()], ids=list(LOCAL))
every = pytest.mark.parametrize("backend", BACKENDS.values(), ids=list(BACKENDS))


@every
def test_files_and_ranges(backend: Backend, tmp_path: Path) -> None:
    """One session: names, small files, sizes, and byte ranges into arrays of any type."""
    contents = {f"folder/{size}": np.random.default_rng(size).bytes(size) for size in (1, 9, 70000)}
    (tmp_path / "folder").mkdir()
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    io = backend(tmp_path)
    assert isinstance(io, IOReader)
    session = io.open(str(tmp_path))
    listed = session.list_names("folder")
    assert listed is not None
    assert sorted(listed) == ["1", "70000", "9"]
    assert session.list_names("nowhere") == []
    for name, data in contents.items():
        assert session.read_file(name, 70000) == data
        assert session.file_size(name) == len(data)
    for call in (lambda: session.read_file("folder/2", 9), lambda: session.file_size("folder/2")):
        with pytest.raises(FileNotFoundError):
            call()
    names = list(contents)
    files = session.open_files(names, np.array([1, 9, 70000]))
    rng = np.random.default_rng(0)
    for dtype in ("u1", "<u4", PACKED):
        out = values(np.dtype(dtype), 5000)
        expected = bytearray(out.tobytes())
        rows = []
        for _ in range(50):
            file = int(rng.integers(3))
            nbytes = int(rng.integers(0, min((1, 9, 900)[file], 900) + 1))
            offset = int(rng.integers(0, (1, 9, 70000)[file] - nbytes + 1))
            at = int(rng.integers(0, len(expected) - nbytes))
            rows.append((file, offset, nbytes, at))
            expected[at : at + nbytes] = contents[names[file]][offset : offset + nbytes]
        files.fill(np.array(rows, dtype=np.int64), out)
        assert out.tobytes() == expected
    files.fill(np.zeros((0, 4), dtype=np.int64), np.zeros(0, np.uint8))
    files.close()
    session.close()


@local
def test_small_files_have_a_limit(io: IOReader, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    session = io.open(str(tmp_path))
    assert session.read_file("file", 5) == b"12345"
    with pytest.raises(
        DamagedFileError, match="file has 5 bytes; a file of its kind has at most 4"
    ):
        session.read_file("file", 4)


@local
def test_what_is_not_a_regular_file_is_refused(io: IOReader, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "device").symlink_to("/dev/zero")
    session = io.open(str(tmp_path))
    for name in ("folder", "fifo", "link", "device"):
        with pytest.raises((DamagedFileError, ReadError), match=f"{name} (is not|cannot be)"):
            session.read_file(name, 10)
        with pytest.raises(DamagedFileError, match=f"{name} is not a regular file; restore it"):
            session.file_size(name)
        files = session.open_files([name], np.array([5]))
        with pytest.raises((DamagedFileError, ReadError), match=name):
            files.fill(np.array([[0, 0, 5, 0]]), np.zeros(5, np.uint8))
    with pytest.raises(ReadError, match=r"the folder file cannot be listed: Not a directory \(err"):
        session.list_names("file")


@local
def test_a_file_where_a_folder_should_be_is_a_named_error(io: IOReader, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    session = io.open(str(tmp_path))
    files = session.open_files(["file/below"], np.array([5]))
    for call in (
        lambda: session.read_file("file/below", 9),
        lambda: session.file_size("file/below"),
        lambda: files.fill(np.array([[0, 0, 5, 0]]), np.zeros(5, np.uint8)),
    ):
        with pytest.raises((ReadError, DamagedFileError, MissingFileError), match="file/below"):
            call()


def only_elements(directory: Path, shard: int, part: int) -> Path:
    return next(directory.glob(f"data/*/{shard:07d}-{part:04d}-*.elements"))


@local
def test_a_missing_file_is_named_and_the_others_can_be_read(io: IOReader, tmp_path: Path) -> None:
    storage, expected = numpy_stream(tmp_path / "x", PLAIN, CUTS, io)
    path = only_elements(tmp_path / "x", 0, 1)
    path.unlink()
    with storage.sync_reader() as reader:
        assert len(reader) == 60
        for start in (0, 40):
            window = reader.read(start, 20)["token"]
            assert np.array_equal(window, expected["token"][start : start + 20])
        for _ in range(2):
            with pytest.raises(
                MissingFileError,
                match=rf"{path.name} was committed .*is not there\. Restore it from a copy",
            ) as raised:
                reader.read(25, 10)
            assert isinstance(raised.value, FileNotFoundError)
    directory = re.escape(str(tmp_path / "x"))
    if not isinstance(io, SeekIO):
        name = re.escape(str(path.relative_to(tmp_path / "x")))
        text = f"^{directory}: the file {name} was committed with 40 bytes and is not there"
        assert re.match(text, str(raised.value))


@local
@pytest.mark.parametrize("size", [0, 3, 39])
def test_a_file_that_is_too_short_is_named(size: int, io: IOReader, tmp_path: Path) -> None:
    storage, expected = numpy_stream(tmp_path / "x", PLAIN, CUTS, io)
    path = only_elements(tmp_path / "x", 0, 1)
    os.truncate(path, size)
    with storage.sync_reader() as reader:
        with pytest.raises(
            DamagedFileError,
            match=rf"{path.name}.*\b40\b.* committed\. The file is truncated or damaged: restore",
        ):
            reader.read(25, 15)
        assert np.array_equal(reader.read(0, 30)["token"], expected["token"][:30])


def test_a_file_that_is_truncated_while_it_is_open(tmp_path: Path) -> None:
    """An error and no signal; what was read before stays as it was."""
    storage, expected = numpy_stream(tmp_path / "x", PLAIN, CUTS, PosixPreadIO())
    path = only_elements(tmp_path / "x", 0, 0)
    with storage.sync_reader() as reader:
        window = reader.read(0, 30)
        os.truncate(path, 50)
        with pytest.raises(
            DamagedFileError,
            match=rf"{re.escape(str(tmp_path / 'x'))}: data/0000/{path.name}, bytes 4 to 84: the "
            r"file has ended before, it was committed with 120 bytes and was truncated since it "
            r"was opened\. Restore it from a copy",
        ):
            reader.read(1, 20)
        assert np.array_equal(reader.read(2, 10)["token"], expected["token"][2:12])
    assert np.array_equal(window["token"], expected["token"][:30])


@pytest.mark.parametrize("io", [PosixPreadIO(), MmapIO()], ids=["pread", "mmap"])
def test_files_that_are_removed_or_replaced_while_they_are_open(
    io: IOReader, tmp_path: Path
) -> None:
    """An open file is read on as it was; a reader that opens now sees what is there now."""
    storage, expected = numpy_stream(tmp_path / "x", PLAIN, CUTS, io)
    path = only_elements(tmp_path / "x", 0, 0)
    with storage.sync_reader() as reader:
        reader.read(0, 1)
        path.unlink()
        assert np.array_equal(reader.read(0, 30)["token"], expected["token"][:30])
        path.write_bytes(b"other")
        assert np.array_equal(reader.read(0, 30)["token"], expected["token"][:30])
        with (
            storage.sync_reader() as late,
            pytest.raises(DamagedFileError, match="has 5 bytes; 120 were committed"),
        ):
            late.read(0, 1)


@local
def test_a_file_replaced_by_a_link_is_refused(io: IOReader, tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, CUTS, io)
    path = only_elements(tmp_path / "x", 0, 0)
    shutil.move(path, tmp_path / "copy")
    path.symlink_to(tmp_path / "copy")
    with (
        storage.sync_reader() as reader,
        pytest.raises(ReadError, match=rf"{path.name}.*: Too many levels of symbolic links \(errn"),
    ):
        reader.read(0, 1)


def test_storage_that_cannot_list_shows_the_manifest(tmp_path: Path) -> None:
    storage, expected = numpy_stream(tmp_path / "x", PACKED, CUTS)
    unlisted = StreamStorage(tmp_path / "x", StreamNumpyFormat(PACKED))
    unlisted.read_interface = MemoryIO.of(tmp_path / "x", lists=False)
    with pytest.raises(
        DatasetNotFoundError,
        match=re.escape(
            f"{tmp_path / 'x'} has no manifest.json, and this storage cannot list commit records. "
            "Consolidate the dataset where it was written"
        ),
    ):
        unlisted.sync_reader().open()
    consolidate(tmp_path / "x")
    with storage.sync_writer() as writer:
        writer.append(0, {"token": [1], "mask": [True]})
    unlisted.read_interface = MemoryIO.of(tmp_path / "x", lists=False)
    with storage.sync_reader() as reader, unlisted.sync_reader() as from_manifest:
        assert (len(reader), len(from_manifest)) == (61, 60)
        window = from_manifest.read(0, 60)
        assert np.array_equal(window["token"], expected["token"])
        assert np.array_equal(window["mask"], expected["mask"])


def test_a_users_backend_gets_one_range_per_part_of_a_window(tmp_path: Path) -> None:
    _, expected = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    io = MemoryIO.of(tmp_path / "x")
    storage = StreamStorage(tmp_path / "x", StreamNumpyFormat(PLAIN), io)
    with storage.sync_reader() as reader:
        assert io.log == [], "nothing is read before it is asked for"
        tokens = reader.elements([25, 0], 20, 1)["token"]
        assert np.array_equal(tokens[0], expected["token"][25:45])
        names = [
            str(only_elements(tmp_path / "x", *place).relative_to(tmp_path / "x"))
            for place in ((0, 0), (0, 1), (4, 0))
        ]
        assert io.log == [
            (names[0], 100, 20),
            (names[1], 0, 40),
            (names[2], 0, 20),
            (names[0], 0, 80),
        ]


def test_an_error_of_a_users_backend_comes_out_as_it_is() -> None:
    def broken(name: str, offset: int, nbytes: int) -> bytes:
        raise TimeoutError(f"no answer for {name} {offset} {nbytes}")

    files = RangeFiles(broken, ["a", "b"], np.array([10, 10]))
    with pytest.raises(TimeoutError, match="no answer for b 3 4"):
        files.fill(np.array([[1, 3, 4, 0]]), np.zeros(4, np.uint8))


@pytest.mark.parametrize("answer", [b"", b"123", b"12345", bytearray(9), memoryview(b"1")])
def test_an_answer_of_the_wrong_length_is_refused(answer: Any) -> None:
    files = RangeFiles(lambda *_: answer, ["a", "b"], np.array([10, 20]))
    with pytest.raises(
        DamagedFileError,
        match=rf"^b, bytes 3 to 7: {len(answer)} bytes came back; 20 bytes were committed\. The "
        r"file is truncated or damaged: restore it from a copy$",
    ):
        files.fill(np.array([[1, 3, 4, 0]]), np.zeros(4, np.uint8))


@every
def test_backends_are_small_and_can_be_pickled(backend: Backend, tmp_path: Path) -> None:
    """A worker process gets the description and opens the files itself, also after use here."""
    storage, expected = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    storage.read_interface = backend(tmp_path / "x")
    with storage.sync_reader() as reader:
        reader.read(0, 60)
        sent = pickle.dumps(storage)
    assert len(sent) < 10_000
    with pickle.loads(sent).sync_reader() as reader:
        assert np.array_equal(reader.read(0, 60)["token"], expected["token"])


@pytest.mark.parametrize("maker", [PosixPreadIO, MmapIO])
@pytest.mark.parametrize("limit", [0, -1, -5])
def test_a_limit_below_one_is_refused(maker: Callable[..., IOReader], limit: int) -> None:
    """With less than one file open, nothing could ever be read."""
    with pytest.raises(ValueError, match=f"max_open_files is {limit}"):
        maker(max_open_files=limit)


def test_something_that_is_no_backend(tmp_path: Path) -> None:
    with pytest.raises(
        TypeError,
        match=r"read_interface is .*; expected an instance of a backend, such as",
    ):
        StreamStorage(tmp_path, StreamNumpyFormat(PLAIN), "pread")  # type: ignore[arg-type]

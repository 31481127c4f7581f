"""What a writer does not let happen: each of these once lost committed data."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom_format import (
    DamagedFileError,
    Manifest,
    Owner,
    StreamNumpyFormat,
    StreamStorage,
    WriteError,
    WriterStateError,
    _names,
)
from guideloom_read import StreamReader, verify
from guideloom_read._contents import read_contents, read_header
from guideloom_read.io import PosixPreadIO
from guideloom_write import StreamWriter
from guideloom_write._part_kinds import StreamPart
from write.known_content import Returned, elements, storage, visible, writer_at


def in_a_fork(work: Callable[[], bool]) -> bool:
    """What `work` returns in a forked process."""
    child = os.fork()
    if not child:
        os._exit(0 if work() else 1)
    return os.waitpid(child, 0)[1] == 0


def test_the_working_folder_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative directory is the one that was opened; the same name elsewhere stays untouched."""
    for name in "ab":
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        with writer_at(Path("x")) as writer:
            writer.append(0, elements(0, 0, 10))
    monkeypatch.chdir(tmp_path / "a")
    reader = StreamReader(storage("x")).open()
    writer = writer_at(Path("x")).open()
    writer.append(0, elements(0, 10, 15))
    monkeypatch.chdir(tmp_path / "b")
    writer.commit()
    writer.close()
    assert visible(tmp_path / "a" / "x") == {0: 15}
    assert visible(tmp_path / "b" / "x") == {0: 10}
    assert len(reader.read(0, 10)["place"]) == 10
    reader.close()


@pytest.mark.parametrize("leave", ["append", "length", "commit", "rollback", "close", "with"])
def test_a_forked_process_cannot_touch_its_parents_parts(tmp_path: Path, leave: str) -> None:
    def work() -> bool:
        if leave in ("rollback", "close"):
            getattr(writer, leave)()
            return True
        try:
            if leave == "append":
                writer.append(0, elements(0, 10, 20))
            elif leave == "length":
                writer.length(0)
            elif leave == "commit":
                writer.commit()
            else:
                writer.__exit__(None, None, None)
        except WriterStateError as error:
            return f"belongs to process {parent}, this is process {os.getpid()}" in str(error)
        return False

    parent = os.getpid()
    with writer_at(tmp_path / "x") as writer:
        writer.append(0, elements(0, 0, 10))
        assert in_a_fork(work)
        writer.append(0, elements(0, 10, 20))
    assert visible(tmp_path / "x") == {0: 20}
    assert verify(tmp_path / "x").clean


def test_files_that_are_gone_are_not_published(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "x").open()
    writer.append(0, elements(0, 0, 10))
    for path in (tmp_path / "x" / "data").rglob("*.elements"):
        path.unlink()
    with pytest.raises(WriteError, match=r"No such file or directory .*\.elements"):
        writer.commit()
    assert visible(tmp_path / "x") == {}


def test_two_threads_at_once_are_named_or_harmless(tmp_path: Path) -> None:
    """Whatever gets through, the dataset opens and holds whole appends."""
    errors: list[Exception] = []

    def work() -> None:
        for _ in range(500):
            try:
                writer.append(0, np.full(50, 7, dtype=np.uint32))
            except WriterStateError as error:
                errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with StreamWriter(StreamStorage(tmp_path / "x", Returned())) as writer:
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    with StreamReader(StreamStorage(tmp_path / "x", Returned())) as reader:
        assert len(reader) == 50 * (1500 - len(errors))
        assert np.unique(reader.read(0, len(reader))).tolist() == [7]
    assert all("another thread is in a call of this writer" in str(error) for error in errors)
    assert verify(tmp_path / "x").clean


def test_a_call_in_the_middle_of_a_call_is_refused(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "x").open()
    with writer._busy:
        with pytest.raises(WriterStateError, match="another thread is in a call"):
            writer.append(0, elements(0, 0, 1))
        with pytest.raises(WriterStateError, match="another thread is in a call"):
            writer.commit()
    writer.append(0, elements(0, 0, 3))
    writer.commit()
    writer.close()
    assert visible(tmp_path / "x") == {0: 3}


@pytest.mark.parametrize("after", ["publication", "bookkeeping"])
def test_an_interrupt_behind_the_commit_changes_no_published_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    class Interrupted(dict[int, tuple[int, int]]):
        def __setitem__(self, shard: int, value: tuple[int, int]) -> None:
            super().__setitem__(shard, value)
            if value[0]:
                raise KeyboardInterrupt

    real = StreamPart.publish

    def publish(self: StreamPart, owner: Owner, **mark: Any) -> None:
        real(self, owner, **mark)
        raise KeyboardInterrupt

    writer = writer_at(tmp_path / "x").open()
    if after == "publication":
        monkeypatch.setattr(StreamPart, "publish", publish)
    else:
        writer._committed = Interrupted()
    writer.append(0, elements(0, 0, 10))
    part = writer._parts[0]
    with pytest.raises(KeyboardInterrupt):
        writer.commit()
    with pytest.raises(WriterStateError, match="this writer failed before"):
        writer.append(0, elements(0, 10, 20))
    with pytest.raises(WriterStateError, match="part 0 of shard 0 was published"):
        part.append(np.zeros(9, np.uint8))  # type: ignore[attr-defined]
    writer.close()
    assert visible(tmp_path / "x") == {0: 10}
    assert verify(tmp_path / "x").clean


def test_a_part_whose_bytes_are_not_its_elements_is_not_published(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "x").open()
    writer.append(0, elements(0, 0, 10))
    writer._parts[0].length = 11
    with pytest.raises(
        WriteError,
        match="90 bytes went to a file of the part, 99 were counted; an append was cut off",
    ):
        writer.commit()
    assert visible(tmp_path / "x") == {}


def test_parts_that_only_the_manifest_has_count(tmp_path: Path) -> None:
    """The format allows a dataset whose records are gone once a manifest has them."""
    path = tmp_path / "x"
    for start, stop in ((0, 10), (10, 25)):
        with writer_at(path) as writer:
            writer.append(3, elements(3, start, stop))
    session = PosixPreadIO().open(str(path))
    header = read_header(session, str(path))
    table = read_contents(session, str(path), header).table
    (path / _names.MANIFEST).write_bytes(Manifest(header.dataset_id, 1, table).encode())
    for record in (path / _names.COMMITS).iterdir():
        record.unlink()
    with writer_at(path) as writer:
        assert writer.length(3) == 25
        assert writer.length(4) == 0
        writer.append(3, elements(3, 25, 30))
        assert writer.length(3) == 30
    assert visible(path) == {3: 30}
    with writer_at(path) as writer:
        assert writer.length(3) == 30


def test_a_shard_with_all_parts_that_there_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_names, "MAX_PART", 2)
    for start in range(3):
        with writer_at(tmp_path / "x") as writer:
            writer.append(0, elements(0, start, start + 1))
    with writer_at(tmp_path / "x") as writer:
        with pytest.raises(WriteError, match="shard 0 has 3 parts, which is all that the format"):
            writer.length(0)
        writer.append(1, elements(1, 0, 5))
    assert visible(tmp_path / "x") == {0: 3, 1: 5}


@pytest.mark.parametrize("name", [_names.HEADER, f"{_names.COMMITS}/0000000-0000.json"])
def test_a_pipe_in_place_of_a_file_blocks_nobody(tmp_path: Path, name: str) -> None:
    with writer_at(tmp_path / "x"):
        pass
    (tmp_path / "x" / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "x" / name)
    with pytest.raises(DamagedFileError, match="is not a regular file"):
        writer_at(tmp_path / "x").open().length(0)


def test_a_pack_that_closes_the_writer(tmp_path: Path) -> None:
    class Closing(Returned):
        def pack(self, data: Any) -> Any:
            writer.close()
            return data

    writer = StreamWriter(StreamStorage(tmp_path / "x", Closing())).open()
    with pytest.raises(WriterStateError, match="the writer is not open"):
        writer.append(0, np.zeros(3, np.uint32))
    writer.open().commit()


def test_closing_in_the_block_is_no_error(tmp_path: Path) -> None:
    with writer_at(tmp_path / "x") as writer:
        writer.append(0, elements(0, 0, 4))
        writer.commit()
        writer.close()
    assert visible(tmp_path / "x") == {0: 4}


def test_fields_within_a_field_keep_their_names() -> None:
    """An array whose inner fields stand in another order is refused, and not taken by position."""
    inner = np.dtype([("x", "<i4"), ("y", "<i4")])
    packed = StreamNumpyFormat(np.dtype([("p", inner), ("q", "u1")]))
    data = np.zeros(2, dtype=[("y", "<i4"), ("x", "<i4")])
    with pytest.raises(ValueError, match=r"field 'p' has dtype .*; expected"):
        packed.pack({"p": data, "q": np.zeros(2, np.uint8)})
    assert packed.pack({"p": np.ones(2, inner), "q": [1, 2]})["p"]["y"].tolist() == [1, 1]


def test_masked_and_ragged_data_is_refused() -> None:
    tokens = StreamNumpyFormat(np.dtype([("tokens", "<u2")]))
    with pytest.raises(ValueError, match="field 'tokens' is a masked array"):
        tokens.pack({"tokens": np.ma.masked_array([1, 2, 3], [False, True, False])})
    with pytest.raises(ValueError, match="field 'tokens' is not an array"):
        tokens.pack({"tokens": [[1], [2, 3]]})


def test_a_call_after_one_that_was_cut_off_fails_the_writer(tmp_path: Path) -> None:
    """An interrupt can come before the lock of a call is given back; nothing is lost unsaid."""
    writer = writer_at(tmp_path / "x").open()
    writer.append(0, elements(0, 0, 3))
    writer.commit()
    writer.append(0, elements(0, 3, 5))
    writer._busy.acquire()
    writer._holder = threading.get_ident()
    with pytest.raises(WriterStateError, match="an earlier call of this writer was interrupted"):
        writer.append(0, elements(0, 5, 6))
    with pytest.raises(WriterStateError, match="this writer failed before"):
        writer.commit()
    writer.close()
    with writer.open():  # the same object, opened anew
        assert writer.length(0) == 3
        writer.append(0, elements(0, 3, 4))
    assert visible(tmp_path / "x") == {0: 4}

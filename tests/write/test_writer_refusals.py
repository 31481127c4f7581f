"""What a `StreamWriter` refuses: data, shards, datasets, and the second of two commits."""

from __future__ import annotations

import datetime
import os
import re
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from guideloom_format import (
    DamagedFileError,
    DataError,
    DocumentBytesFormat,
    DocumentStorage,
    MismatchError,
    ShardConflictError,
    StreamNumpyFormat,
    StreamStorage,
    WriterStateError,
)
from guideloom_write import StreamWriter
from guideloom_write._owners import Owners
from write.call_cases import each_wrong_shard
from write.faulty_files import Watched
from write.known_content import (
    Returned,
    all_files,
    elements,
    garbage,
    play,
    storage,
    visible,
    writer_at,
)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ([1, 2], r"Returned\.pack returned list; expected a 1-d numpy array of uint32"),
        (None, r"Returned\.pack returned NoneType; expected"),
        (np.uint32(7), r"Returned\.pack returned uint32; expected"),
        (np.zeros((2, 3), "<u4"), r"an array of shape \(2, 3\) and dtype uint32; expected a 1-d"),
        (np.zeros((), "<u4"), r"an array of shape \(\) and dtype uint32; expected a 1-d"),
        (np.zeros(2, "<i4"), r"an array of shape \(2,\) and dtype int32; expected .* of uint32"),
        (np.zeros(2, ">u4"), r"an array of shape \(2,\) and dtype >u4; expected .* of uint32"),
        (np.zeros(2, "<u8"), r"and dtype uint64; expected"),
        (np.zeros(0, "<f4"), r"and dtype float32; expected"),
    ],
)
def test_a_format_that_packs_wrongly(bad: Any, text: str, tmp_path: Path) -> None:
    """Nothing of it is written, and the writer goes on."""
    place = StreamStorage(tmp_path / "x", Returned())
    good = np.arange(5, dtype="<u4")
    with StreamWriter(place, files=Watched()) as writer:
        for shard in (0, 1):
            with pytest.raises(DataError, match=text):
                writer.append(shard, bad)
            writer.append(0, good)
            with pytest.raises(DataError, match=text):
                writer.append(0, bad)
        assert (writer.length(0), writer.length(1)) == (10, 0)
    with place.sync_reader() as reader:
        assert reader.read(0, len(reader)).tolist() == [*range(5), *range(5)]


@pytest.mark.parametrize(
    "data",
    [
        {"place": np.zeros(3, "u8")},
        {"place": np.zeros(3, "u8"), "flag": np.zeros(4, "u1")},
        {"place": np.zeros((3, 1), "u8"), "flag": np.zeros(3, "u1")},
        {"place": np.zeros(3, "f8"), "flag": np.zeros(3, "u1")},
        {"place": np.zeros(3, "u8"), "flag": np.array([1, 2, 256])},
        {"place": np.zeros(3, "u8"), "flag": np.zeros(3, "u1"), "more": np.zeros(3)},
        np.zeros(3),
        7,
    ],
)
def test_data_that_the_built_in_format_refuses(data: Any, tmp_path: Path) -> None:
    with writer_at(tmp_path / "x") as writer:
        writer.append(0, elements(0, 0, 4))
        with pytest.raises(DataError):
            writer.append(0, data)
        with pytest.raises(DataError):
            writer.append(1, data)
        writer.append(0, elements(0, 4, 6))
    assert visible(tmp_path / "x") == {0: 6}
    assert garbage(tmp_path / "x") == set()


def test_an_error_of_the_format_itself_comes_out_unchanged(tmp_path: Path) -> None:
    class Broken(Returned):
        def pack(self, data: Any) -> NDArray[Any]:
            if data is None:
                raise LookupError("no such token")
            return np.asarray(data, dtype="<u4")

    place = StreamStorage(tmp_path / "x", Broken())
    with StreamWriter(place, files=Watched()) as writer:
        writer.append(0, [1, 2])
        with pytest.raises(LookupError, match="no such token"):
            writer.append(0, None)
        writer.append(0, [3])
    with place.sync_reader() as reader:
        assert reader.read(0, len(reader)).tolist() == [1, 2, 3]


@each_wrong_shard
def test_shard_numbers(shard: Any, kind: type[Exception], text: str, tmp_path: Path) -> None:
    """Refused whether or not the shard that it equals is being written already."""
    with writer_at(tmp_path / "x") as writer:
        for _ in range(2):
            with pytest.raises(kind, match=text):
                writer.append(shard, elements(1, 0, 2))
            with pytest.raises(kind, match=text):
                writer.length(shard)
            writer.append(1, elements(1, writer.length(1), writer.length(1) + 2))
    assert visible(tmp_path / "x") == {1: 4}


@pytest.fixture
def no_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody says who writes a shard: the commit decides alone."""
    monkeypatch.setattr(Owners, "claim", lambda *_: False)


@pytest.mark.usefixtures("no_notes")
def test_the_second_of_two_writers_of_a_shard_is_told_who_won(tmp_path: Path) -> None:
    first, second = writer_at(tmp_path / "x").open(), writer_at(tmp_path / "x").open()
    for writer, count in ((first, 5), (second, 8)):
        writer.append(0, elements(0, 0, count))
    first.commit()
    with pytest.raises(ShardConflictError) as raised:
        second.commit()
    match = re.match(
        r"shard 0, part 0 was committed by another writer: host (.*), pid (\d+), writing since "
        r"(.*)\. 8 elements of this writer were not committed\.",
        str(raised.value),
    )
    assert match is not None
    assert (match[1], int(match[2])) == (socket.gethostname(), os.getpid())
    since = datetime.datetime.fromisoformat(match[3])
    assert abs((datetime.datetime.now(datetime.UTC) - since).total_seconds()) < 600
    with pytest.raises(WriterStateError, match=r"failed before \(ShardConflictError: shard 0"):
        second.append(1, elements(1, 0, 1))
    first.append(0, elements(0, 5, 6))
    first.commit()
    first.close()
    second.close()
    assert visible(tmp_path / "x") == {0: 6}
    assert garbage(tmp_path / "x") == set()
    second.open()
    assert second.length(0) == 6
    second.append(0, elements(0, 6, 8))
    second.commit()
    second.close()
    assert visible(tmp_path / "x") == {0: 8}


@pytest.mark.usefixtures("no_notes")
def test_a_conflict_does_not_touch_shards_committed_before_it(tmp_path: Path) -> None:
    first, second = writer_at(tmp_path / "x").open(), writer_at(tmp_path / "x").open()
    for shard in (1, 2, 3):
        second.append(shard, elements(shard, 0, 4))
    first.append(2, elements(2, 0, 9))
    first.commit()
    with pytest.raises(ShardConflictError, match="shard 2, part 0"):
        second.commit()
    first.close()
    second.close()
    assert visible(tmp_path / "x") == {1: 4, 2: 9}
    assert garbage(tmp_path / "x") == set()


@pytest.mark.parametrize("user", [{"a": object()}, {"a": float("nan")}, {"a": "x" * 2**20}, []])
def test_a_user_object_that_is_not_json_creates_nothing(user: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="header"):
        storage(tmp_path / "x").sync_writer(user=user).open()
    assert not (tmp_path / "x").exists()


def test_reopened_as_something_else(tmp_path: Path) -> None:
    play(tmp_path / "x", Watched(), [(0, 5)])
    before = all_files(tmp_path / "x")
    other = StreamStorage(tmp_path / "x", StreamNumpyFormat([("place", "<i8"), ("flag", "u1")]))
    with pytest.raises(
        MismatchError,
        match=re.escape(
            f"{tmp_path / 'x'} holds elements of type [['place', '<u8'], ['flag', '|u1']], it was "
            "opened with a storage format of type [['place', '<i8'], ['flag', '|u1']]"
        ),
    ):
        other.sync_writer().open()

    documents = DocumentStorage(tmp_path / "x", DocumentBytesFormat())
    with pytest.raises(MismatchError, match="kind 'stream', it was opened as 'document'"):
        documents.sync_writer().open()
    assert all_files(tmp_path / "x") == before


def test_a_damaged_record_stops_the_writer_before_it_writes(tmp_path: Path) -> None:
    play(tmp_path / "x", Watched(), [(0, 5), (1, 6)])
    record = tmp_path / "x/commits/0000000-0000.json"
    record.write_bytes(record.read_bytes()[:-1])
    writer = writer_at(tmp_path / "x").open()
    with pytest.raises(DamagedFileError, match=r"commits/0000000-0000\.json: "):
        writer.length(0)
    assert writer.length(1) == 6, "asking for a length voids nothing"
    with pytest.raises(DamagedFileError, match=r"commits/0000000-0000\.json: "):
        writer.append(0, elements(0, 5, 6))
    writer.close()
    assert garbage(tmp_path / "x") == set()

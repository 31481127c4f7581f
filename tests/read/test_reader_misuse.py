"""Races and slips at the reader: each of these once gave wrong data, a hang or a crash."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom import StreamDataset, StreamStorage
from guideloom.io import PosixPreadIO
from guideloom.types import IOSession
from guideloom_format import DamagedFileError, FeistelShuffler, StreamIndex
from guideloom_read import StreamReader
from guideloom_read.io import _open_files
from read.stream_cases import PLAIN, numpy_stream
from write.known_content import Returned


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_no_wake_up_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Eight threads that read once each, with fewer files than threads, many times over."""
    monkeypatch.setattr(_open_files, "SLICE_SECONDS", 60.0)  # nothing but the wake-up helps
    monkeypatch.setattr(_open_files, "WAIT_SECONDS", 5.0)
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, {shard: [10] for shard in range(8)})
    slow = StreamStorage(storage.directory, storage.storage_format, PosixPreadIO(limit))
    errors: list[Exception] = []

    def read(number: int) -> None:
        try:
            assert reader.read(10 * number, 5)["token"].size == 5
        except Exception as error:  # noqa: BLE001  # shown by the assertion below
            errors.append(error)

    for _ in range(60):
        with StreamReader(slow) as reader:
            threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert not errors
            assert not any(thread.is_alive() for thread in threads)


def test_a_listing_made_while_a_writer_commits(tmp_path: Path) -> None:
    """It may show part 2 without part 1, which was there before: that one is read by name."""
    storage, expected = numpy_stream(tmp_path / "x", PLAIN, {0: [3, 4, 5], 1: [2]})

    class Late:
        def __init__(self, *absent: str) -> None:
            self.absent = absent

        def open(self, directory: str) -> IOSession:
            session = PosixPreadIO().open(directory)
            names = session.list_names

            def list_names(folder: str) -> list[str]:
                return [name for name in names(folder) or [] if name not in self.absent]

            session.list_names = list_names  # type: ignore[method-assign]
            return session

    for absent in (["0000000-0001.json"], ["0000000-0000.json", "0000000-0001.json"]):
        late = StreamStorage(storage.directory, storage.storage_format, Late(*absent))
        with late.sync_reader() as reader:
            assert np.array_equal(reader.read(0, 14)["token"], expected["token"])
    (tmp_path / "x" / "commits" / "0000000-0001.json").unlink()
    with pytest.raises(DamagedFileError, match="shard 0 has part 2 where part 1 is expected"):
        StreamReader(late).open()


def test_an_index_error_does_not_end_an_iteration(tmp_path: Path) -> None:
    class Failing(Returned):
        def unpack(self, stream: Any, shard_lengths: Any, shards: Any) -> Any:
            del shard_lengths, shards
            if stream[0] == 20:
                raise IndexError("of the user's code")
            return stream

    storage = StreamStorage(tmp_path / "x", Failing())
    with storage.sync_writer() as writer:
        writer.append(0, np.arange(100, dtype=np.uint32))
    with StreamDataset(storage, 10).sync_reader() as reader:
        for direction in (iter(reader), reversed(reader)):
            with pytest.raises(IndexError, match="of the user's code"):
                list(direction)


def test_a_reader_iterates_both_ways(tmp_path: Path) -> None:
    storage, expected = numpy_stream(tmp_path / "x", PLAIN, {0: [6], 1: [6]})
    with StreamDataset(storage, 3).sync_reader() as reader:
        starts = [int(sample["token"][0]) for sample in reader]
        assert starts == expected["token"][::3].tolist()
        assert [int(sample["token"][0]) for sample in reversed(reader)] == starts[::-1]


def test_an_opened_reader_is_pickled_by_its_description(tmp_path: Path) -> None:
    storage, expected = numpy_stream(tmp_path / "x", PLAIN, {0: [6], 1: [6]})
    with StreamDataset(storage, 3).sync_reader() as reader, storage.sync_reader() as stream:
        assert reader[0]["token"].size == stream.read(0, 3)["token"].size
        sent = pickle.dumps((reader, stream))
    assert len(sent) < 10_000
    again, stream_again = pickle.loads(sent)
    with again, stream_again:
        assert np.array_equal(again[3]["token"], expected["token"][9:])
        assert len(stream_again) == 12


def test_ids_that_another_thread_changes_stay_harmless() -> None:
    """The kernel reads each id once and checks it then; anything else would end the process."""
    index = StreamIndex(np.ones(100_000, dtype=np.int64))
    ids = np.zeros(50_000, dtype=np.int64)
    done = threading.Event()

    def scribble() -> None:
        while not done.is_set():
            ids[-1] = 2**60
            ids[-1] = 0

    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        for _ in range(200):
            try:
                rows = index.plan(ids, 2, 1)
            except IndexError as error:
                assert "window" in str(error)  # noqa: PT017
            else:
                assert rows.shape[1] == 4
    finally:
        done.set()
        thread.join()


class _Liar:
    """Says another length than its array has."""

    def __len__(self) -> int:
        return 5

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.arange(2, dtype=dtype)

    def __iter__(self) -> Iterator[int]:
        return iter([0, 1])


def test_ids_are_what_their_array_is(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, {0: [30]})
    with StreamDataset(storage, 3).sync_reader() as reader:
        assert reader.gather(_Liar())["token"].shape == (2, 3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="ids is a masked array"):
            reader.gather(np.ma.masked_array([1, 2], [False, True]))
        with pytest.raises(TypeError, match="out is list; expected a mapping"):
            reader.gather([0], out=[np.zeros((1, 3), np.uint32)])  # type: ignore[arg-type]
        masked = np.ma.masked_array(np.zeros((1, 3), np.uint32))
        with pytest.raises(TypeError, match="masked"):
            reader.gather([0], out={"token": masked})


def test_a_class_in_place_of_a_generator_is_refused() -> None:
    """numpy itself ends the process when a bit generator's class is asked for words."""
    for rng in (np.random.Philox, np.random.PCG64, np.random.Generator):
        with pytest.raises(TypeError, match=f"rng is {rng.__name__}; expected a numpy.random"):
            FeistelShuffler(10, rng)  # type: ignore[arg-type]

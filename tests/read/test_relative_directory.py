"""A dataset under a relative path: what is not there is named in full, as the folder may change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import guideloom
from guideloom import DatasetNotFoundError, StreamDataset, StreamNumpyFormat, StreamStorage

TOKENS = np.dtype([("tokens", "<u2")])


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamStorage:
    """Written as ``here/stream`` from the working folder."""
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    storage = StreamStorage("here/stream", StreamNumpyFormat(TOKENS))
    with storage.sync_writer() as writer:
        writer.append(0, {"tokens": np.arange(10, dtype="<u2")})
    return storage


def test_what_is_not_there_is_named_in_full(
    storage: StreamStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "elsewhere")
    where = rf"^here/stream \(here: {tmp_path}/elsewhere/here/stream\) "
    for call in (
        lambda: storage.sync_reader().open(),
        lambda: StreamDataset(storage, 2).sync_reader().open(),
        lambda: guideloom.open("here/stream"),
    ):
        with pytest.raises(DatasetNotFoundError, match=where + "holds no dataset: the file"):
            call()
    assert repr(storage).startswith("StreamStorage('here/stream', ")


def test_a_version_that_is_not_there(storage: StreamStorage, tmp_path: Path) -> None:
    where = rf"^here/stream \(here: {tmp_path}/here/stream\) has no manifest version 3: the file "
    with pytest.raises(DatasetNotFoundError, match=where):
        storage.at_version(3).sync_reader().open()


def test_an_absolute_path_is_named_once(tmp_path: Path) -> None:
    storage = StreamStorage(tmp_path / "no", StreamNumpyFormat(TOKENS))
    with pytest.raises(DatasetNotFoundError, match=rf"^{tmp_path}/no holds no dataset: "):
        storage.sync_reader().open()


def test_a_reader_that_was_opened_stays_where_it_was(
    storage: StreamStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with storage.sync_reader() as reader:
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert reader.read(3, 2)["tokens"].tolist() == [3, 4]

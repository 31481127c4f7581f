"""Which parts a dataset has: commit records, the manifest, and both together."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom.io import PosixPreadIO
from guideloom.types import IOFiles, IOSession
from guideloom_format import (
    DamagedFileError,
    DatasetError,
    DatasetNotFoundError,
    StreamNumpyFormat,
    StreamStorage,
    crc32c,
)
from guideloom_read._contents import Contents, read_contents, read_header
from read.stream_cases import PLAIN, Cuts, consolidate, numpy_stream

CUTS: Cuts = {0: [3, 1], 2: [4], 7: [2, 2, 2]}
PLACES = [(0, 0), (0, 1), (2, 0), (7, 0), (7, 1), (7, 2)]


class Counting:
    """A session that logs what is read, and can act when something is."""

    def __init__(self, directory: Path) -> None:
        self.session = PosixPreadIO().open(str(directory))
        self.log: list[str] = []
        self.before: Callable[[str], None] = lambda _: None

    def list_names(self, folder: str) -> list[str] | None:
        self._log(folder + "/")
        return self.session.list_names(folder)

    def read_file(self, name: str, limit: int) -> bytes:
        self._log(name)
        return self.session.read_file(name, limit)

    def file_size(self, name: str) -> int:
        self._log(name)
        return self.session.file_size(name)

    def open_files(self, names: Any, sizes: Any) -> IOFiles:
        return self.session.open_files(names, sizes)

    def close(self) -> None:
        self.session.close()

    def _log(self, name: str) -> None:
        self.before(name)
        self.log.append(name)


def contents(directory: Path, session: IOSession | None = None) -> Contents:
    session = session or PosixPreadIO().open(str(directory))
    return read_contents(session, str(directory), read_header(session, str(directory)))


def places(found: Contents) -> list[tuple[int, int]]:
    return list(zip(found.table.shard.tolist(), found.table.part.tolist(), strict=True))


def reseal(path: Path, old: str, new: str) -> None:
    """Change a sealed file and make its checksum fit."""
    body = path.read_bytes()[:-25]
    assert old.encode() in body
    body = body.replace(old.encode(), new.encode(), 1)
    path.write_bytes(body + b',\n"crc32c": "%08x"\n}\n' % crc32c(body))


def test_parts_in_order_of_shard_and_part(tmp_path: Path) -> None:
    numpy_stream(tmp_path, PLAIN, CUTS)
    found = contents(tmp_path)
    assert places(found) == PLACES
    assert found.table.length.tolist() == [3, 1, 4, 2, 2, 2]


def test_the_manifest_stands_for_the_records_it_has(tmp_path: Path) -> None:
    """However many parts there are, a consolidated dataset opens with one listing and two reads."""
    numpy_stream(tmp_path, PLAIN, CUTS)
    before = contents(tmp_path)
    consolidate(tmp_path)
    session = Counting(tmp_path)
    after = contents(tmp_path, session)
    assert session.log == ["guideloom.json", "commits/", "manifest.json"]
    assert after.fingerprint == before.fingerprint
    assert [after.table.row(k) for k in range(6)] == [before.table.row(k) for k in range(6)]
    for path in (tmp_path / "commits").iterdir():
        path.unlink()
    (tmp_path / "commits").rmdir()
    assert contents(tmp_path).fingerprint == before.fingerprint


def test_records_that_the_manifest_does_not_have_are_added(tmp_path: Path) -> None:
    storage, expected = numpy_stream(tmp_path, PLAIN, CUTS)
    consolidate(tmp_path)
    with storage.sync_writer() as writer:
        for shard in (0, 1, 9):
            writer.append(shard, {"token": np.full(2, 100 + shard)})
    session = Counting(tmp_path)
    found = contents(tmp_path, session)
    added = ["commits/0000000-0002.json", "commits/0000001-0000.json", "commits/0000009-0000.json"]
    assert session.log == ["guideloom.json", "commits/", "manifest.json", *added]
    assert places(found) == sorted([*PLACES, (0, 2), (1, 0), (9, 0)])
    (tmp_path / "manifest.json").unlink()
    assert contents(tmp_path).fingerprint == found.fingerprint
    old = expected["token"].tolist()
    with storage.sync_reader() as reader:
        tokens = reader.read(0, len(reader))["token"].tolist()
    assert tokens == [*old[:4], 100, 100, 101, 101, *old[4:], 109, 109]


def test_a_consolidation_between_listing_and_reading_loses_nothing(tmp_path: Path) -> None:
    """Another process commits and consolidates while a reader opens: old or new, never a mix."""
    storage, _ = numpy_stream(tmp_path, PLAIN, CUTS)
    for moment in ("guideloom.json", "commits/", "manifest.json", "commits/0000000-0000.json"):
        session = Counting(tmp_path)
        old = contents(tmp_path)

        def act(name: str, session: Counting = session, moment: str = moment) -> None:
            if name == moment and moment not in session.log:
                with storage.sync_writer() as writer:
                    writer.append(0, {"token": [1]})
                consolidate(tmp_path)

        session.before = act
        found = contents(tmp_path, session)
        assert found.fingerprint in (old.fingerprint, contents(tmp_path).fingerprint)
        (tmp_path / "manifest.json").unlink(missing_ok=True)


def test_a_record_that_was_listed_and_is_gone(tmp_path: Path) -> None:
    numpy_stream(tmp_path, PLAIN, CUTS)
    session = Counting(tmp_path)

    def act(name: str) -> None:
        if name == "commits/0000002-0000.json":
            (tmp_path / name).unlink()

    session.before = act
    with pytest.raises(
        DamagedFileError,
        match=r"^commits/0000002-0000\.json was listed and is gone; commit records are never "
        r"removed\. Open again, and restore the file from a copy if this repeats$",
    ):
        contents(tmp_path, session)


def test_a_missing_part_in_the_middle(tmp_path: Path) -> None:
    numpy_stream(tmp_path, PLAIN, CUTS)
    for name, text in (
        ("0000007-0001", "shard 7 has part 2 where part 1 is expected"),
        ("0000000-0000", "shard 0 has part 1 where part 0 is expected"),
    ):
        path = tmp_path / f"commits/{name}.json"
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(
            DamagedFileError, match=f"^{re.escape(str(tmp_path))}/commits: {text}; a commit record"
        ):
            contents(tmp_path)
        path.write_bytes(data)


def test_a_record_behind_the_manifest_with_a_gap(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path, PLAIN, CUTS)
    consolidate(tmp_path)
    for _ in range(2):
        with storage.sync_writer() as writer:
            writer.append(2, {"token": [1]})
    (tmp_path / "commits/0000002-0001.json").unlink()
    with pytest.raises(DamagedFileError, match="shard 2 has part 2 where part 1 is expected"):
        contents(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"length": 4', '"length": 5', "the size of the elements is not what follows from"),
        ('"bytes": 16', '"bytes": 12', "the size of the elements is not what follows from"),
        ('"bytes": 4,', '"bytes": 8,', r"the size of elements\.crc is not what follows from"),
        ('"length": 4', '"length": 4.0', r"length is 4\.0; expected an integer"),
        ('"length": 4', '"length": true', "length is True; expected an integer"),
        ('"length": 4', '"length": -4', "length is -4; expected an integer"),
        ('"length": 4', '"length": 1e300', "length is 1e[+]300; expected an integer"),
        ('"length": 4', f'"length": {2**62 + 1}', "expected an integer from 0 to"),
        ('"shard": 2', '"shard": 3', r"shard is 3; expected 2 \(from the file's name\)"),
        ('"part": 0', '"part": 1', r"part is 1; expected 0 \(from the file's name\)"),
        ('"stem": "0000/', '"stem": "../', "which cannot leave the dataset"),
        ('"stem": "0000/', '"stem": "/etc/', "which cannot leave the dataset"),
        ('"stem": "0000/', '"stem": "file://', "which cannot leave the dataset"),
        ('"type": "commit"', '"type": "manifest"', "type is 'manifest'; expected 'commit'"),
        ('"dataset_id": "', '"dataset_id": "0', "the dataset that the file lies in"),
        ('"elements.crc":', '"elements.crd":', r"the member 'elements\.crc' is missing"),
    ],
)
def test_a_record_that_contradicts_itself(old: str, new: str, text: str, tmp_path: Path) -> None:
    """Its seal fits: the file was made wrong, not damaged."""
    numpy_stream(tmp_path, PLAIN, CUTS)
    reseal(tmp_path / "commits/0000002-0000.json", old, new)
    with pytest.raises(DamagedFileError, match=text) as raised:
        contents(tmp_path)
    assert "commits/0000002-0000.json" in str(raised.value) or "shard 2, part 0" in str(
        raised.value
    )


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('"manifest_version":1', '"manifest_version":true', "manifest_version is True; expected"),
        ('"fingerprint":"', '"fingerprint":"0', r"fingerprint is '0[^']*'; expected"),
        ('"length":[3,', '"length":[4,', "the size of the elements is not what follows from"),
        ('"length":[3,1', '"length":[3', "length is 5; expected 6 entries, one per part"),
        ('"shard":[0,0', '"shard":[0,1', "has part 1 where part 0 is expected"),
        ('"part":[0,1,0', '"part":[0,1,1', "shard 2 has part 1 where part 0 is expected"),
        ('"part":[0,1', '"part":[0,0', "shard 0 has part 0 where part 1 is expected"),
        ('"shard":[0,0,2', '"shard":[0,0,9', r"shard 7 follows shard 9; expected the shards in"),
        ('"stem":["0000/', '"stem":["../', "which cannot leave the dataset"),
        ('"token":["', '"token":["0', "16 lower-case hexadecimal digits each"),
    ],
)
def test_a_manifest_that_contradicts_itself(old: str, new: str, text: str, tmp_path: Path) -> None:
    numpy_stream(tmp_path, PLAIN, CUTS)
    consolidate(tmp_path)
    reseal(tmp_path / "manifest.json", old, new)
    with pytest.raises(DamagedFileError, match=text) as raised:
        contents(tmp_path)
    assert f"{tmp_path}/manifest.json" in str(raised.value)


def test_a_manifest_of_other_content_under_the_same_dataset(tmp_path: Path) -> None:
    """It is sealed and fits together, but its checksum of a file was exchanged."""
    numpy_stream(tmp_path, PLAIN, CUTS)
    consolidate(tmp_path)
    column = re.findall(r'"crc32c":\[(\d+),', (tmp_path / "manifest.json").read_text())
    reseal(tmp_path / "manifest.json", f'"crc32c":[{column[0]},', '"crc32c":[1,')
    with pytest.raises(DamagedFileError, match="computed from the parts"):
        contents(tmp_path)


@pytest.mark.parametrize(
    ("name", "limit"), [("guideloom.json", 2**20), ("commits/0000002-0000.json", 2**16)]
)
def test_files_beyond_their_limit_are_not_read(name: str, limit: int, tmp_path: Path) -> None:
    """A sparse terabyte in the place of a small file."""
    numpy_stream(tmp_path, PLAIN, CUTS)
    with open(tmp_path / name, "r+b") as file:
        file.truncate(2**40)
    with pytest.raises(
        DamagedFileError, match=f"{name} has [0-9]+ bytes; a file of its kind has at most {limit}"
    ):
        contents(tmp_path)


def test_a_folder_without_a_dataset(tmp_path: Path) -> None:
    storage = StreamStorage(tmp_path, StreamNumpyFormat(PLAIN))
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DatasetNotFoundError, match=rf"^{re.escape(str(place))} holds no data"):
            contents(place)
    (tmp_path / "guideloom.json").write_text("{}")
    with pytest.raises(DatasetError, match=r"guideloom\.json: 2 bytes do not end with the checks"):
        storage.sync_reader().open()

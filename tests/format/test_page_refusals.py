"""What the page lets a reader refuse or ignore: the real reader and the independent one agree."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from format.independent import IndependentDataset
from format.independent_json import RefusedError, sealed, unsealed
from format.member_changes import Change, change_members, put
from format.stream_writing import storage
from guideloom import GuideLoomError, StreamStorage
from guideloom_read import verify

GOLDEN = Path(__file__).parents[1] / "golden" / "stream-1.0"
DTYPE = np.dtype([("token", "<u2"), ("span", "<i4", (2,))])
HEADER, RECORD, MANIFEST = "guideloom.json", "commits/0000005-0000.json", "manifest.json"
BEHIND = "commits/0000002-0001.json"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "stream"))


def check_both_refuse(dataset: Path, match: str) -> None:
    with pytest.raises(RefusedError):
        IndependentDataset(dataset).verify()
    with (
        pytest.raises(GuideLoomError, match=match),
        storage(dataset, DTYPE).sync_reader() as reader,
    ):
        reader.read(0, len(reader))


def check_both_read(dataset: Path) -> None:
    ours = IndependentDataset(dataset)
    ours.verify()
    assert len(ours) == 252
    with storage(dataset, DTYPE).sync_reader() as reader:
        assert reader.fingerprint == ours.fingerprint
        assert reader.read(0, 252)["token"].tolist() == ours.read(0, 252)["token"].tolist()


REFUSED: list[tuple[str, Change, str]] = [
    (HEADER, put("format", value="guidelom"), "format is 'guidelom'"),
    (HEADER, put("type", value="commit"), "type is 'commit'"),
    (HEADER, put("version", value="2.0"), "has format version 2.0"),
    (HEADER, put("version", value="0.9"), "has format version 0.9"),
    (HEADER, put("version", value=1.0), "version is 1.0"),
    (HEADER, put("version", value="1.0\n"), "version is '1.0"),
    (HEADER, put("kind", value="table"), "kind is 'table'"),
    (HEADER, put("dataset_id", value="A" * 32), "dataset_id is 'AAA"),
    (HEADER, put("dataset_id", value="0" * 31), "dataset_id is '000"),
    (HEADER, put("dataset_id", value="0" * 32), "dataset_id is 'babae5"),
    (HEADER, put("required_features", value=["zstd"]), "requires 'zstd'"),
    (HEADER, put("required_features", value="zstd"), "required_features is 'zstd'"),
    (HEADER, put("optional_features", value=[1]), r"optional_features is \[1\]"),
    (HEADER, put("written_by", value=None), "written_by is None"),
    (HEADER, put("user", value=[]), r"user is \[\]"),
    (HEADER, put("storage_format", value="numpy"), "storage_format is 'numpy'"),
    (RECORD, put("type", value="manifest"), "type is 'manifest'"),
    (RECORD, put("dataset_id", value="0" * 32), "dataset_id is '0000"),
    (RECORD, put("shard", value=4), "shard is 4"),
    (RECORD, put("part", value=1), "part is 1"),
    (RECORD, put("part", value=False), "part is False"),
    (RECORD, put("part", value=0.0), "part is 0.0"),
    (RECORD, put("token", value="DA358A1546B215FE"), "token is 'DA35"),
    (RECORD, put("token", value="da358a1546b215fe0"), "token is 'da35"),
    (RECORD, put("length", value=64.0), "length is 64.0"),
    (RECORD, put("length", value=-1), "length is -1"),
    (RECORD, put("length", value="64"), "length is '64'"),
    (RECORD, put("length", value=63), "size of the elements is not"),
    (RECORD, put("length", value=2**64), "length is 18446744073709551616"),
    (RECORD, put("files", "elements", "bytes", value=639), "size of the elements is not"),
    (RECORD, put("files", "elements", "bytes", value=True), "bytes is True"),
    (RECORD, put("files", "elements", "crc32c", value=2**32), "crc32c is 4294967296"),
    (RECORD, put("files", "elements.crc", "bytes", value=8), "size of elements.crc is not"),
    (RECORD, put("files", value={}), "the member 'elements' is missing"),
    (RECORD, lambda m: m["files"].pop("elements.crc"), "the member 'elements.crc' is missing"),
    (RECORD, lambda m: m.pop("owner"), "the member 'owner' is missing"),
    (RECORD, put("owner", "pid", value="7"), "pid is '7'"),
    (RECORD, put("owner", "host", value=7), "host is 7"),
    (MANIFEST, put("type", value="header"), "type is 'header'"),
    (MANIFEST, put("dataset_id", value="0" * 32), "dataset_id is '0000"),
    (MANIFEST, put("manifest_version", value=-1), "manifest_version is -1"),
    (MANIFEST, put("manifest_version", value=10**8), "manifest_version is 100000000"),
    (MANIFEST, put("fingerprint", value="0" * 64), "fingerprint is '0000"),
    (MANIFEST, put("parts", "length", 0, value=101), "size of the elements is not"),
    (MANIFEST, put("parts", "token", 0, value="0" * 16), "fingerprint is"),
    (MANIFEST, put("parts", "token", 0, value=1), "token is 1"),
    (MANIFEST, put("parts", "stem", value=["a"]), "stem is 1"),
    (MANIFEST, put("parts", "shard", value=[0, 2, 3]), "part is 2"),
    (MANIFEST, put("parts", "shard", value=[2, 0]), "follows shard 2"),
    (MANIFEST, put("parts", "shard", value=[2, 2]), "has part 0 where part 1"),
    (MANIFEST, put("parts", "part", value=[0, 1]), "has part 1 where part 0"),
    (MANIFEST, put("parts", "shard", 1, value=10**9 + 1), "shard is 1000000001"),
    (MANIFEST, put("parts", "files", "elements", "crc32c", value=[1]), "crc32c is 1"),
]


@pytest.mark.parametrize("name, change, match", REFUSED)
def test_both_refuse_members(dataset: Path, name: str, change: Change, match: str) -> None:
    change_members(dataset / name, change)
    check_both_refuse(dataset, match)


STEMS = ["", "/", "a/", "/a", "a//b", "..", "../a", "a/../b", ".a", "a/.b", "a b", "a\\b", "a\n"]
STEMS += ["a/b/c/d", "a:b", "ä", "a\0", "x" * 238, f"{'x' * 100}/{'x' * 137}"]


@pytest.mark.parametrize("stem", STEMS)
def test_both_refuse_stems(dataset: Path, stem: str) -> None:
    """`data/` + stem + `.elements.crc` has 256 characters where the stem has 238."""
    change_members(dataset / RECORD, put("stem", value=stem))
    for role in ("elements", "elements.crc"):
        path = dataset / "data" / f"{stem}.{role}"
        if "/" not in stem[:1] and ".." not in stem and "\0" not in stem and len(path.name) < 255:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(next(dataset.glob(f"data/0000/0000005*.{role}")), path)
    check_both_refuse(dataset, "names the file")


@pytest.mark.parametrize(
    "stem", ["a", "a/b/c", "-", "_.-/a..", f"{'x' * 100}/{'x' * 136}", "A" * 237]
)
def test_both_read_stems(dataset: Path, stem: str) -> None:
    change_members(dataset / RECORD, put("stem", value=stem))
    for role in ("elements", "elements.crc"):
        path = dataset / "data" / f"{stem}.{role}"
        path.parent.mkdir(parents=True, exist_ok=True)
        next(dataset.glob(f"data/0000/0000005*.{role}")).rename(path)
    check_both_read(dataset)


# fmt: off
TYPES: list[Any] = [
    "u2", ">u2", "=u2", "<u2 ", "<u", "<u02", "<u3", "<u16", "|u2", "<u1", "<i0", "<b1", "|b2",
    "<f1", "<f16", "<c4", "<c32", "<S3", "|U3", "<V3", "|S0", "|V0", "<M8", "<M8[s]", "|O", "",
    "<u2,<u2", "(2,)<u2", [], {}, None, 2, ["<u2"], [["a"]], [["a", "<u2", [2], 1]], [None],
    [["a", "<u2", []]], [["a", "<u2", [0]]], [["a", "<u2", [-1]]], [["a", "<u2", [True]]],
    [["a", "<u2", [2.0]]], [["a", "<u2", 2]], [["a", "<u2", ["2"]]], [["a", "<u2"], ["a", "<u4"]],
    [["", "<u2"]], [["", "|V2", [2]]], [["", [["a", "<u2"]]]], [[["title", "a"], "<u2"]],
    [["a", ">u2"]], [["a", []]], [[1, "<u2"]],
]
# fmt: on


@pytest.mark.parametrize("described", TYPES, ids=json.dumps)
def test_both_refuse_element_types(dataset: Path, described: Any) -> None:
    change_members(dataset / HEADER, put("element_type", value=described))
    check_both_refuse(dataset, "element_type is")


class OwnFormat:
    """The least that a stream format needs."""

    def __init__(self, stream_dtype: np.dtype[Any]) -> None:
        self.stream_dtype = stream_dtype

    def pack(self, data: Any) -> Any:
        return data

    def unpack(self, stream: Any, shard_lengths: Any, shards: Any) -> Any:
        del shard_lengths, shards
        return stream


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype(np.longdouble),
        np.dtype([("a", np.clongdouble)]),
        np.dtype({"names": [""], "formats": ["<u2"]}),
        np.dtype({"names": [""], "formats": ["V2"]}),
        np.dtype(("<u2", (2,))),
    ],
    ids=str,
)
def test_a_type_that_the_page_does_not_have_is_not_stored(tmp_path: Path, dtype: Any) -> None:
    """Never a dataset that no reader opens, or that only this platform opens."""
    with pytest.raises(TypeError, match="not stored"):
        StreamStorage(tmp_path, OwnFormat(dtype))


IGNORED: list[tuple[str, Change]] = [
    (HEADER, put("version", value="1.7")),
    (HEADER, put("version", value="1.999999")),
    (HEADER, put("optional_features", value=["index", "index"])),
    (HEADER, put("later", value={"crc32c": None})),
    (HEADER, put("user", value={"name": "größe", "nested": [1e300, {"": []}]})),
    (HEADER, put("storage_format", value={"class": "elsewhere.Format", "more": 1})),
    (HEADER, put("storage_format", value={})),
    (HEADER, put("written_by", value="")),
    (RECORD, put("later", value=1)),
    (RECORD, put("owner", "later", value=1)),
    (RECORD, put("files", "elements", "later", value=1)),
    (RECORD, put("files", "later", value={"bytes": "many"})),
    (MANIFEST, put("later", value=1)),
    (MANIFEST, put("parts", "later", value=[])),
    (MANIFEST, put("parts", "files", "later", value={})),
    (MANIFEST, put("manifest_version", value=0)),
    (BEHIND, put("owner", "since", value="")),
]


@pytest.mark.parametrize("name, change", IGNORED)
def test_both_ignore_what_is_not_named(dataset: Path, name: str, change: Change) -> None:
    change_members(dataset / name, change)
    check_both_read(dataset)


BODIES = [
    (b'{"type": "commit", ', "stands twice"),
    (b'{"x": {"y": 1, "y": 1}, ', "stands twice"),
    (b'{"x": NaN, ', "NaN is not JSON"),
    (b'{"x": [-Infinity], ', "-Infinity is not JSON"),
    (b'{"x": 1e309, ', "1e309 is beyond those of 64 bits"),
    (b'{"x": "\xc3\xa4", ', "is not the JSON"),
    (b'{"x": "\n", ', "is not the JSON"),
    (b"{'x': 1, ", "is not the JSON"),
    (b'{"x": 01, ', "is not the JSON"),
    (b'{"x": 1,, ', "is not the JSON"),
    (b"\xef\xbb\xbf{", "is not the JSON"),
    (b'{"x": 1}, {', "is not the JSON"),
    (b'{"x": ' + b"[" * 20_000 + b"]" * 20_000 + b", ", "is not the JSON"),
    (b'{"x": ' + b"9" * 5000 + b", ", "is not the JSON"),
    (b"[{", "is not the JSON"),
]


@pytest.mark.parametrize("start, match", BODIES, ids=range(len(BODIES)))
def test_both_refuse_what_is_not_strict_json(dataset: Path, start: bytes, match: str) -> None:
    path = dataset / RECORD
    path.write_bytes(sealed(start + unsealed(path.read_bytes())[1:]))
    check_both_refuse(dataset, match)


@pytest.mark.parametrize("name", [HEADER, RECORD, MANIFEST])
def test_both_refuse_changed_bytes_of_sealed_files(dataset: Path, name: str) -> None:
    path = dataset / name
    intact = path.read_bytes()
    for place in range(0, len(intact), 19):
        path.write_bytes(intact[:place] + bytes([intact[place] ^ 0x20]) + intact[place + 1 :])
        check_both_refuse(dataset, "checksum")
    for data in (b"", intact[:-1], intact + b"\n", intact[1:], intact[:-25], intact[-25:]):
        path.write_bytes(data)
        check_both_refuse(dataset, "checksum|holds a JSON|is not the JSON")


@pytest.mark.parametrize("name, limit", [(HEADER, 2**20), (RECORD, 2**16)])
def test_both_keep_the_size_limits(dataset: Path, name: str, limit: int) -> None:
    path = dataset / name
    body = unsealed(path.read_bytes())
    room = limit - len(body) - 25
    path.write_bytes(sealed(b"{" + b" " * room + body[1:]))
    assert path.stat().st_size == limit
    check_both_read(dataset)
    path.write_bytes(sealed(b"{" + b" " * (room + 1) + body[1:]))
    check_both_refuse(dataset, f"a file of its kind has at most {limit}|more than {limit} bytes")


@pytest.mark.parametrize("kind, role", [("document", "documents"), ("stream-with-meta", "spans")])
def test_another_kind_is_refused_by_name(dataset: Path, kind: str, role: str) -> None:
    """Opened as a stream, it is not one; taken for what it says, it lacks what its kind has."""
    change_members(dataset / HEADER, put("kind", value=kind))
    check_both_refuse(dataset, f"of kind '{kind}'")
    faults = verify(dataset).faults
    assert faults
    assert all(f"the member '{role}' is missing" in fault.problem for fault in faults)


def test_both_refuse_a_shard_without_its_first_part(dataset: Path) -> None:
    (dataset / MANIFEST).unlink()
    (dataset / "commits/0000002-0000.json").unlink()
    check_both_refuse(dataset, "shard 2 has part 1 where part 0 is expected")


@pytest.mark.parametrize("name", [HEADER, RECORD, MANIFEST, "data/0000/*0000005*.elements"])
def test_both_refuse_a_symbolic_link_and_a_folder(dataset: Path, name: str) -> None:
    path = next(dataset.glob(name))
    kept = path.rename(dataset / "kept")
    path.symlink_to(kept)
    check_both_refuse(dataset, "cannot be opened")
    path.unlink()
    path.mkdir()
    check_both_refuse(dataset, "not a regular file")
    path.rmdir()
    os.mkfifo(path)
    check_both_refuse(dataset, "not a regular file")
    path.unlink()
    kept.rename(path)
    check_both_read(dataset)


@pytest.mark.parametrize("name", ["1000000001-0000.json", "0000000-1000001.json"])
def test_numbers_beyond_the_last_name_no_record(dataset: Path, name: str) -> None:
    """Shards go up to 10⁹ and parts up to 10⁶: these are other files, which are ignored."""
    (dataset / "commits" / name).write_bytes(b"not a record")
    check_both_read(dataset)

"""What SECURITY.md says, tried; what the vectors try is in `test_hostile.py`."""

from __future__ import annotations

import os
import re
import shlex
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from format.independent_writing import HandWriter, MadePart
from format.member_changes import change_members, put
from guideloom_format import ShardConflictError, crc32c
from guideloom_format._header import MAX_HEADER_BYTES
from guideloom_format._job import MAX_JOB_BYTES
from guideloom_format._manifest import MAX_MANIFEST_BYTES
from guideloom_format._names import MAX_COMPONENTS
from guideloom_format._record import MAX_RECORD_BYTES
from guideloom_format._sealed import MOST_NESTED
from guideloom_read import verify
from guideloom_read._reader import MUCH_MEMORY
from hostile.good_datasets import DATA, bases, contents, more_data, storage
from hostile.parsing import manifest_of, memory_of_parsing, said_of_nesting
from hostile.sabotages import SABOTAGES
from hostile.vectors import read_lines, read_vectors, sorts
from write.writer_processes import in_new_process

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
KINDS = ["stream", "document", "stream-with-meta"]
TOKEN = re.compile(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])")


def test_the_limits_that_the_page_states() -> None:
    assert "A header has at most 1 MiB, a record 64 KiB" in PAGE
    assert "a manifest and a job's decision 1 GiB" in PAGE
    assert (MAX_HEADER_BYTES, MAX_RECORD_BYTES) == (1 << 20, 64 << 10)
    assert MAX_MANIFEST_BYTES == MAX_JOB_BYTES == 1 << 30
    assert f"nested more than {MOST_NESTED} deep" in PAGE
    assert f"more than {MUCH_MEMORY >> 20} MiB are allocated" in PAGE
    assert MAX_COMPONENTS == 4
    assert "in at most four components" in PAGE


def test_the_commands_of_the_page_name_tests_that_are_there() -> None:
    commands = re.findall(r"`(uv run pytest [^`]*)`", PAGE)
    assert len(commands) == 6
    for command in commands:
        words = [word for word in shlex.split(command)[3:] if word.startswith("tests")]
        assert words
        assert all((ROOT / word).exists() for word in words), command


def test_the_figures_of_the_page() -> None:
    assert sum(len(list(read_vectors(sort))) for sort in sorts()) > 700
    assert len(SABOTAGES) == 8
    assert "eight missing defences" in PAGE


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002, 0o000])
@pytest.mark.parametrize("kind", KINDS)
def test_modes_of_what_is_written(kind: str, umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        place = storage(kind, tmp_path / "x")
        with place.sync_writer() as writer:
            writer.append(0, more_data(kind))
            (note,) = (tmp_path / "x/owners").iterdir()
            assert stat.S_IMODE(note.stat().st_mode) == 0o644 & ~umask
        place.consolidate()
    finally:
        os.umask(before)
    found = list((tmp_path / "x").rglob("*"))
    assert len(found) > 9
    for path in found:
        mode = 0o777 if path.is_dir() else 0o644
        assert stat.S_IMODE(path.stat().st_mode) == mode & ~umask, path


@pytest.mark.parametrize("kind", KINDS)
def test_how_files_are_created(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exclusively, following no link, and under a name with a token, another one every time."""
    opened: list[tuple[str, int]] = []
    real = os.open

    def noted(path: Any, flags: int, *more: Any, **others: Any) -> int:
        opened.append((os.fspath(path), flags))
        return real(path, flags, *more, **others)

    tokens = []
    monkeypatch.setattr(os, "open", noted)
    for _ in range(2):
        with storage(kind, tmp_path / "x").sync_writer() as writer:
            writer.append(0, more_data(kind))
        storage(kind, tmp_path / "x").consolidate()
        created = {path for path, flags in opened if flags & os.O_CREAT}
        for path, flags in opened:
            if flags & (os.O_WRONLY | os.O_RDWR):
                assert flags & os.O_NOFOLLOW, path
                assert path in created, path
            if flags & os.O_CREAT:
                assert flags & os.O_EXCL, path
                assert path.startswith(str(tmp_path / "x") + os.sep)
        found = [TOKEN.findall(Path(path).name) for path in created]
        assert all(len(one) == 1 for one in found), created
        tokens.append({one[0] for one in found})
        opened.clear()
    assert not tokens[0] & tokens[1]


POLYNOMIAL = 0x11EDC6F41


def invisible_change() -> bytes:
    """Bytes that can be XORed into any place without changing a CRC32C: its polynomial."""
    bits = [POLYNOMIAL >> k & 1 for k in range(32, -1, -1)]
    return bytes(
        sum(bit << place for place, bit in enumerate(bits[start : start + 8]))
        for start in range(0, len(bits), 8)
    )


def test_checksums_are_no_defence_against_an_attacker(tmp_path: Path) -> None:
    """Other data, and neither `verify` nor the fingerprint says so: the page must not hide it."""
    path = tmp_path / "x"
    bases()["stream"].write(path, manifest=True)
    place = storage("stream", path)
    with place.sync_reader() as reader:
        fingerprint, right = reader.fingerprint, contents("stream", reader)
    file = path / f"{DATA}.elements"
    data = bytearray(file.read_bytes())
    for at, byte in enumerate(invisible_change()):
        data[7 + at] ^= byte
    assert crc32c(bytes(data)) == crc32c(file.read_bytes())
    file.write_bytes(data)
    assert verify(path).clean
    with place.sync_reader() as reader:
        assert reader.fingerprint == fingerprint
        assert contents("stream", reader) != right
    assert "Checksums are no defence against an attacker" in PAGE


@pytest.mark.parametrize("kind", KINDS)
def test_the_fingerprint_tells_states_apart(kind: str, tmp_path: Path) -> None:
    """An older state, other data with checksums that fit, and another dataset of the same data."""
    base = bases()[kind]
    seen = set()
    for number, parts in enumerate((base.parts, base.parts[:2], base.parts[1:])):
        writer = HandWriter.create(tmp_path / str(number), kind, base.element_type, _form(kind))
        made = [MadePart(p.shard, 0, p.length, p.contents) for p in parts if p.number == 0]
        writer.publish(made, 0, "all")
        with storage(kind, tmp_path / str(number)).sync_reader() as reader:
            seen.add(reader.fingerprint)
    other = HandWriter.create(tmp_path / "y", kind, base.element_type, _form(kind), "1" * 32)
    other.publish(base.parts, 0, "all")
    base.write(tmp_path / "z", manifest=False)
    for name in ("y", "z"):
        with storage(kind, tmp_path / name).sync_reader() as reader:
            seen.add(reader.fingerprint)
    assert len(seen) == 5


def _form(kind: str) -> dict[str, Any]:
    return bases()[kind].storage_format


def test_memory_that_manifests_take() -> None:
    """About 5 times the file for right ones, less than 50 times for hostile ones."""
    parts = 50_000
    file = manifest_of(parts)
    assert in_new_process(memory_of_parsing, file) < 5.5
    lists = b"[" * 500 + b"]" * 500
    body = b'{"x": [' + b",".join([lists] * 2000) + b"]"
    hostile = body + b',\n"crc32c": "%08x"\n}\n' % crc32c(body)
    assert in_new_process(memory_of_parsing, hostile) < 50


@pytest.mark.parametrize("limit", [1000, 10**6])
def test_nesting_ends_no_process(limit: int) -> None:
    """The parser recurses on the stack: without a look before, a raised limit lets it overflow."""
    for depth in (MOST_NESTED, 10**5, 10**6):
        said = in_new_process(said_of_nesting, depth, limit)
        assert said.startswith("DamagedFileError: x is not the JSON that GuideLoom writes"), said


def test_commit_records_say_who_wrote_them(tmp_path: Path) -> None:
    with storage("stream", tmp_path / "x").sync_writer() as writer:
        writer.append(0, more_data("stream"))
    text = (tmp_path / "x/commits/0000000-0000.json").read_text(encoding="ascii")
    assert f'"pid": {os.getpid()}' in text
    assert os.uname().nodename in text


@pytest.mark.parametrize("text", ["x\x1b[31m\n\nTraceback: \r", "\u202egro.elpmaxe"])
def test_a_conflict_quotes_its_winner_escaped(text: str, tmp_path: Path) -> None:
    """Two writers for a shard; the record of the one that wins says something for terminals."""
    place = storage("stream", tmp_path / "x")
    loser = place.sync_writer().open()
    loser.append(0, {"token": np.arange(3)})
    with place.sync_writer(take_over=True) as winner:
        winner.append(0, {"token": np.arange(5)})
    record = tmp_path / "x/commits/0000000-0000.json"
    change_members(record, put("owner", "host", value=text))
    with pytest.raises(ShardConflictError) as raised:
        loser.commit()
    assert str(raised.value).isprintable()
    assert "gro" in str(raised.value) or "Traceback" in str(raised.value)
    loser.close()


def test_every_kind_of_attack_of_the_page_has_vectors() -> None:
    """What the page names is among the names and reasons of the vectors."""
    text = "\n".join(
        f"{line['name']}: {line['why']}" for sort in sorts() for line in read_lines(sort)
    )
    for word in (
        *("absolute path", "outside", "scheme", "a link to", "a FIFO"),
        *("a device", "a socket", "hard link", "a folder", "10^5 deep", "twice", "a hole"),
        *("2^63", "2^64", "pickles", "another dataset", "clean must not remove"),
    ):
        assert word in text, word

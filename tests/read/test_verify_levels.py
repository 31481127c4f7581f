"""What each level of `verify` finds, what it does not read, orphans, and the command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom_format import BLOCK_BYTES, DatasetNotFoundError
from guideloom_read import VerifyReport, verify
from read.stream_cases import MemoryIO
from write.faulty_files import Watched
from write.known_content import KNOWN_ELEMENTS, Known, storage
from write.known_documents import KnownDocuments
from write.known_spans import KnownSpans

KINDS: dict[str, Callable[[], Known[Any]]] = {
    "stream": lambda: KNOWN_ELEMENTS,
    "documents": KnownDocuments,
    "spans": KnownSpans,
}
LEVELS = ("structure", "sample", "everything")
BLOCKS = 12


def elements_of(directory: Path, blocks: int = BLOCKS) -> Path:
    """A data file of so many blocks, in a dataset of two shards."""
    count = blocks * BLOCK_BYTES // 9 - 3
    KNOWN_ELEMENTS.play(directory, Watched(), [(0, count), (1, 20)])
    return next(directory.glob("data/0000/0000000-*.elements"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", LEVELS)
def test_intact_data_is_clean_at_every_level(level: Any, kind: str, tmp_path: Path) -> None:
    KINDS[kind]().play(tmp_path / "x", Watched(), [(0, 50), (3, 7), None, (0, 5)])
    report = verify(tmp_path / "x", level=level)
    assert report
    assert (report.level, report.parts, report.orphans) == (level, 3, [])
    total = sum(p.stat().st_size for p in (tmp_path / "x/data").rglob("*.*") if p.suffix != ".crc")
    assert report.nbytes == (0 if level == "structure" else total)


def test_structure_reads_no_data_file_and_sees_its_size(tmp_path: Path) -> None:
    path = elements_of(tmp_path / "x")
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.write(b"\xff" * 9)
    assert verify(tmp_path / "x", level="structure")
    os.truncate(path, size - 1)
    (fault,) = verify(tmp_path / "x", level="structure").faults
    assert (fault.start, fault.stop) == (size - 1, size)
    path.unlink()
    (fault,) = verify(tmp_path / "x", level="structure").faults
    assert (fault.start, fault.stop) == (0, size)
    assert "is not there" in fault.problem


def test_a_sample_finds_damage_as_often_as_its_size_says(tmp_path: Path) -> None:
    """One of 13 blocks is damaged: a sample of n finds it in about n of 13 tries."""
    path = elements_of(tmp_path / "x")
    with open(path, "r+b") as file:
        file.seek(5 * BLOCK_BYTES + 100)
        file.write(b"\xff\xfe\xfd")
    found = dict.fromkeys((0, 1, 6, 13, 1000), 0)
    for blocks in found:
        for seed in range(40):
            report = verify(tmp_path / "x", level="sample", sample_blocks=blocks, seed=seed)
            places = {(fault.start, fault.stop) for fault in report.faults}
            assert places <= {(5 * BLOCK_BYTES, 6 * BLOCK_BYTES)}
            found[blocks] += bool(places)
            again = verify(tmp_path / "x", level="sample", sample_blocks=blocks, seed=seed)
            assert again == report, "the same seed is the same sample"
    assert found[0] == 0
    assert 0 < found[1] < 15
    assert 8 < found[6] < 32
    assert found[13] == found[1000] == 40


def test_a_sample_reaches_every_block_of_every_role(tmp_path: Path) -> None:
    KnownSpans().play(tmp_path / "x", Watched(), [(0, 5000), (1, 30)])
    for path in sorted((tmp_path / "x/data/0000").glob("*")):
        if path.suffix == ".crc" or not path.stat().st_size:
            continue
        data = bytearray(path.read_bytes())
        for block in range(-(-len(data) // BLOCK_BYTES)):
            changed = bytearray(data)
            changed[block * BLOCK_BYTES] ^= 1
            path.write_bytes(changed)
            faults = verify(tmp_path / "x", level="sample", sample_blocks=10**6).faults
            assert {fault.file for fault in faults} == {str(path.relative_to(tmp_path / "x"))}
            assert faults[0].start == block * BLOCK_BYTES
        path.write_bytes(data)


def test_versions_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    """Each version is whole in itself; together they cannot be."""
    directories = [tmp_path / "x", tmp_path / "y"]
    for directory in directories:
        KNOWN_ELEMENTS.play(directory, Watched(), [(0, 9)])
    header = (directories[0] / "guideloom.json").read_bytes()
    (directories[1] / "guideloom.json").write_bytes(header)
    assert not verify(directories[1]), "its record is of another dataset"
    storage(directories[0]).consolidate()
    KNOWN_ELEMENTS.play(directories[0], Watched(), [(1, 9)])
    storage(directories[0]).consolidate()
    one, two = (directories[0] / f"manifests/0000000{v}.json" for v in (1, 2))
    assert verify(directories[0])
    two.rename(two.with_name("00000003.json"))
    (fault,) = [f for f in verify(directories[0]).faults if f.file.startswith("manifests/")]
    assert "manifest_version is 2; expected 3" in fault.problem
    one.write_bytes(b"{}")
    names = {fault.file for fault in verify(directories[0]).faults}
    assert names == {"manifests/00000001.json", "manifests/00000003.json"}


def test_a_record_that_the_manifest_contradicts_is_named(tmp_path: Path) -> None:
    KNOWN_ELEMENTS.play(tmp_path / "x", Watched(), [(0, 9), (1, 9)])
    storage(tmp_path / "x").consolidate()
    KNOWN_ELEMENTS.play(tmp_path / "y", Watched(), [(0, 9), (1, 9)])
    record = tmp_path / "x/commits/0000000-0000.json"
    record.write_bytes((tmp_path / "y/commits/0000000-0000.json").read_bytes())
    (fault,) = verify(tmp_path / "x").faults
    assert fault.file == "commits/0000000-0000.json"
    assert "dataset_id" in fault.problem


def test_orphans_are_listed_and_are_no_fault(tmp_path: Path) -> None:
    directory = tmp_path / "x"
    KNOWN_ELEMENTS.play(directory, Watched(), [(0, 9)])
    storage(directory).consolidate()
    orphans = [
        "commits/0000000-0001.json.0123456789abcdef.tmp",
        "data/0000/0000000-0001-0123456789abcdef.elements",
        "data/0007/x",
        "data/0008",
        "data/notes.txt",
        "data/other",
        "guideloom.json.0123456789abcdef.tmp",
        "manifests/00000002.json.0123456789abcdef.tmp",
    ]
    (directory / "data/0007").mkdir()
    (directory / "data/other").mkdir()
    for name in orphans:
        if name != "data/other":
            (directory / name).write_bytes(b"")
    (directory / "data/other/below").write_bytes(b"")
    (directory / "README").write_bytes(b"")
    for level in LEVELS:
        report = verify(directory, level=level)  # type: ignore[arg-type]
        assert report.clean
        assert report.orphans == orphans
    assert verify(directory, MemoryIO.of(directory, lists=False)).orphans is None


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "guideloom_read.verify", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command(tmp_path: Path) -> None:
    """0 clean, 1 faults, 2 usage, 3 no dataset; the report on stdout, the rest on stderr."""
    path = elements_of(tmp_path / "x")
    done = run(tmp_path / "x")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"clean: 2 parts, \d+ bytes of data\n", done.stdout)
    path.write_bytes(np.zeros(path.stat().st_size, np.uint8).tobytes())
    assert run(tmp_path / "x", "--level", "structure").returncode == 0
    done = run(tmp_path / "x", "--level", "sample", "--sample-blocks", 13, "--seed", 5)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("12 faults: 2 parts, ")
    assert done.stdout.count("has the checksum") == 12
    for arguments in ((), ("--level", "no"), (tmp_path / "x", "--sample-blocks", -1)):
        done = run(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "usage: python -m guideloom_read.verify" in done.stderr
    done = run(tmp_path / "y")
    assert (done.returncode, done.stdout) == (3, "")
    assert "holds no dataset" in done.stderr
    assert "Traceback" not in done.stderr


def test_names_that_no_terminal_shows_are_escaped(tmp_path: Path) -> None:
    KNOWN_ELEMENTS.play(tmp_path / "x", Watched(), [(0, 9)])
    (tmp_path / "x/data/0000/\x1b[31mred").write_bytes(b"")
    (Path(os.fsdecode(os.fsencode(tmp_path / "x/data/0000") + b"/\xff"))).write_bytes(b"")
    text = str(verify(tmp_path / "x"))
    assert "\x1b" not in text
    assert r"orphan: 'data/0000/\udcff'" in text
    assert text.encode()


def test_importing_the_module_of_the_command_gives_the_function() -> None:
    code = (
        "import guideloom_read.verify, guideloom_read\n"
        "from guideloom_read import verify\n"
        "assert guideloom_read.verify is verify and callable(verify)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("level", ["", "all", None, 1])
def test_an_unknown_level(level: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected one of structure, sample, everything"):
        verify(tmp_path, level=level)


def test_no_dataset(tmp_path: Path) -> None:
    for level in LEVELS:
        with pytest.raises(DatasetNotFoundError):
            verify(tmp_path, level=level)  # type: ignore[arg-type]
    assert isinstance(VerifyReport(), VerifyReport)

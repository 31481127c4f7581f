"""The quick-start's writer: what it writes, and that an interruption leaves no trace."""

import signal
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.quickstart_scripts import load_module, run_script

dataset = load_module("dataset")

BYTES = 800_000
OPTIONS = ("--bytes", BYTES, "--commit-every", 20_000)
SHARDS = 4
CHANGES = "fsync,link,mkdir,unlink,write"


def content(directory: Path) -> list[list[int]]:
    """The tokens of each shard."""
    storage = dataset.storage(directory)
    with storage.sync_writer() as writer:
        lengths = [writer.length(shard) for shard in range(SHARDS)]
    with storage.sync_reader() as reader:
        assert len(reader) == sum(lengths)
        tokens = reader.read(0, len(reader))["tokens"]
    return [part.tolist() for part in np.split(tokens, np.cumsum(lengths)[:-1])]


def files(directory: Path) -> dict[Path, tuple[int, int]]:
    found = [path for path in directory.rglob("*") if path.is_file()]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def documents(limit: int) -> list[bytes]:
    library = Path(sysconfig.get_path("stdlib"))
    skipped = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
    found: list[bytes] = []
    for path in sorted(library.rglob("*.py")):
        if not skipped & set(path.relative_to(library).parts):
            if sum(map(len, found)) + path.stat().st_size > limit:
                break
            found.append(path.read_bytes())
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset written without interruption."""
    directory = tmp_path_factory.mktemp("quickstart") / "whole"
    done = run_script("write.py", directory, *OPTIONS)
    assert done.returncode == 0, done.stderr
    return directory


def test_shards_hold_the_documents_dealt_in_turn(whole: Path) -> None:
    expected: list[list[int]] = [[] for _ in range(SHARDS)]
    for number, document in enumerate(documents(BYTES)):
        expected[number % SHARDS] += [*document, 256]
    assert all(expected)
    assert content(whole) == expected


def test_header_tells_the_origin(whole: Path) -> None:
    with dataset.storage(whole).sync_reader() as reader:
        user: Any = reader.header.user
        assert set(user) == {"source", "python", "tokenizer", "licence"}
        assert user["licence"] == "PSF-2.0"


def test_complete_dataset_is_left_alone(whole: Path) -> None:
    before = files(whole)
    done = run_script("write.py", whole, *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert files(whole) == before


@pytest.mark.parametrize("kill_at", [0, 4, 13, 27, 40, 56, 57, 58, 59, 60])
def test_killed_writer_goes_on(whole: Path, tmp_path: Path, kill_at: int) -> None:
    """Before the header, between commits, within one: the second run completes the dataset."""
    done = run_script("write.py", tmp_path / "killed", *OPTIONS, kill_at=(kill_at, CHANGES))
    assert done.returncode == -signal.SIGKILL, f"only {kill_at} changes: {done.stderr}"
    done = run_script("write.py", tmp_path / "killed", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert content(tmp_path / "killed") == content(whole)


def test_writer_killed_again_and_again_goes_on(whole: Path, tmp_path: Path) -> None:
    """Each run gets a little further."""
    kills = 0
    arguments = ("write.py", tmp_path, *OPTIONS)
    while run_script(*arguments, kill_at=(25, CHANGES)).returncode == -signal.SIGKILL:
        kills += 1
        assert kills < 30, "no progress"
    assert kills >= 3
    assert content(tmp_path) == content(whole)


def test_other_documents_are_refused(whole: Path) -> None:
    before = files(whole)
    done = run_script("write.py", whole, "--bytes", BYTES // 2)
    assert done.returncode == 1
    assert done.stderr == (
        "write.py: the dataset there was begun with other documents (another Python, another "
        "limit); choose a new folder\n"
    )
    assert files(whole) == before


def test_a_larger_limit_extends_the_dataset(whole: Path, tmp_path: Path) -> None:
    for limit in (BYTES // 2, BYTES):
        done = run_script("write.py", tmp_path, "--bytes", limit)
        assert done.returncode == 0, done.stderr
    assert content(tmp_path) == content(whole)


@pytest.mark.parametrize("document", [b"", b"\x00", bytes(range(256)) * 3])
def test_tokens_of_a_document(document: bytes) -> None:
    tokens = dataset.encode(document)
    assert tokens.dtype == np.uint16
    assert tokens.tolist() == [*document, 256]

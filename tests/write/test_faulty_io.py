"""Every file operation of a writer fails, with every errno, once and for ever.

Whatever fails: the error names a path and the errno, a reader sees whole parts or nothing of them,
the writer takes no more calls, and a new one goes on from `length(shard)`.
"""

from __future__ import annotations

import errno
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from guideloom_format import GuideLoomError, WriterStateError, _names
from guideloom_read import verify
from guideloom_write import StreamWriter
from write.faulty_files import NEVER_FAILS, FailAt, Watched
from write.known_content import (
    COMMIT,
    Script,
    complete,
    elements,
    garbage,
    lengths_of,
    parts_of,
    play,
    storage,
    visible,
)

NUMBERS = [
    errno.ENOSPC,
    errno.EIO,
    errno.EDQUOT,
    errno.EFBIG,
    errno.ESTALE,
    errno.EMFILE,
    errno.EACCES,
    errno.EROFS,
    errno.ETIMEDOUT,
]
SCRIPT: Script = [(0, 20), (1, 30), (2, 4), COMMIT, (1, 5), (1, 8_000), COMMIT, (0, 3)]
PARTS = parts_of(SCRIPT)
KINDS = [
    "make_folder",
    "create",
    "reopen",
    "write",
    "size",
    "sync",
    "close",
    "sync_folder",
    "link",
    "remove",
    "read",
]


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that little data goes past the buffer, and parts are released and opened again."""
    monkeypatch.setattr("guideloom_write._checked_file._BUFFER_BYTES", 65536)
    monkeypatch.setattr("guideloom_write._shard_writer.MOST_OPEN_PARTS", 2)


def play_until_it_fails(directory: Path, files: Watched) -> GuideLoomError | None:
    """Run the script until a call fails; its error, after a check that the writer is void."""
    writer = StreamWriter(storage(directory), files=files)
    at = dict.fromkeys((0, 1, 2), 0)
    opened = False
    try:
        writer.open()
        opened = True
        for step in (*SCRIPT, COMMIT):
            if step is COMMIT:
                writer.commit()
            else:
                shard, count = step
                writer.append(shard, elements(shard, at[shard], at[shard] + count))
                at[shard] += count
    except GuideLoomError as error:
        check_refused(writer, "this writer failed before" if opened else "the writer is not open")
        return error
    finally:
        writer.close()
        assert files.open_count() == 0, "descriptors stay open"
    return None


def check_refused(writer: StreamWriter, text: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: writer.append(0, elements(0, 0, 1)),
        lambda: writer.length(0),
        writer.commit,
    ]
    for call in calls:
        with pytest.raises(WriterStateError, match=text):
            call()


def check_only_whole_parts(directory: Path, files: Watched) -> None:
    """Visible are the parts whose link was made, and their data is there and right."""
    linked = {_names.parse_commit_name(Path(target).name) for target in files.linked}
    garbage(directory)
    expected = lengths_of({place: length for place, length in PARTS.items() if place in linked})
    assert (visible(directory) or {}) == expected
    if (directory / "guideloom.json").exists():
        report = verify(directory)
        assert report.clean, report.faults


def attempt(directory: Path, files: FailAt, number: int) -> bool:
    """One run with a failure, and the run after it. False if the failure was not reached."""
    error = play_until_it_fails(directory, files)
    if not files.failures:
        assert error is None
        shutil.rmtree(directory)
        return False
    kinds = {kind for kind, _ in files.failures}
    if error is None:
        assert kinds == {"remove"}, f"{files.failures} went unnoticed"
    else:
        assert isinstance(error, OSError)
        assert f"errno {number}" in str(error)
        assert str(directory) in str(error)
    check_only_whole_parts(directory, files)
    complete(directory, Watched(), lengths_of(PARTS))
    assert visible(directory) == lengths_of(PARTS)
    assert verify(directory).clean
    shutil.rmtree(directory)
    return True


@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_of_a_kind_with_every_errno(kind: str, forever: bool, tmp_path: Path) -> None:
    log = Watched()
    play(tmp_path / "undisturbed", log, SCRIPT)
    count = 0
    for number in NUMBERS:
        for n in itertools.count(1):
            files = FailAt(n, number, forever=forever, kinds=[kind])
            if not attempt(tmp_path / f"{number}-{n}", files, number):
                break
            count += 1
    calls = sum(1 for found, _ in log.calls if found == kind)
    assert count >= len(NUMBERS) * max(1, calls // 2), (count, calls)


def test_everything_fails_from_some_call_on(tmp_path: Path) -> None:
    """The disk is gone: not even cleaning up works."""
    log = Watched()
    play(tmp_path / "undisturbed", log, SCRIPT)
    tried = 0
    for n in itertools.count(1):
        number = NUMBERS[n % len(NUMBERS)]
        if not attempt(tmp_path / str(n), FailAt(n, number, forever=True), number):
            break
        tried += 1
    assert tried > 60


def test_the_kinds_are_all_there_are(tmp_path: Path) -> None:
    log = Watched()
    play(tmp_path / "x", log, SCRIPT)
    assert {kind for kind, _ in log.calls} - NEVER_FAILS == set(KINDS)

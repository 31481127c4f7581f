"""Every file operation of a writer of documents fails, with several errnos, once and for ever.

Whatever fails: the error names a path and the errno, a reader sees whole parts or nothing of them,
the writer takes no more calls, and a new one goes on from `length(shard)`.
"""

from __future__ import annotations

import errno
import itertools
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from guideloom_format import GuideLoomError, WriteError, WriterStateError
from guideloom_read import verify
from guideloom_write import DocumentWriter
from write.crash_cases import linked_parts
from write.faulty_files import NEVER_FAILS, AppliedThenError, FailAt, Watched
from write.known_content import COMMIT, Script, all_files, garbage, lengths_of, parts_of
from write.known_documents import KnownDocuments, storage

KNOWN = KnownDocuments(sizes=(0, 3, 20_000, 40))
NUMBERS = [errno.ENOSPC, errno.EIO, errno.EACCES, errno.ETIMEDOUT]
SCRIPT: Script = [(0, 9), (1, 12), (2, 4), COMMIT, (1, 5), (1, 20), COMMIT, (0, 3)]
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
    writer = DocumentWriter(storage(directory), files=files)
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
                KNOWN.append(writer, shard, at[shard], at[shard] + count)
                at[shard] += count
    except GuideLoomError as error:
        check_refused(writer, "this writer failed before" if opened else "the writer is not open")
        return error
    finally:
        writer.close()
        assert files.open_count() == 0, "descriptors stay open"
    return None


def check_refused(writer: DocumentWriter, text: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: writer.append(0, b"x"),
        lambda: writer.extend(0, [b"x"]),
        lambda: writer.extend(0, []),
        lambda: writer.length(0),
        writer.commit,
    ]
    for call in calls:
        with pytest.raises(WriterStateError, match=text):
            call()


def check_only_whole_parts(directory: Path, files: Watched) -> None:
    """Visible are the parts whose link was made, and their data is there and right."""
    linked = linked_parts(files)
    garbage(directory)
    expected = lengths_of({place: length for place, length in PARTS.items() if place in linked})
    assert (KNOWN.visible(directory) or {}) == expected
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
    if error is None:
        assert {kind for kind, _ in files.failures} == {"remove"}, f"{files.failures} unnoticed"
    else:
        assert isinstance(error, OSError)
        assert f"errno {number}" in str(error)
        assert str(directory) in str(error)
    check_only_whole_parts(directory, files)
    KNOWN.complete(directory, Watched(), lengths_of(PARTS))
    assert KNOWN.visible(directory) == lengths_of(PARTS)
    assert verify(directory).clean
    shutil.rmtree(directory)
    return True


@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_of_a_kind(kind: str, forever: bool, tmp_path: Path) -> None:
    """Each with one of the errnos in turn."""
    log = Watched()
    KNOWN.play(tmp_path / "undisturbed", log, SCRIPT)
    count = 0
    for n in itertools.count(1):
        number = NUMBERS[n % len(NUMBERS)]
        files = FailAt(n, number, forever=forever, kinds=[kind])
        if not attempt(tmp_path / str(n), files, number):
            break
        count += 1
    calls = sum(1 for found, _ in log.calls if found == kind)
    assert count >= max(1, calls // 2), (count, calls)


def test_everything_fails_from_some_call_on(tmp_path: Path) -> None:
    """The disk is gone: not even cleaning up works."""
    tried = 0
    for n in itertools.count(1):
        number = NUMBERS[n % len(NUMBERS)]
        if not attempt(tmp_path / str(n), FailAt(n, number, forever=True), number):
            break
        tried += 1
    assert tried > 120


def test_the_kinds_are_all_there_are(tmp_path: Path) -> None:
    log = Watched()
    KNOWN.play(tmp_path / "x", log, SCRIPT)
    assert {kind for kind, _ in log.calls} - NEVER_FAILS == set(KINDS)


@pytest.mark.parametrize("role", ["documents", "documents.crc", "ends", "ends.crc"])
def test_a_file_that_changed_its_size_is_not_committed(role: str, tmp_path: Path) -> None:
    """Something else appended to one of the files, or the file system lost a write."""

    class Longer(Watched):
        def size(self, path: str) -> int:
            return super().size(path) + path.endswith(f".{role}")

    with (
        pytest.raises(WriteError, match=rf"\.{role} has \d+ bytes after \d+ were written"),
        DocumentWriter(storage(tmp_path / "x"), files=Longer()) as writer,
    ):
        KNOWN.append(writer, 0, 0, 9)
    assert KNOWN.visible(tmp_path / "x") == {}
    assert garbage(tmp_path / "x") == set()


@pytest.mark.parametrize("number", [errno.EIO, errno.EEXIST])
def test_a_link_that_was_made_and_gave_an_error_counts_once(number: int, tmp_path: Path) -> None:
    files = AppliedThenError("link", number)
    KNOWN.play(tmp_path / "x", files, [(0, 5), (1, 6), COMMIT, (0, 7)])
    assert len(files.failures) == 4  # the header and three records
    assert KNOWN.visible(tmp_path / "x") == {0: 12, 1: 6}
    assert garbage(tmp_path / "x") == set()


@pytest.mark.parametrize("kind", ["write", "sync", "close"])
@pytest.mark.parametrize("n", range(1, 10))
def test_a_name_is_not_used_again_after_an_error(kind: str, n: int, tmp_path: Path) -> None:
    """After an error of a sync the kernel may forget the pages that it could not write."""
    files = FailAt(n, errno.EIO, kinds=[kind])
    writer = DocumentWriter(storage(tmp_path / "x"), files=files)
    with pytest.raises(WriteError):
        write_two_shards(writer)
    assert files.failures
    before = set(files.created)
    writer.close()
    write_two_shards(writer)
    writer.close()
    again = files.created[len(before) :]
    assert again
    assert not before & set(again)
    assert KNOWN.visible(tmp_path / "x") == {0: 30, 1: 5}
    assert verify(tmp_path / "x").clean


def write_two_shards(writer: DocumentWriter) -> None:
    writer.open()
    for shard, total in ((0, 30), (1, 5)):
        KNOWN.append(writer, shard, writer.length(shard), total)
    writer.commit()


def fail_in_the_body(directory: Path, count: int) -> None:
    with DocumentWriter(storage(directory), files=Watched()) as writer:
        KNOWN.append(writer, 0, 5, 5 + count)
        KNOWN.append(writer, 1, 0, count)
        raise ZeroDivisionError


def test_an_exception_in_the_body_publishes_nothing(tmp_path: Path) -> None:
    KNOWN.play(tmp_path / "x", Watched(), [(0, 5)])
    before = all_files(tmp_path / "x")
    for count in (1, 30):
        with pytest.raises(ZeroDivisionError):
            fail_in_the_body(tmp_path / "x", count)
        assert all_files(tmp_path / "x") == before
    assert KNOWN.visible(tmp_path / "x") == {0: 5}


def test_the_error_says_what_to_do(tmp_path: Path) -> None:
    files = FailAt(1, errno.ENOSPC, kinds=["write"])
    KNOWN.play(tmp_path / "x", Watched(), [(0, 5)])
    with (
        pytest.raises(WriteError) as raised,
        DocumentWriter(storage(tmp_path / "x"), files=files) as writer,
    ):
        writer.extend(0, [bytes(100_000)] * 3)
    assert raised.value.errno == errno.ENOSPC
    assert re.fullmatch(
        re.escape(str(tmp_path / "x"))
        + r": No space left on device \(errno 28\), file of the part being written\. What was not "
        r"committed is void; a new writer goes on from length\(shard\)",
        str(raised.value),
    )

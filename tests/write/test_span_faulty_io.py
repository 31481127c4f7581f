"""Every file operation of a writer of streams with metadata fails, once and for ever.

Whatever fails: the error names a path and the errno, a reader sees whole parts or nothing of them,
the writer takes no more calls, and a new one goes on from `length(shard)`.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from guideloom_format import WriteError
from guideloom_write import StreamWithMetaWriter
from write.fault_cases import KINDS, Faults, check_new_names, set_small_limits
from write.faulty_files import AppliedThenError, FailAt, Watched
from write.known_content import COMMIT, Script, all_files, garbage
from write.known_spans import KnownSpans, storage

KNOWN = KnownSpans(sizes=(0, 60, 30_000))
NUMBERS = [errno.ENOSPC, errno.EIO, errno.EACCES, errno.ETIMEDOUT]
SCRIPT: Script = [(0, 9), (1, 60), (2, 4), COMMIT, (1, 5), (1, 20), COMMIT, (0, 3)]
NOTHING: tuple[NDArray[np.uint64], list[int], list[bytes]] = (np.zeros(0, np.uint64), [], [])


class SpanFaults(Faults[StreamWithMetaWriter]):
    def refused(self, writer: StreamWithMetaWriter) -> list[Callable[[], object]]:
        return [lambda: writer.append(0, NOTHING), lambda: writer.length(0), writer.commit]


FAULTS = SpanFaults(KNOWN, SCRIPT)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    set_small_limits(monkeypatch)


@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_of_a_kind(kind: str, forever: bool, tmp_path: Path) -> None:
    """Each with one of the errnos in turn."""
    log = FAULTS.log(tmp_path / "undisturbed")
    count = 0
    for n in itertools.count(1):
        number = NUMBERS[n % len(NUMBERS)]
        files = FailAt(n, number, forever=forever, kinds=[kind])
        if not FAULTS.attempt(tmp_path / str(n), files, number):
            break
        count += 1
    calls = sum(1 for found, _ in log.calls if found == kind)
    assert count >= max(1, calls // 2), (count, calls)


def test_everything_fails_from_some_call_on(tmp_path: Path) -> None:
    """The disk is gone: not even cleaning up works."""
    assert FAULTS.fail_for_ever(tmp_path, NUMBERS) > 160


def test_the_kinds_are_all_there_are(tmp_path: Path) -> None:
    FAULTS.check_kinds(tmp_path / "x")


@pytest.mark.parametrize("role", ["elements", "spans", "payloads", "spans.crc"])
def test_a_file_that_changed_its_size_is_not_committed(role: str, tmp_path: Path) -> None:
    """Something else appended to one of the files, or the file system lost a write."""

    class Longer(Watched):
        def size(self, path: str) -> int:
            return super().size(path) + path.endswith(f".{role}")

    with (
        pytest.raises(WriteError, match=rf"\.{role} has \d+ bytes after \d+ were written"),
        StreamWithMetaWriter(storage(tmp_path / "x"), files=Longer()) as writer,
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
@pytest.mark.parametrize("n", range(1, 13))
def test_a_name_is_not_used_again_after_an_error(kind: str, n: int, tmp_path: Path) -> None:
    check_new_names(KNOWN, kind, n, first=90, directory=tmp_path / "x")


def fail_in_the_body(directory: Path, count: int) -> None:
    with StreamWithMetaWriter(storage(directory), files=Watched()) as writer:
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

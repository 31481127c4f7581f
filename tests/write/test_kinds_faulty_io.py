"""Every file operation of a writer of documents or spans fails, once and for ever.

Whatever fails: the error names a path and the errno, a reader sees whole parts or nothing of them,
the writer takes no more calls, and a new one goes on from `length(shard)`. For plain streams see
`test_faulty_io.py`.
"""

from __future__ import annotations

import errno
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from guideloom_format import WriteError
from guideloom_write import DocumentWriter, StreamWithMetaWriter
from write.fault_cases import KINDS, Faults, check_new_names, set_small_limits
from write.faulty_files import AppliedThenError, FailAt, Watched
from write.known_content import COMMIT, Script, all_files, garbage
from write.known_documents import KnownDocuments
from write.known_spans import KnownSpans

NUMBERS = [errno.ENOSPC, errno.EIO, errno.EACCES, errno.ETIMEDOUT]
DOCUMENTS_SCRIPT: Script = [(0, 9), (1, 12), (2, 4), COMMIT, (1, 5), (1, 20), COMMIT, (0, 3)]
SPANS_SCRIPT: Script = [(0, 9), (1, 60), (2, 4), COMMIT, (1, 5), (1, 20), COMMIT, (0, 3)]
NO_SPANS: tuple[NDArray[np.uint64], list[int], list[bytes]] = (np.zeros(0, np.uint64), [], [])


class DocumentFaults(Faults[DocumentWriter]):
    def refused(self, writer: DocumentWriter) -> list[Callable[[], object]]:
        return [
            lambda: writer.append(0, b"x"),
            lambda: writer.extend(0, [b"x"]),
            lambda: writer.extend(0, []),
            lambda: writer.length(0),
            writer.commit,
        ]


class SpanFaults(Faults[StreamWithMetaWriter]):
    def refused(self, writer: StreamWithMetaWriter) -> list[Callable[[], object]]:
        return [lambda: writer.append(0, NO_SPANS), lambda: writer.length(0), writer.commit]


DOCUMENTS = DocumentFaults(KnownDocuments(sizes=(0, 3, 20_000, 40)), DOCUMENTS_SCRIPT)
SPANS = SpanFaults(KnownSpans(sizes=(0, 60, 30_000)), SPANS_SCRIPT)
ROLES = [
    *((DOCUMENTS, role) for role in ("documents", "documents.crc", "ends", "ends.crc")),
    *((SPANS, role) for role in ("elements", "spans", "spans.crc", "payloads", "payloads.crc")),
]
of_both = pytest.mark.parametrize("faults", [DOCUMENTS, SPANS], ids=["documents", "spans"])


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    set_small_limits(monkeypatch)


@of_both
@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_of_a_kind(
    faults: Faults[Any], kind: str, forever: bool, tmp_path: Path
) -> None:
    """Each with one of the errnos in turn."""
    log = faults.log(tmp_path / "undisturbed")
    count = 0
    for n in itertools.count(1):
        number = NUMBERS[n % len(NUMBERS)]
        files = FailAt(n, number, forever=forever, kinds=[kind])
        if not faults.attempt(tmp_path / str(n), files, number):
            break
        count += 1
    calls = sum(1 for found, _ in log.calls if found == kind)
    assert count >= max(1, calls // 2), (count, calls)


@of_both
def test_everything_fails_from_some_call_on(faults: Faults[Any], tmp_path: Path) -> None:
    """The disk is gone: not even cleaning up works."""
    assert faults.fail_for_ever(tmp_path, NUMBERS) > (120 if faults is DOCUMENTS else 160)


@of_both
def test_the_kinds_are_all_there_are(faults: Faults[Any], tmp_path: Path) -> None:
    faults.check_kinds(tmp_path / "x")


@pytest.mark.parametrize("faults, role", ROLES, ids=[role for _, role in ROLES])
def test_a_file_that_changed_its_size_is_not_committed(
    faults: Faults[Any], role: str, tmp_path: Path
) -> None:
    """Something else appended to one of the files, or the file system lost a write."""

    class Longer(Watched):
        def size(self, path: str) -> int:
            return super().size(path) + path.endswith(f".{role}")

    with (
        pytest.raises(WriteError, match=rf"\.{role} has \d+ bytes after \d+ were written"),
        faults.known.writer(tmp_path / "x", Longer()) as writer,
    ):
        faults.known.append(writer, 0, 0, 9)
    assert faults.known.visible(tmp_path / "x") == {}
    assert garbage(tmp_path / "x") == set()


@of_both
@pytest.mark.parametrize("number", [errno.EIO, errno.EEXIST])
def test_a_link_that_was_made_and_gave_an_error_counts_once(
    faults: Faults[Any], number: int, tmp_path: Path
) -> None:
    files = AppliedThenError("link", number)
    faults.known.play(tmp_path / "x", files, [(0, 5), (1, 6), COMMIT, (0, 7)])
    assert len(files.failures) == 6  # the header, two notes of owners and three records
    assert faults.known.visible(tmp_path / "x") == {0: 12, 1: 6}
    assert garbage(tmp_path / "x") == set()


@of_both
@pytest.mark.parametrize("kind", ["write", "sync", "close"])
@pytest.mark.parametrize("n", range(1, 10))
def test_a_name_is_not_used_again_after_an_error(
    faults: Faults[Any], kind: str, n: int, tmp_path: Path
) -> None:
    first = 30 if faults is DOCUMENTS else 90
    check_new_names(faults.known, kind, n, first=first, directory=tmp_path / "x")


def fail_in_the_body(faults: Faults[Any], directory: Path, count: int) -> None:
    with faults.known.writer(directory, Watched()) as writer:
        faults.known.append(writer, 0, 5, 5 + count)
        faults.known.append(writer, 1, 0, count)
        raise ZeroDivisionError


@of_both
def test_an_exception_in_the_body_publishes_nothing(faults: Faults[Any], tmp_path: Path) -> None:
    faults.known.play(tmp_path / "x", Watched(), [(0, 5)])
    before = all_files(tmp_path / "x")
    for count in (1, 30):
        with pytest.raises(ZeroDivisionError):
            fail_in_the_body(faults, tmp_path / "x", count)
        assert all_files(tmp_path / "x") == before
    assert faults.known.visible(tmp_path / "x") == {0: 5}


def test_the_error_says_what_to_do(tmp_path: Path) -> None:
    files = FailAt(1, errno.ENOSPC, kinds=["write"])
    DOCUMENTS.known.play(tmp_path / "x", Watched(), [(0, 5)])
    with (
        pytest.raises(WriteError) as raised,
        DOCUMENTS.known.writer(tmp_path / "x", files) as writer,
    ):
        writer.extend(0, [bytes(100_000)] * 3)
    assert raised.value.errno == errno.ENOSPC
    assert re.fullmatch(
        re.escape(str(tmp_path / "x"))
        + r": No space left on device \(errno 28\), file of the part being written\. What was not "
        r"committed is void; a new writer goes on from length\(shard\)",
        str(raised.value),
    )

"""Every file operation of a writer fails, with every errno, once and for ever.

Whatever fails: the error names a path and the errno, a reader sees whole parts or nothing of them,
the writer takes no more calls, and a new one goes on from `length(shard)`.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from guideloom_write import StreamWriter
from write.fault_cases import KINDS, Faults, set_small_limits
from write.faulty_files import FailAt
from write.known_content import COMMIT, KNOWN_ELEMENTS, Script, elements

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


class StreamFaults(Faults[StreamWriter]):
    def refused(self, writer: StreamWriter) -> list[Callable[[], object]]:
        return [
            lambda: writer.append(0, elements(0, 0, 1)),
            lambda: writer.length(0),
            writer.commit,
        ]


FAULTS = StreamFaults(KNOWN_ELEMENTS, SCRIPT)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    set_small_limits(monkeypatch)


@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_call_of_a_kind_with_every_errno(kind: str, forever: bool, tmp_path: Path) -> None:
    log = FAULTS.log(tmp_path / "undisturbed")
    count = 0
    for number in NUMBERS:
        for n in itertools.count(1):
            files = FailAt(n, number, forever=forever, kinds=[kind])
            if not FAULTS.attempt(tmp_path / f"{number}-{n}", files, number):
                break
            count += 1
    calls = sum(1 for found, _ in log.calls if found == kind)
    assert count >= len(NUMBERS) * max(1, calls // 2), (count, calls)


def test_everything_fails_from_some_call_on(tmp_path: Path) -> None:
    """The disk is gone: not even cleaning up works."""
    assert FAULTS.fail_for_ever(tmp_path, NUMBERS) > 60


def test_the_kinds_are_all_there_are(tmp_path: Path) -> None:
    FAULTS.check_kinds(tmp_path / "x")

"""Single steps of a commit that fail or answer wrongly, each with its own promise."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from guideloom_format import WriteError, WriterStateError
from guideloom_read import verify
from guideloom_write import StreamWriter, _files
from write.fault_cases import check_new_names
from write.faulty_files import AppliedThenError, FailAt, ShortOs, Watched
from write.known_content import (
    COMMIT,
    KNOWN_ELEMENTS,
    all_files,
    complete,
    elements,
    garbage,
    play,
    storage,
    visible,
)


def is_record(path: str) -> bool:
    return path.endswith(".json") and "/commits/" in path


@pytest.mark.parametrize(
    "cut",
    [lambda _: 1, lambda n: n // 2 or 1, lambda n: n - 1 or 1, lambda n: min(n, 4096)],
    ids=["1", "half", "all but 1", "a page"],
)
def test_short_writes(
    cut: Callable[[int], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operating system may write less than it was asked to; the rest is written, too."""
    short = ShortOs(cut)
    monkeypatch.setattr(_files, "os", short)
    script = [(0, 300), (1, 7), COMMIT, (0, 4000), (0, 30_000 if cut(100) > 1 else 0)]
    play(tmp_path / "x", Watched(), script)
    assert short.shortened >= 10
    assert visible(tmp_path / "x") == {0: 4300 + script[4][1], 1: 7}  # type: ignore[index]
    assert verify(tmp_path / "x").clean


def test_a_write_of_nothing_is_an_error_and_not_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(tmp_path / "x", Watched(), [(0, 5)])
    monkeypatch.setattr(_files, "os", ShortOs(lambda _: 0))
    with (
        pytest.raises(WriteError, match="the operating system wrote 0 bytes and gave no reason"),
        StreamWriter(storage(tmp_path / "x")) as writer,
    ):
        writer.append(0, elements(0, 5, 6))
    assert visible(tmp_path / "x") == {0: 5}
    assert garbage(tmp_path / "x") == set()


def test_a_file_that_changed_its_size_is_not_committed(tmp_path: Path) -> None:
    """Something else appended to the data file, or the file system lost a write."""

    class Longer(Watched):
        def size(self, path: str) -> int:
            return super().size(path) + path.endswith(".elements")

    with (
        pytest.raises(WriteError, match=r"\.elements has 46 bytes after 45 were written"),
        StreamWriter(storage(tmp_path / "x"), files=Longer()) as writer,
    ):
        writer.append(0, elements(0, 0, 5))
    assert visible(tmp_path / "x") == {}
    assert garbage(tmp_path / "x") == set()


@pytest.mark.parametrize("number", [errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EEXIST])
def test_a_link_that_was_made_and_gave_an_error_counts_once(number: int, tmp_path: Path) -> None:
    """The answer of a network file system is lost: the record there settles it."""
    files = AppliedThenError("link", number)
    play(tmp_path / "x", files, [(0, 5), (1, 6), COMMIT, (0, 7)])
    assert len(files.failures) == 6  # the header, two notes of owners and three records
    assert visible(tmp_path / "x") == {0: 12, 1: 6}
    assert garbage(tmp_path / "x") == set()
    assert verify(tmp_path / "x").parts == 3


def test_a_record_that_was_linked_is_never_robbed_of_its_data(tmp_path: Path) -> None:
    """The link is made, its answer is an error, and reading back fails as well.

    The writer cannot know whether the part is committed, so it must leave the files alone: the
    record is there, and a reader relies on them.
    """

    class LostAnswerError(AppliedThenError):
        def before(self, kind: str, path: str) -> None:
            if kind == "read" and is_record(path) and path in self.linked:
                raise OSError(errno.EIO, "Input/output error", path)

    files = LostAnswerError("link", errno.ETIMEDOUT, is_record)
    play(tmp_path / "x", Watched(), [(0, 5)])
    with (
        pytest.raises(WriteError, match=r"Input/output error \(errno 5\)"),
        StreamWriter(storage(tmp_path / "x"), files=files) as writer,
    ):
        writer.append(0, elements(0, 5, 9))
    assert files.failures
    garbage(tmp_path / "x")
    assert visible(tmp_path / "x") == {0: 9}
    assert verify(tmp_path / "x").clean


def test_a_part_is_kept_when_only_its_last_sync_failed(tmp_path: Path) -> None:
    """The record is published, so the part is committed; only its durability is in doubt."""

    class NoSyncOfCommits(Watched):
        def before(self, kind: str, path: str) -> None:
            if kind == "sync_folder" and path.endswith("commits") and len(self.linked) == 3:
                raise OSError(errno.EIO, "Input/output error", path)

    with (
        pytest.raises(WriteError, match=r"errno 5\), file .*commits"),
        StreamWriter(storage(tmp_path / "x"), files=NoSyncOfCommits()) as writer,
    ):
        writer.append(0, elements(0, 0, 9))
    garbage(tmp_path / "x")
    assert visible(tmp_path / "x") == {0: 9}
    assert verify(tmp_path / "x").clean


def test_an_interrupt_behind_the_link_keeps_the_part(tmp_path: Path) -> None:
    """Ctrl-C arrives when the record was just published: its data stays."""

    class Interrupted(Watched):
        def after(self, kind: str, path: str) -> None:
            if kind == "link" and is_record(path):
                raise KeyboardInterrupt

    writer = StreamWriter(storage(tmp_path / "x"), files=Interrupted()).open()
    writer.append(0, elements(0, 0, 9))
    with pytest.raises(KeyboardInterrupt):
        writer.commit()
    writer.close()
    garbage(tmp_path / "x")
    assert visible(tmp_path / "x") == {0: 9}


def test_a_link_without_effect_that_reports_success(tmp_path: Path) -> None:
    class Lost(Watched):
        def link(self, source: str, target: str) -> None:
            if not is_record(target):
                super().link(source, target)

    with (
        pytest.raises(WriteError, match="is not there after it was published"),
        StreamWriter(storage(tmp_path / "x"), files=Lost()) as writer,
    ):
        writer.append(0, elements(0, 0, 9))
    assert visible(tmp_path / "x") == {}


def test_a_file_system_without_hard_links(tmp_path: Path) -> None:
    files = FailAt(1, errno.EPERM, forever=True, kinds=["link"])
    with pytest.raises(
        WriteError,
        match=r"guideloom\.json cannot be created: Operation not permitted \(errno 1\)\. "
        "A dataset is written to a file system with hard links; write elsewhere and copy it there",
    ):
        StreamWriter(storage(tmp_path / "x"), files=files).open()
    assert all_files(tmp_path / "x") == set()


@pytest.mark.parametrize("kind", ["create", "make_folder"])
def test_a_file_or_folder_that_was_created_though_it_gave_an_error(
    kind: str, tmp_path: Path
) -> None:
    for number in (errno.EIO, errno.ETIMEDOUT):
        directory = tmp_path / f"{kind}-{number}"
        files = AppliedThenError(kind, number)
        try:
            with pytest.raises(WriteError, match=f"errno {number}"):
                play(directory, files, [(0, 5)])
        finally:
            files.bury()
        assert files.failures
        assert not visible(directory)
        complete(directory, Watched(), {0: 5, 1: 8})
        assert visible(directory) == {0: 5, 1: 8}


@pytest.mark.parametrize("kind", ["write", "sync", "close"])
@pytest.mark.parametrize("n", range(1, 8))
def test_a_name_is_not_used_again_after_an_error(kind: str, n: int, tmp_path: Path) -> None:
    check_new_names(KNOWN_ELEMENTS, kind, n, first=30_000, directory=tmp_path / "x")


def test_the_error_is_chained_to_its_cause_and_keeps_the_errno(tmp_path: Path) -> None:
    files = FailAt(1, errno.ENOSPC, kinds=["write"])
    play(tmp_path / "x", Watched(), [(0, 5)])
    with (
        pytest.raises(WriteError) as raised,
        StreamWriter(storage(tmp_path / "x"), files=files) as writer,
    ):
        writer.append(0, elements(0, 5, 50_000))
    assert raised.value.errno == errno.ENOSPC
    assert isinstance(raised.value.__cause__, OSError)
    assert re.fullmatch(
        re.escape(str(tmp_path / "x"))
        + r": No space left on device \(errno 28\), file of the part being written\. What was not "
        r"committed is void; a new writer goes on from length\(shard\)",
        str(raised.value),
    )


def test_shards_before_the_failure_are_committed(tmp_path: Path) -> None:
    """`commit` publishes shard after shard; the error voids the rest."""
    files = FailAt(6, errno.EIO, kinds=["link"])  # header, three notes, shard 2, shard 5
    writer = StreamWriter(storage(tmp_path / "x"), files=files).open()
    for shard in (9, 5, 2):
        writer.append(shard, elements(shard, 0, 10 + shard))
    with pytest.raises(WriteError, match="0000005-0000"):
        writer.commit()
    with pytest.raises(
        WriterStateError,
        match=r"this writer failed before \(OSError: \[Errno 5\] .*\); everything since its "
        r"last commit is void\. Open a new writer; its length\(shard\) says where to go on",
    ):
        writer.append(9, elements(9, 0, 1))
    writer.close()
    assert visible(tmp_path / "x") == {2: 12}
    assert not any("0000009" in name for name in garbage(tmp_path / "x"))
    complete(tmp_path / "x", Watched(), {2: 12, 5: 15, 9: 19})
    assert visible(tmp_path / "x") == {2: 12, 5: 15, 9: 19}


def fail_in_the_body(directory: Path, size: int) -> None:
    with StreamWriter(storage(directory), files=Watched()) as writer:
        writer.append(0, elements(0, 5, 5 + size))
        writer.append(1, elements(1, 0, size))
        raise ZeroDivisionError


def test_an_exception_in_the_body_publishes_nothing(tmp_path: Path) -> None:
    play(tmp_path / "x", Watched(), [(0, 5)])
    before = all_files(tmp_path / "x")
    for size in (1, 100, 50_000):
        with pytest.raises(ZeroDivisionError):
            fail_in_the_body(tmp_path / "x", size)
        assert all_files(tmp_path / "x") == before
    assert visible(tmp_path / "x") == {0: 5}


def commit_and_fail(directory: Path) -> None:
    with StreamWriter(storage(directory), files=Watched()) as writer:
        writer.append(0, elements(0, 0, 5))
        writer.commit()
        writer.append(0, elements(0, 5, 9))
        raise KeyError


def test_an_exception_in_the_body_keeps_what_was_committed(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        commit_and_fail(tmp_path / "x")
    assert visible(tmp_path / "x") == {0: 5}
    assert garbage(tmp_path / "x") == set()

"""What `write_shards` says on stderr, what it returns as a table, and which packages it needs."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guideloom_format import MissingPackageError
from guideloom_write import TaskResult, WriteReport, _progress, write_shards
from guideloom_write._task_report import readable_bytes, task_text
from write import not_synced
from write.shard_jobs import DOCUMENTS, run, sizes

no_sync = not_synced.no_sync

LINE = re.compile(
    r"write_shards: (\d+) of (\d+) shards, ([\d,]+) items, ([\d.]+ [kMG]?B|\d+ bytes), "
    r"([\d.]+ [kMG]?B|\d+ bytes)/s(?:, (\d+) failed)?, "
    r"(?:(\?|\d+:\d\d:\d\d) left|took \d+:\d\d:\d\d)"
)


def slowly(task: int) -> Iterator[bytes]:
    for _ in range(5):
        time.sleep(0.02)
        yield b"x" * task


@pytest.mark.parametrize("workers", [0, 2])
def test_lines_now_and_then(
    workers: int, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(_progress, "_LINE_EVERY", 0.1)
    write_shards(DOCUMENTS.storage(tmp_path / "x"), [1000] * 8, slowly, workers=workers)
    out, err = capfd.readouterr()
    assert out == ""
    found = [LINE.fullmatch(line) for line in err.splitlines()]
    assert len(found) >= 4
    matches = [match for match in found if match is not None]
    assert len(matches) == len(found), err
    done = [int(match[1]) for match in matches]
    assert done == sorted(done)
    assert {match[2] for match in matches} == {"8"}
    assert [match[7] is None for match in matches] == [False] * (len(matches) - 1) + [True]
    assert (done[-1], matches[-1][3], matches[-1][4]) == (8, "40", "40.3 kB")


def test_a_line_at_the_end_and_none_before_30_seconds(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    storage = DOCUMENTS.storage(tmp_path / "x")
    write_shards(storage, [0] * 3, slowly, workers=2)
    assert re.fullmatch(
        r"write_shards: 3 of 3 shards, 15 items, 120 bytes, .*, took 0:00:0\d\n",
        capfd.readouterr().err,
    )
    write_shards(storage, [0] * 4, slowly, workers=2)
    assert capfd.readouterr().err.startswith("write_shards: 4 of 4 shards, 5 items, ")

    def fails(task: int) -> Iterator[bytes]:
        yield b"seen"
        raise ValueError(task)

    write_shards(storage, [0] * 6, fails, workers=2, on_error="continue")
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("write_shards: 4 of 6 shards, ")
    assert ", 2 failed, took " in last


def test_progress_can_be_switched_off(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for workers in (0, 2):
        run("stream", tmp_path / str(workers), sizes(3, 4), workers=workers)
    assert capfd.readouterr() == ("", "")


def test_a_task_that_goes_on_is_counted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Items of a single long task are seen before it ends."""
    monkeypatch.setattr(_progress, "_LINE_EVERY", 0.1)

    def produce(task: int) -> Iterator[bytes]:
        for _ in range(task):
            time.sleep(0.05)
            yield b"x"

    write_shards(DOCUMENTS.storage(tmp_path / "x"), [25], produce, workers=1)
    matches = [LINE.fullmatch(line) for line in capfd.readouterr().err.splitlines()]
    seen = [int(match[3]) for match in matches if match and match[7]]
    assert seen == sorted(seen)
    assert 0 < max(seen) <= 25


PTY_JOB = """
import os, threading, time
from guideloom_format import DocumentBytesFormat, DocumentStorage
from guideloom_write import write_shards

def produce(task):
    for _ in range(10):
        time.sleep(0.02)
        yield b"x" * 100

before = threading.active_count()
write_shards(DocumentStorage("data", DocumentBytesFormat()), range(4), produce, workers=WORKERS)
assert threading.active_count() == before, threading.enumerate()
"""


@pytest.mark.parametrize("workers, columns", [(0, 120), (2, 120), (2, 0)])
def test_a_bar_in_a_terminal(workers: int, columns: int, tmp_path: Path) -> None:
    """Also on one that does not know how wide it is."""
    mine, theirs = pty.openpty()
    termios.tcsetwinsize(mine, (24, columns))
    job = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PTY_JOB.replace("WORKERS", str(workers))],
        cwd=tmp_path,
        stderr=theirs,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"},
    )
    os.close(theirs)
    text = b""
    try:
        while block := os.read(mine, 4096):
            text += block
    except OSError:  # a terminal that nobody has open any more
        pass
    os.close(mine)
    assert job.wait(30) == 0, text
    drawn = [part for part in re.split(rb"[\r\n]+", text) if part.strip()]
    assert len(drawn) > 4, "it is drawn again and again"
    assert all(part.startswith(b"write_shards: ") for part in drawn)
    assert text.count(b"\n") == 1, "on one line"
    last = drawn[-1].decode()
    assert last.startswith("write_shards: 100%|")
    assert re.search(r"\| 4/4 \[00:0\d, 40 items, 4\.3 kB, [\d.]+ kB/s\]$", last), last
    assert any(re.search(rb"[0-3]/4 .*(\?|\d:\d\d:\d\d) left", part) for part in drawn)


class Closed(io.StringIO):
    """A stderr that nobody reads any more."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(text)


@pytest.mark.parametrize("stderr", [None, Closed(), "closed"])
def test_a_stderr_that_takes_nothing_is_no_reason_to_fail(
    stderr: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stderr == "closed":
        stderr = io.StringIO()
        stderr.close()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(_progress, "_LINE_EVERY", 0.01)
    report = write_shards(DOCUMENTS.storage(tmp_path / "x"), [1, 2], slowly, workers=0)
    assert [result.status for result in report] == ["written", "written"]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_rates_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate is of the last minute, the time left of the whole."""
    clock = Clock()
    monkeypatch.setattr(_progress, "time", clock)
    stream = io.StringIO()
    lines = _progress.Lines(10, 2, stream)
    assert lines.wait_seconds() == 30
    nbytes = 0
    for second in range(1, 201):
        clock.now += 1
        nbytes += 1_000_000 if second <= 100 else 3_000_000
        lines.running(7, second, nbytes)
        if second % 50 == 0:
            lines.ended(7 + second, 5, 0, failed=second == 100)
    assert len(stream.getvalue().splitlines()) == 6
    first, *_, last = stream.getvalue().splitlines()
    assert first == "write_shards: 2 of 10 shards, 30 items, 30.0 MB, 1.0 MB/s, ? left"
    assert last == (
        "write_shards: 4 of 10 shards, 195 items, 340.0 MB, 3.0 MB/s, 1 failed, 0:05:00 left"
    )
    lines.close()
    assert stream.getvalue().splitlines()[-1] == (
        "write_shards: 5 of 10 shards, 220 items, 400.0 MB, 2.0 MB/s, 1 failed, took 0:03:20"
    )


@pytest.mark.parametrize(
    "missing, given, instead",
    [("multiprocess", {"workers": 2}, "workers=0"), ("tqdm", {"workers": 0}, "progress=False")],
)
def test_a_package_that_is_missing(
    missing: str, given: Any, instead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(MissingPackageError) as caught:
        write_shards(DOCUMENTS.storage(tmp_path / "x"), [1], slowly, **given)
    assert str(caught.value) == (
        f"write_shards needs the package {missing}, which is not installed. Install it with: pip "
        f'install "guideloom-write[parallel]". Without it: {instead}'
    )


def test_nothing_of_the_extra_is_needed_in_this_process(tmp_path: Path) -> None:
    code = """
import sys
sys.modules.update(multiprocess=None, tqdm=None, dill=None)
from guideloom_format import DocumentBytesFormat, DocumentStorage
from guideloom_write import write_shards
write_shards(DocumentStorage("x", DocumentBytesFormat()), "ab".split(), lambda _: [b"x"], workers=0)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.startswith("write_shards: 1 of 1 shards, 1 items, ")


def test_importing_loads_nothing_of_the_extra() -> None:
    code = "import sys, guideloom_write; print({'multiprocess', 'tqdm', 'dill'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_table() -> None:
    report = WriteReport(
        [
            TaskResult(0, "some/file.txt", "written", 123, 5678, 1_234_567, 12.34),
            TaskResult(12, Path("x"), "failed", error="ValueError: no\n\nTraceback …"),
            TaskResult(3, "y" * 200, "skipped", length=7),
        ]
    )
    assert str(report) == "\n".join(
        [
            "shard  status   items  length      bytes  seconds  task",
            "    0  written    123   5,678  1,234,567     12.3  'some/file.txt'",
            "   12  failed       0       0          0      0.0  PosixPath('x'): ValueError: no",
            f"    3  skipped      0       7          0      0.0  'y{'y' * 75}...",
            "3 tasks: 1 written, 0 resumed, 1 skipped, 1 failed, 0 not started; 123 items, 1.2 MB",
        ]
    )
    assert repr(report) == f"<WriteReport of {report.summary()}>"
    assert report[-1].shard == 3
    assert report[:2] == (report[0], report[1])
    assert [result.shard for result in report.failed] == [12]


def test_a_long_table_is_cut() -> None:
    for count in (0, 1, 100, 101, 5000):
        lines = str(WriteReport(TaskResult(k, k, "skipped") for k in range(count))).splitlines()
        if count <= 100:
            assert len(lines) == count + 2
        else:
            assert len(lines) == 103
            assert lines[51] == f"… {count - 100:,} more …"
            assert lines[50].split()[0] == "49"
            assert lines[52].split()[0] == str(count - 50)


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(JSON_LIKE)
def test_texts_of_tasks(task: Any) -> None:
    text = task_text(task)
    if text is None:
        assert len(json.dumps(task)) > 512
    else:
        assert len(text) <= 512
        assert text.isascii()
        assert json.dumps(json.loads(text)) == text
        assert text == task_text(json.loads(json.dumps(task)))


def test_texts_of_other_tasks() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = 0
    for _ in range(5000):
        deep = [deep]
    for task in (object(), {1, 2}, b"x", 1j, circle, deep, "x" * 511, {(1, 2): 3}):
        assert task_text(task) is None
    assert task_text("x" * 510) == f'"{"x" * 510}"'
    assert task_text(Path("a/b")) == '"a/b"'
    assert task_text((1, Path("a"), {"k": (np.int64(3), np.float32(0.5))})) == (
        '[1, "a", {"k": [3, 0.5]}]'
    )
    assert task_text({"b": 1, "a": 2}) == task_text({"a": 2, "b": 1}) == '{"a": 2, "b": 1}'


def test_readable_bytes() -> None:
    numbers = (0, 999, 1000, 999_940, 1_234_567, 10**9, 25 * 10**11, 10**16)
    assert [readable_bytes(number) for number in numbers] == [
        "0 bytes", "999 bytes", "1.0 kB", "999.9 kB", "1.2 MB", "1.0 GB", "2.5 TB", "10,000.0 TB",
    ]  # fmt: skip


def test_no_thread_is_left(tmp_path: Path) -> None:
    before = threading.enumerate()
    run("stream", tmp_path / "x", sizes(3, 4), workers=2)
    assert threading.enumerate() == before

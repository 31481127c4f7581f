"""Tasks of `write_shards` that fail, in every way that a task can."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from descriptors import few_descriptors
from guideloom_format import DataError, GuideLoomError, TaskError
from guideloom_read import verify
from guideloom_write import ShardOptions, _task_pool, write_shards
from guideloom_write._files import PosixFiles
from write import not_synced
from write.known_content import garbage
from write.shard_jobs import DOCUMENTS, KINDS, Task, children, parts, run, sizes, statuses, wanted

no_sync = not_synced.no_sync


class BoomError(Exception):
    """What user code raises."""


def failing(kind: str, shard: int, at: int) -> Callable[..., Iterator[Any]]:
    """A produce that raises in one shard before it yields item `at`."""

    def produce(task: Task, length: int = 0) -> Iterator[Any]:
        for number, item in enumerate(KINDS[kind].items(task, length)):
            if (task.shard, number) == (shard, at):
                raise BoomError("no good")
            yield item
        if task.shard == shard and at < 0:
            raise BoomError("no good")

    return produce


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_at_any_item(kind: str, workers: int, tmp_path: Path) -> None:
    """The shard has nothing of it, the others all; the next call writes it."""
    tasks = [Task(0, 4, 1), Task(1, 6, 1), Task(2, 3, 1)]
    for at in (0, 1, 3, 5, -1):
        place = tmp_path / str(at)
        produce = failing(kind, 1, at)
        storage = KINDS[kind].storage(place)
        report = write_shards(
            storage, tasks, produce, workers=workers, on_error="continue", progress=False
        )
        assert statuses(report) == ["written", "failed", "written"]
        assert (report[1].items, report[1].length, report[1].nbytes) == (0, 0, 0)
        error = report[1].error or ""
        assert error.startswith("BoomError: no good\n\nTraceback (most recent call last):\n")
        assert "in produce\n" in error
        assert f"at item {at if at >= 0 else 6} of those that produce yielded" in error
        assert "_task_run.py" not in error.partition("in produce")[0].partition("_writers")[0]
        assert KINDS[kind].known.visible(place) == {0: 4, 2: 3}
        assert garbage(place) == set()
        assert statuses(run(kind, place, tasks, workers=0)) == ["skipped", "written", "skipped"]
        assert KINDS[kind].known.visible(place) == wanted(tasks)
        assert verify(place).clean


@pytest.mark.parametrize("kind", KINDS)
def test_with_resume_every_error_is_gone_on_from(kind: str, tmp_path: Path) -> None:
    """Whatever item an error hits, the next call leaves the parts of a job without errors."""
    tasks = [Task(0, 40, 1)]
    run(kind, tmp_path / "whole", tasks, workers=0, resume=True, commit_bytes=100)
    expected = parts(tmp_path / "whole")
    assert len(expected) > 3
    resumed = 0
    options = ShardOptions(commit_bytes=100)
    for at in range(40):
        place = tmp_path / str(at)
        storage = KINDS[kind].storage(place)
        produce = failing(kind, 0, at)
        (failed,) = write_shards(
            storage,
            tasks,
            produce,
            workers=0,
            resume=True,
            on_error="continue",
            progress=False,
            options=options,
        )
        assert (failed.status, failed.length <= at) == ("failed", True)
        with storage.sync_writer() as writer:
            assert writer.length(0) == failed.length
        (result,) = run(kind, place, tasks, workers=0, resume=True, commit_bytes=100)
        assert result.status == ("resumed" if failed.length else "written")
        assert (result.length, result.items) == (40, 40 - failed.length)
        resumed += result.status == "resumed"
        assert parts(place) == expected
        assert garbage(place) == set()
    assert resumed > 10


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_stop_raises_with_task_shard_and_traceback(workers: int, tmp_path: Path) -> None:
    place = tmp_path / "x"
    storage = KINDS["stream"].storage(place)
    tasks = sizes(5, 9, 5, 5)
    with pytest.raises(TaskError) as caught:
        write_shards(storage, tasks, failing("stream", 1, 1), workers=workers, progress=False)
    text = str(caught.value)
    assert text.startswith(
        "task Task(shard=1, total=9, chunk=7) of shard 1 failed: BoomError: no good\n"
    )
    assert 'raise BoomError("no good")' in text
    assert " 1 failed, " in text
    assert "Another call goes on with the rest" in text
    assert isinstance(caught.value, GuideLoomError)
    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value.__cause__, BoomError) == (workers == 0)
    assert str(pickle.loads(pickle.dumps(caught.value))) == text
    assert garbage(place) == set()
    report = run("stream", place, tasks, workers=0)
    assert report[1].status == "written"
    assert KINDS["stream"].known.visible(place) == wanted(tasks)


def test_stop_ends_tasks_that_would_go_on_for_ever(tmp_path: Path) -> None:
    storage = DOCUMENTS.storage(tmp_path / "x")
    begun = tmp_path / "begun"

    def produce(task: str) -> Iterator[bytes]:
        yield b"x" * 300_000
        if task == "fails":
            while not begun.exists():
                time.sleep(0.01)
            raise BoomError
        begun.touch()
        while True:
            time.sleep(60)

    began = time.monotonic()
    with pytest.raises(TaskError, match=r"1 failed, 1 not started"):
        write_shards(storage, ["fails", "endless"], produce, workers=2, progress=False)
    assert time.monotonic() - began < 4
    assert garbage(tmp_path / "x") == set()


def test_a_task_that_does_not_let_itself_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed in the end; what it wrote is no part of the dataset."""
    monkeypatch.setattr(_task_pool, "GRACE", 1.0)
    storage = DOCUMENTS.storage(tmp_path / "x")
    begun = tmp_path / "begun"

    def produce(task: str) -> Iterator[bytes]:
        if task == "fails":
            while not begun.exists():
                time.sleep(0.01)
            raise BoomError
        yield b"x"
        begun.touch()
        while True:
            with contextlib.suppress(BaseException):
                time.sleep(60)

    before = children(os.getpid())
    with pytest.raises(TaskError, match="BoomError"):
        write_shards(storage, ["fails", "stubborn"], produce, workers=2, progress=False)
    assert children(os.getpid()) == before
    report = write_shards(storage, ["fails", "stubborn"], lambda _: [b"x"], progress=False)
    assert statuses(report) == ["written", "written"]
    with storage.sync_reader() as reader:
        assert len(reader) == 2


def unpicklable() -> Exception:
    error = BoomError("has a lock")
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    return error


class PickyError(Exception):
    """Its arguments are not what its constructor takes; pickle cannot make it again."""

    def __init__(self, *, number: int) -> None:
        super().__init__(f"number {number}")


class MuteError(Exception):
    """It cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "error, text",
    [
        (unpicklable(), "BoomError: has a lock"),
        (PickyError(number=3), "PickyError: number 3"),
        (MuteError(), "MuteError\n\nTraceback"),
        (type("Local", (Exception,), {})("made here"), "Local: made here"),
        (ExceptionGroup("many", [ValueError("one of them")]), "ExceptionGroup: many"),
        (StopIteration(4), "RuntimeError: generator raised StopIteration"),
        (MemoryError(), "MemoryError: "),
        (ValueError("y" * 10**6), "ValueError: yyyy"),
        (OSError(errno.ENOSPC, "full", "some/file"), "OSError: [Errno 28] full: 'some/file'"),
    ],
)
def test_exceptions_of_every_sort(
    error: Exception, text: str, workers: int, tmp_path: Path
) -> None:
    def produce(task: int) -> Iterator[bytes]:
        yield b"x"
        if task == 1:
            raise error

    storage = DOCUMENTS.storage(tmp_path / "x")
    report = write_shards(
        storage, range(3), produce, workers=workers, on_error="continue", progress=False
    )
    assert statuses(report) == ["written", "failed", "written"]
    assert (report[1].error or "").startswith(text)
    assert len(report[1].error or "") < 20_000


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_exceptions_that_end_programs(error: type[BaseException], tmp_path: Path) -> None:
    """In a process of its own that is how its task fails; here it is the caller's."""

    def produce(task: int) -> Iterator[bytes]:
        yield b"x"
        if task == 1:
            raise error("enough")

    place = tmp_path / "x"
    storage = DOCUMENTS.storage(place)
    report = write_shards(
        storage, range(3), produce, workers=1, on_error="continue", progress=False
    )
    assert statuses(report) == ["written", "failed", "written"]
    assert (report[1].error or "").startswith(f"{error.__name__}: enough\n\nTraceback")
    with pytest.raises(error, match="enough"):
        write_shards(storage, range(3), produce, workers=0, on_error="continue", progress=False)
    assert garbage(place) == set()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "produced, text",
    [
        (None, "produce returned None .NoneType.; expected an iterable of what append takes"),
        (7, "produce returned 7 .int.; expected"),
        (b"bytes", "produce returned b'bytes' .bytes.; expected"),
        ("text", "produce returned 'text' .str.; expected"),
        ({"token": [1]}, "produce returned .'token': .1.. .dict.; expected"),
        ({1, 2}, "produce returned .1, 2. .set.; expected"),
        (np.arange(3), "produce returned array.*ndarray.; expected"),
    ],
)
def test_produce_that_returns_no_items(
    produced: Any, text: str, workers: int, tmp_path: Path
) -> None:
    storage = DOCUMENTS.storage(tmp_path / "x")
    with pytest.raises(TaskError, match=f"of shard 0 failed: TypeError: {text}"):
        write_shards(storage, ["a"], lambda _: produced, workers=workers, progress=False)


def test_an_item_that_the_format_cannot_hold(tmp_path: Path) -> None:
    for kind, wrong in (("stream", {"place": [1]}), ("documents", "text"), ("spans", b"?")):
        storage = KINDS[kind].storage(tmp_path / kind)

        def produce(task: Task, wrong: Any = wrong, kind: str = kind) -> Iterator[Any]:
            yield from KINDS[kind].items(task)
            yield wrong

        with pytest.raises(TaskError, match=r"at item 3 of those that produce yielded") as caught:
            write_shards(storage, [Task(0, 3, 1)], produce, workers=0, progress=False)
        assert isinstance(caught.value.__cause__, DataError | TypeError)
        assert garbage(tmp_path / kind) == set()


def test_produce_that_takes_other_arguments(tmp_path: Path) -> None:
    storage = DOCUMENTS.storage(tmp_path / "x")
    text = r"produce\(task\) cannot be called as produce\(task, length\), which resume=True does"
    with pytest.raises(TypeError, match=text):
        write_shards(storage, [1], lambda task: [task], resume=True, workers=1, progress=False)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_generator_is_closed_when_its_task_fails(workers: int, tmp_path: Path) -> None:
    place = tmp_path / "x"

    def produce(task: str) -> Iterator[Any]:
        try:
            yield b"fine"
            yield task
        finally:
            (tmp_path / task).touch()

    storage = DOCUMENTS.storage(place)
    with pytest.raises(TaskError, match="at item 1 of those"):
        write_shards(storage, ["closed"], produce, workers=workers, progress=False)
    assert (tmp_path / "closed").exists()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_disk_that_is_full_for_one_task(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer of the task is void; the next task gets a new one."""
    real = PosixFiles.write

    def write(self: PosixFiles, descriptor: int, data: Any) -> None:
        if "0000001-" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(self, descriptor, data)

    monkeypatch.setattr(PosixFiles, "write", write)
    report = run("documents", tmp_path / "x", sizes(3, 3, 3), workers=workers, on_error="continue")
    assert statuses(report) == ["written", "failed", "written"]
    error = report[1].error or ""
    assert error.startswith(f"WriteError: {tmp_path / 'x'}: No space left on device (errno 28), ")
    monkeypatch.undo()
    assert statuses(run("documents", tmp_path / "x", sizes(3, 3, 3))).count("written") == 1


def test_failures_are_logged_when_they_happen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen = []

    def produce(task: int) -> Iterator[bytes]:
        seen.append(len(caplog.records))
        yield b"x"
        if task in (0, 2):
            raise BoomError(task)

    storage = DOCUMENTS.storage(tmp_path / "x")
    with caplog.at_level(logging.WARNING, logger="guideloom_write"):
        write_shards(storage, range(4), produce, workers=0, on_error="continue", progress=False)
    assert seen == [0, 1, 1, 2]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert (
        caplog.records[1].getMessage().startswith("task 2 of shard 2 failed: BoomError: 2\n\nTrace")
    )


def test_any_number_of_descriptors_left(tmp_path: Path) -> None:
    """From none to enough: an error says what ran out, and the same command finishes the job."""
    found = []
    tasks = sizes(3, 4, 5)
    for left in range(24):
        place, said = tmp_path / str(left), ""
        run("stream", place, [])  # the dataset is there
        before, processes = len(os.listdir("/proc/self/fd")), children(os.getpid())
        with few_descriptors(left):
            try:
                run("stream", place, tasks, workers=2, start_method="fork")
            except (GuideLoomError, OSError) as error:
                said = f"{type(error).__name__}: {error}"
        # multiprocess opens two pipes before it forks, and leaves the one if the other fails
        assert len(os.listdir("/proc/self/fd")) <= before + 2
        assert children(os.getpid()) == processes
        found.append(said)
        if "WorkerError" in said:
            assert "the 2 processes of write_shards could not be started" in said
            assert "raise the limit (ulimit -n)" in said
        run("stream", place, tasks, workers=2, start_method="fork")
        assert verify(place)
    assert any("WorkerError" in said for said in found), found
    assert all("Too many open files" in said for said in found if said), found
    assert not found[-1]

"""What the documentation of `write_shards` promises, where nothing goes wrong."""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from guideloom_format import MismatchError, ShardConflictError, TaskError
from guideloom_read import verify
from guideloom_write import ShardOptions, write_shards
from write import not_synced
from write.known_content import garbage
from write.shard_jobs import (
    DOCUMENTS,
    KINDS,
    METHODS,
    Task,
    children,
    finished_shards,
    parts,
    run,
    sizes,
    statuses,
    wanted,
)

TASKS = sizes(50, 0, 333, 1, 7, 120)

no_sync = not_synced.no_sync


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_workers_writes_the_same_bytes(
    kind: str, resume: bool, tmp_path: Path
) -> None:
    expected = None
    for workers in (0, 1, 2, 5):
        place = tmp_path / str(workers)
        report = run(kind, place, TASKS, workers=workers, resume=resume, commit_bytes=500)
        assert statuses(report) == ["written"] * len(TASKS)
        assert [result.length for result in report] == [task.total for task in TASKS]
        assert KINDS[kind].known.visible(place) == wanted(TASKS)
        assert garbage(place) == set()
        assert verify(place).clean
        assert finished_shards(place) == set(range(len(TASKS)))
        found = parts(place)
        assert (len(found) > len(TASKS)) == resume, "commits in between"
        sizes_found = [len(data) for part in found.values() for data in part.values()]
        assert sum(result.nbytes for result in report) == sum(sizes_found)
        expected = expected or found
        assert found == expected


@pytest.mark.parametrize("method", METHODS)
def test_any_start_method_writes_the_same_bytes(method: str, tmp_path: Path) -> None:
    for kind in KINDS:
        run(kind, tmp_path / kind, TASKS, workers=0)
        run(kind, tmp_path / "processes" / kind, TASKS, workers=1, start_method=method)
        assert parts(tmp_path / "processes" / kind) == parts(tmp_path / kind)


@pytest.mark.parametrize("kind", KINDS)
def test_with_resume_a_shard_has_the_same_content(kind: str, tmp_path: Path) -> None:
    """Cut into parts at other places, and equal when they are joined."""
    for resume in (False, True):
        run(kind, tmp_path / str(resume), TASKS, workers=2, resume=resume, commit_bytes=777)
    role = KINDS[kind].known.roles[0]
    joined = []
    for resume in (False, True):
        shards: dict[str, bytes] = {}
        for name, files in parts(tmp_path / str(resume)).items():
            shards[name[:7]] = shards.get(name[:7], b"") + files[role]
        joined.append(shards)
    assert joined[0] == joined[1]


class Adder:
    """A produce that has state of its own."""

    def __init__(self, more: int) -> None:
        self.more = more

    def __call__(self, task: int) -> Iterator[bytes]:
        yield from (b"%d" % (k + self.more) for k in range(task))


def add(more: int, task: int) -> Iterator[bytes]:
    return Adder(more)(task)


def producers() -> dict[str, Callable[[int], Any]]:
    """All yield b"100", b"101", …"""
    more = 100
    lock = threading.Lock  # what a closure holds may be anything importable

    def closure(task: int) -> Iterator[bytes]:
        with lock():
            for k in range(task):
                yield b"%d" % (k + more)

    return {
        "closure": closure,
        "lambda": lambda task: (b"%d" % (k + more) for k in range(task)),
        "object": Adder(more),
        "bound method": Adder(more).__call__,
        "partial": functools.partial(add, more),
        "list": lambda task: [b"%d" % (k + more) for k in range(task)],
        "tuple": lambda task: tuple(b"%d" % (k + more) for k in range(task)),
        "map": lambda task: map(b"%d".__mod__, range(more, more + task)),
    }


@pytest.mark.parametrize("method", METHODS)
def test_whatever_can_be_called(method: str, tmp_path: Path) -> None:
    produce = producers()
    tasks = [(name, count) for name in produce for count in (3, 0, 2)]
    storage = DOCUMENTS.storage(tmp_path / "x")
    options = ShardOptions(start_method=method)  # type: ignore[arg-type]
    write_shards(
        storage,
        tasks,
        lambda task: produce[task[0]](task[1]),
        workers=2,
        progress=False,
        options=options,
    )
    with storage.sync_reader() as reader:
        assert reader[:] == [b"100", b"101", b"102", b"100", b"101"] * len(produce)


def test_tasks_that_cannot_be_pickled_are_inherited(tmp_path: Path) -> None:
    tasks = [iter(range(4)), (k for k in range(2)), threading.Lock()]
    report = write_shards(
        DOCUMENTS.storage(tmp_path / "x"),
        tasks,
        lambda task: (b"%d" % k for k in task) if hasattr(task, "__iter__") else [b"lock"],
        workers=2,
        progress=False,
    )
    assert [result.length for result in report] == [4, 2, 1]
    assert [result.task for result in report] == tasks


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_call_does_what_is_left(kind: str, workers: int, tmp_path: Path) -> None:
    """For every set of tasks that the first call had."""
    expected = run(kind, tmp_path / "whole", TASKS[:4], workers=0)
    for number, done in enumerate(itertools.product((False, True), repeat=4)):
        place = tmp_path / str(number)
        first = {task.shard: task for task, mine in zip(TASKS, done, strict=False) if mine}
        run(kind, place, first, workers=0)
        before = parts(place)
        again = run(kind, place, TASKS[:4], workers=workers)
        assert statuses(again) == ["skipped" if mine else "written" for mine in done]
        assert [result.length for result in again] == [result.length for result in expected]
        assert all(result.items == 0 for result in again if result.status == "skipped")
        assert before.items() <= parts(place).items(), "what was finished is touched"
        assert parts(place) == parts(tmp_path / "whole")
        assert garbage(place) == set()


def test_where_all_is_finished_nothing_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("stream", tmp_path / "x", TASKS)
    monkeypatch.setattr(os, "fork", None)

    def produce(task: Task) -> Iterator[Any]:
        raise AssertionError(task)

    storage = KINDS["stream"].storage(tmp_path / "x")
    report = write_shards(storage, TASKS, produce, workers=2, progress=False)
    assert statuses(report) == ["skipped"] * len(TASKS)


def test_no_tasks(tmp_path: Path) -> None:
    for workers in (None, 0, 3):
        report = run("documents", tmp_path / "x", [], workers=workers)
        assert len(report) == 0
        assert list(report) == []
        assert str(report).splitlines()[-1].startswith("0 tasks: ")
    with DOCUMENTS.storage(tmp_path / "x").sync_reader() as reader:
        assert len(reader) == 0


def test_a_mapping_says_which_shard_a_task_owns(tmp_path: Path) -> None:
    tasks = {7: Task(7, 20), 1_000_000_000: Task(1_000_000_000, 3), 0: Task(0, 5)}
    report = run("stream", tmp_path / "x", tasks, workers=2)
    assert [result.shard for result in report] == list(tasks)
    assert [result.task for result in report] == list(tasks.values())
    assert KINDS["stream"].known.visible(tmp_path / "x") == wanted(list(tasks.values()))


def test_any_iterable_of_tasks(tmp_path: Path) -> None:
    for name, tasks in {"generator": (task for task in TASKS), "iterator": iter(TASKS)}.items():
        report = run("stream", tmp_path / name, tasks, workers=2)
        assert statuses(report) == ["written"] * len(TASKS)
        assert KINDS["stream"].known.visible(tmp_path / name) == wanted(TASKS)


@pytest.mark.parametrize(
    "tasks, error, text",
    [
        ("abc", TypeError, "tasks is 'abc' .str.; expected a list"),
        (b"abc", TypeError, "expected a list or another iterable whose order stays"),
        ({1, 2}, TypeError, "tasks is {1, 2} .set.; expected a list"),
        ({"a": 1}, TypeError, "shard is 'a' .str.; expected an integer"),
        ({True: 1}, TypeError, "shard is True; expected an integer"),
        ({-1: 1}, ValueError, "shard is -1; expected between 0 and 1000000000"),
        (7, TypeError, "not iterable"),
    ],
)
def test_tasks_that_are_none(tasks: Any, error: type[Exception], text: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=text):
        run("stream", tmp_path / "x", tasks)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "given, error, text",
    [
        ({"workers": -1}, ValueError, "workers is -1; expected at least 0"),
        ({"workers": 1.5}, TypeError, "workers is 1.5 .float.; expected an integer"),
        ({"on_error": "skip"}, ValueError, 'on_error is \'skip\'; expected "stop" or "continue"'),
        ({"commit_bytes": 0}, ValueError, "commit_bytes is 0; expected at least 1"),
        ({"start_method": "thread"}, ValueError, "start_method is 'thread'; expected \"fork\""),
    ],
)
def test_arguments_that_are_wrong(
    given: dict[str, Any], error: type[Exception], text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=text):
        run("stream", tmp_path / "x", TASKS, **given)
    assert not (tmp_path / "x").exists()


def test_a_changed_list_of_tasks_is_refused(tmp_path: Path) -> None:
    """Before anything is written, and whether or not errors stop the job."""
    place = tmp_path / "x"
    run("stream", place, TASKS[:3])
    before = parts(place)
    for changed in (
        [TASKS[1], *TASKS[1:]],
        [*TASKS[:2], Task(2, 334)],
        {2: Task(9, 1), 8: TASKS[0]},
    ):
        for on_error in ("stop", "continue"):
            with pytest.raises(
                MismatchError, match=r"shard \d was finished from the task \["
            ) as got:
                run("stream", place, changed, on_error=on_error)
            assert "Keep the order of the tasks and add new ones at the end" in str(got.value)
    with pytest.raises(
        MismatchError, match=r"from the task \[2, 333, 7\], and now its task is \[2,"
    ):
        run("stream", place, {2: Task(2, 334)})
    assert parts(place) == before
    assert statuses(run("stream", place, TASKS)) == ["skipped"] * 3 + ["written"] * 3


def test_tasks_without_a_text_are_not_compared(tmp_path: Path) -> None:
    """None is kept of an object; one that is kept is compared with none that is not."""
    storage = DOCUMENTS.storage(tmp_path / "x")
    for tasks in ([object(), "a"], [object(), object()], ["b", object()]):
        write_shards(storage, tasks, lambda _: [b"x"], workers=0, progress=False)
    with storage.sync_reader() as reader:
        assert len(reader) == 2


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_that_somebody_else_began(kind: str, workers: int, tmp_path: Path) -> None:
    """It is an error for its task, and neither overwritten nor doubled."""
    place, data = tmp_path / "x", KINDS[kind]
    with data.storage(place).sync_writer() as writer:
        data.known.append(writer, 1, 0, 14)
    tasks = sizes(5, 30, 5)
    text = "shard 1 has 14 elements or documents and no mark that it is finished"
    with pytest.raises(TaskError, match=f"{text}; to start over would write them twice"):
        run(kind, place, tasks, workers=workers)
    assert data.known.visible(place) == {1: 14}, "it stops before others are begun"
    report = run(kind, place, tasks, workers=workers, on_error="continue")
    assert statuses(report) == ["written", "failed", "written"]
    assert (report[1].length, report[1].items) == (14, 0)
    assert (report[1].error or "").startswith(f"{ShardConflictError.__name__}: {text}")
    assert data.known.visible(place) == {0: 5, 1: 14, 2: 5}
    report = run(kind, place, tasks, workers=workers, resume=True)
    assert statuses(report) == ["skipped", "resumed", "skipped"]
    assert data.known.visible(place) == wanted(tasks)
    assert verify(place).clean


def test_a_shard_that_another_job_finished_meanwhile(tmp_path: Path) -> None:
    storage = DOCUMENTS.storage(tmp_path / "x")

    def produce(task: str) -> Iterator[bytes]:
        if task == "first":
            write_shards(storage, {1: "second"}, produce, workers=0, progress=False)
        yield task.encode()

    report = write_shards(storage, ["first", "second"], produce, workers=0, progress=False)
    assert statuses(report) == ["written", "skipped"]
    with storage.sync_reader() as reader:
        assert reader[:] == [b"first", b"second"]


def test_processes_are_few_and_stay(tmp_path: Path) -> None:
    """As many as asked for, no more than tasks; each does many tasks; none is left behind."""
    storage = DOCUMENTS.storage

    def pids(name: str, tasks: int, workers: int | None) -> set[bytes]:
        place = storage(tmp_path / name)
        write_shards(
            place, range(tasks), lambda _: [b"%d" % os.getpid()], workers=workers, progress=False
        )
        with place.sync_reader() as reader:
            return set(reader[:])

    before = children(os.getpid())  # perhaps the fork server of another test
    descriptors = len(os.listdir("/proc/self/fd"))
    threads = threading.active_count()
    assert pids("here", 3, 0) == {b"%d" % os.getpid()}
    assert len(pids("one", 30, 1)) == 1
    assert len(pids("two", 30, 2)) == 2
    assert 1 <= len(pids("few tasks", 2, 50)) <= 2
    assert len(pids("all", 30, None)) <= len(os.sched_getaffinity(0))
    assert children(os.getpid()) == before
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_called_from_a_thread(tmp_path: Path) -> None:
    reports: list[Any] = []
    thread = threading.Thread(
        target=lambda: reports.append(run("stream", tmp_path / "x", TASKS, workers=2))
    )
    thread.start()
    thread.join(60)
    assert statuses(reports[0]) == ["written"] * len(TASKS)
    assert KINDS["stream"].known.visible(tmp_path / "x") == wanted(TASKS)


def test_options_reach_the_writers(tmp_path: Path) -> None:
    storage = DOCUMENTS.storage(tmp_path / "x")
    options = ShardOptions(user={"tokenizer": "mine"}, stale_after=5.0, take_over=True)
    seen = []
    real = type(storage).sync_writer

    def watch(self: Any, **given: Any) -> Any:
        seen.append(given)
        return real(self, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(storage), "sync_writer", watch)
        write_shards(storage, [1], lambda _: [b"x"], workers=0, progress=False, options=options)
    assert seen == [{"user": {"tokenizer": "mine"}, "stale_after": 5.0, "take_over": True}] * 2
    with storage.sync_reader() as reader:
        assert reader.header.user == {"tokenizer": "mine"}


def test_a_pinned_storage_is_refused(tmp_path: Path) -> None:
    storage = DOCUMENTS.storage(tmp_path / "x").at_version(3)
    with pytest.raises(ValueError, match="pinned to manifest version 3"):
        write_shards(storage, [1], lambda _: [b"x"], progress=False)

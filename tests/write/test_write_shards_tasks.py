"""A shard belongs to its task, also one that is half done; and arguments that cannot be right."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from guideloom_format import DocumentBytesFormat, DocumentStorage, MismatchError, TaskError
from guideloom_write import ShardOptions, write_shards

ITEMS = 7
TASKS: list[list[Any]] = [
    ["a", "b", "c"],
    [range(5), range(6), range(1, 5)],
    [Path("x"), Path("y"), {"file": "x"}],
]


def storage(directory: Path) -> DocumentStorage:
    return DocumentStorage(directory, DocumentBytesFormat())


def dies(task: object, length: int) -> Iterator[bytes]:
    """Everything of a task up to its last item."""
    for k in range(length, ITEMS):
        if k == ITEMS - 1:
            raise OSError("no more")
        yield f"{task} {k}".encode()


def lives(task: object, length: int) -> Iterator[bytes]:
    yield from (f"{task} {k}".encode() for k in range(length, ITEMS))


def documents(directory: Path) -> list[bytes]:
    with storage(directory).sync_reader() as reader:
        return [bytes(document) for document in reader]


@pytest.mark.parametrize("tasks", TASKS, ids=["text", "ranges", "paths"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_half_done_shard_takes_no_other_task(
    workers: int, tasks: list[Any], tmp_path: Path
) -> None:
    """In every other order of the tasks; nothing is written, and the right order goes on."""
    options: dict[str, Any] = {
        "resume": True,
        "workers": workers,
        "progress": False,
        "options": ShardOptions(commit_bytes=12),
    }
    report = write_shards(storage(tmp_path), tasks, dies, on_error="continue", **options)
    assert {row.status for row in report} == {"failed"}
    before = documents(tmp_path)
    assert 0 < len(before) < 3 * ITEMS
    for order in itertools.permutations(tasks):
        if list(order) != tasks:
            with pytest.raises(MismatchError, match=r"shard \d was begun from the task .*, and"):
                write_shards(storage(tmp_path), order, lives, **options)
            assert documents(tmp_path) == before
    report = write_shards(storage(tmp_path), tasks, lives, **options)
    assert {row.status for row in report} == {"resumed"}
    assert documents(tmp_path) == [f"{t} {k}".encode() for t in tasks for k in range(ITEMS)]


def nothing(task: object) -> list[bytes]:
    del task
    return []


def without_arguments() -> list[bytes]:
    return []


def takes_more(task: object, *more: object, extra: int = 1) -> list[bytes]:
    del task, more, extra
    return []


@pytest.mark.parametrize(
    "change, text",
    [
        ({"storage": "dir"}, r"storage is 'dir' \(str\); expected a storage, such as"),
        ({"options": {"commit_bytes": 3}}, r"options is .* \(dict\); expected ShardOptions"),
        ({"produce": [b"x"]}, r"produce is \[b'x'\]; expected a function of a task"),
        ({"produce": nothing, "resume": True}, r"called as produce\(task, length\), which resume="),
        ({"produce": dies}, r"called as produce\(task\), which resume=False does"),
        ({"produce": without_arguments}, r"called as produce\(task\)"),
    ],
)
def test_arguments_that_cannot_be_right(change: dict[str, Any], text: str, tmp_path: Path) -> None:
    """Before a process is started, and before anything is created."""
    arguments = {"storage": storage(tmp_path / "x"), "tasks": ["a"], "produce": nothing, **change}
    with pytest.raises(TypeError, match=text):
        write_shards(**arguments)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("produce", [nothing, takes_more, list, lambda task: list(task)])
def test_whatever_can_be_called_with_a_task(produce: Callable[..., Any], tmp_path: Path) -> None:
    report = write_shards(storage(tmp_path), [[], []], produce, workers=0, progress=False)
    assert [row.status for row in report] == ["written", "written"]


def test_a_first_failure_ends_the_call(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no more"):
        write_shards(storage(tmp_path), ["a"], dies, resume=True, workers=0, progress=False)

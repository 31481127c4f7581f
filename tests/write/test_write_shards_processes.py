"""Processes of `write_shards` that die, or never come to life."""

from __future__ import annotations

import faulthandler
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from guideloom_format import TaskError
from guideloom_read import verify
from guideloom_write import ShardOptions, _task_pool, _task_worker, write_shards
from guideloom_write._task_report import Outcome
from write import not_synced
from write.shard_jobs import (
    DOCUMENTS,
    KINDS,
    METHODS,
    Task,
    children,
    run,
    sizes,
    statuses,
    wanted,
)

no_sync = not_synced.no_sync


def kill_me(number: int) -> NoReturn:
    os.kill(os.getpid(), number)
    time.sleep(60)
    raise AssertionError


def crash() -> NoReturn:
    faulthandler.disable()
    kill_me(signal.SIGSEGV)


def close_everything() -> NoReturn:
    os.closerange(3, 1000)
    time.sleep(60)
    raise AssertionError


def leave_a_child() -> NoReturn:
    """Die, and leave a process that holds open all that this one had."""
    if (child := os.fork()) == 0:
        time.sleep(100)
        os._exit(0)
    Path("left-behind").write_text(str(child))
    kill_me(signal.SIGKILL)


def exit_with(code: int) -> NoReturn:
    os._exit(code)


ENDS: dict[str, tuple[Callable[[], NoReturn], str]] = {
    "SIGKILL": (
        lambda: kill_me(signal.SIGKILL),
        r"was killed by signal 9 \(SIGKILL\), as the system does when memory runs out$",
    ),
    "SIGSEGV": (crash, r"was killed by signal 11 \(SIGSEGV\)$"),
    "SIGTERM": (lambda: kill_me(signal.SIGTERM), r"was killed by signal 15 \(SIGTERM\)$"),
    "exit 3": (lambda: exit_with(3), "ended with exit code 3$"),
    "exit 0": (lambda: exit_with(0), "ended with exit code 0$"),
    "close": (close_everything, r"was killed by signal 9 \(SIGKILL\), as"),
    "child": (leave_a_child, r"was killed by signal 9 \(SIGKILL\), as"),
}


@pytest.mark.parametrize(
    "end, method",
    [*((end, "fork") for end in ENDS), *itertools.product(("SIGKILL", "child"), METHODS[1:])],
)
def test_a_process_that_is_gone(
    end: str, method: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is noticed at once; its task failed, a new process does the others."""
    monkeypatch.setattr(_task_pool, "GRACE", 0.5)
    monkeypatch.chdir(tmp_path)
    place, (die, text) = tmp_path / "x", ENDS[end]

    def produce(task: Task, length: int) -> Iterator[Any]:
        yield from KINDS["stream"].items(task._replace(total=14), length)
        if task.shard == 1:
            die()
        yield from KINDS["stream"].items(task, max(length, 14))

    tasks = sizes(28, 28, 28)
    began = time.monotonic()
    report = write_shards(
        KINDS["stream"].storage(place),
        tasks,
        produce,
        workers=2,
        resume=True,
        on_error="continue",
        progress=False,
        options=ShardOptions(commit_bytes=1, start_method=method),
    )
    if end == "child":
        os.kill(int(Path("left-behind").read_text()), signal.SIGKILL)
    assert time.monotonic() - began < 60, "before the process that was left behind ended"
    assert statuses(report) == ["written", "failed", "written"]
    assert re.match(r"the worker process \(pid \d+\) " + text, report[1].error or "")
    assert report[1].length == 14, "what it had committed"
    report = run("stream", place, tasks, workers=0, resume=True)
    assert statuses(report) == ["skipped", "resumed", "skipped"]
    assert KINDS["stream"].known.visible(place) == wanted(tasks)


def test_stop_when_a_process_is_killed(tmp_path: Path) -> None:
    storage = DOCUMENTS.storage(tmp_path / "x")

    def produce(task: str) -> Iterator[bytes]:
        yield task.encode()
        kill_me(signal.SIGKILL)

    with pytest.raises(TaskError, match=r"task 'a' of shard 0 failed: the worker process .pid \d+"):
        write_shards(storage, ["a"], produce, workers=1, progress=False)


def test_a_process_that_dies_when_its_shard_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it could say so: the task is done, as the record says."""
    real = _task_worker._outcome

    def outcome(*given: Any) -> Any:
        real(*given)
        return kill_me(signal.SIGKILL)

    monkeypatch.setattr(_task_worker, "_outcome", outcome)
    report = run("documents", tmp_path / "x", sizes(5, 3), workers=1)
    assert statuses(report) == ["written", "written"]
    assert [result.length for result in report] == [5, 3]
    assert verify(tmp_path / "x").clean


def test_processes_that_die_between_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process dies as soon as it has sent a result, perhaps with the next task in hand."""

    class Connection:
        def __init__(self, inner: Any) -> None:
            self.inner = inner
            self.recv = inner.recv

        def send(self, message: Any) -> None:
            self.inner.send(message)
            if isinstance(message, Outcome):
                kill_me(signal.SIGKILL)

    serve = _task_worker.serve
    monkeypatch.setattr(
        _task_pool, "serve", lambda connection, *rest: serve(Connection(connection), *rest)
    )
    tasks = sizes(*range(8))
    report = run("documents", tmp_path / "x", tasks, workers=2, on_error="continue")
    found = statuses(report)
    assert found.count("written") >= 4
    assert set(found) <= {"written", "failed"}
    monkeypatch.undo()
    run("documents", tmp_path / "x", tasks, workers=2)
    assert DOCUMENTS.known.visible(tmp_path / "x") == wanted(tasks)


def test_processes_that_die_before_they_are_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_task_pool, "serve", lambda *_: kill_me(signal.SIGKILL))
    before = children(os.getpid())
    with pytest.raises(TaskError, match=r"no task could be started: the worker process .*SIGKILL"):
        run("documents", tmp_path / "x", sizes(1, 2), workers=2)
    monkeypatch.setattr(_task_pool, "serve", lambda *_: exit_with(1))
    with pytest.raises(TaskError, match=r"no task could be started: .* ended with exit code 1, "):
        run("documents", tmp_path / "x", sizes(1, 2), workers=2, on_error="continue")
    assert children(os.getpid()) == before


SCRIPT = """
from guideloom_format import DocumentBytesFormat, DocumentStorage
from guideloom_write import ShardOptions, write_shards

CONSTANT = b"of the script"


def helper():
    return CONSTANT


def produce(task):
    yield helper() + b" %d" % task


def job():
    storage = DocumentStorage("data", DocumentBytesFormat())
    options = ShardOptions(start_method={method!r})
    write_shards(storage, range(2), produce, workers=1, progress=False, options=options)
    with storage.sync_reader() as reader:
        print(reader[:])


{call}
"""


def run_script(folder: Path, method: str, call: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(SCRIPT.format(method=method, call=call))
    return subprocess.run(
        [sys.executable, "-W", "error", "script.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("method", METHODS)
def test_functions_of_a_script(method: str, tmp_path: Path) -> None:
    """With what they use: other functions and constants of the script."""
    done = run_script(tmp_path, method, 'if __name__ == "__main__":\n    job()')
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[b'of the script 0', b'of the script 1']\n"


@pytest.mark.parametrize("method", METHODS)
def test_functions_that_are_in_no_file(method: str, tmp_path: Path) -> None:
    """As in a notebook: no process can load the module again that they are of."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT.format(method=method, call="job()")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[b'of the script 0', b'of the script 1']\n"


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_script_without_its_main_line(method: str, tmp_path: Path) -> None:
    done = run_script(tmp_path, method, "job()")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "TaskError: no task could be started: the worker process" in last
    assert 'must be below its line `if __name__ == "__main__":`' in last


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_what_cannot_be_sent(method: Any, tmp_path: Path) -> None:
    storage = DOCUMENTS.storage(tmp_path / "x")
    options = ShardOptions(start_method=method)
    generator = (k for k in range(3))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(TypeError, match=r"cannot be sent to a process .TypeError: cannot pickle"):
        write_shards(storage, [1], lambda _: generator, workers=1, progress=False, options=options)
    assert len(os.listdir("/proc/self/fd")) <= before + 3, "the fork server has some"
    report = write_shards(
        storage,
        ["a", generator, "b"],
        lambda task: [task.encode()],
        workers=1,
        on_error="continue",
        progress=False,
        options=options,
    )
    assert statuses(report) == ["written", "failed", "written"]
    assert (report[1].error or "").startswith("TypeError: cannot pickle 'generator' object")

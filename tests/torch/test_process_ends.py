"""The ends of processes, pools and interpreters, one beside the other."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

from guideloom_torch._worker_handle import WorkerHandle

from .loader_cases import wait_until
from .process_cases import by_processes, descriptors, in_fork, is_there, load, workers_of, write
from .start_cases import AT_EXIT


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("stream", tmp_path_factory.mktemp("ends") / "stream")


@pytest.mark.parametrize("method", ["fork", "forkserver"])
@pytest.mark.parametrize("within", ["nothing", "iter", "close", "forget"])
def test_a_fork_that_ends_leaves_its_parents_workers(
    directory: Path, method: str, within: str
) -> None:
    """multiprocess ends the processes that it knows when a process ends; a fork's are not its."""

    def work() -> list[Any]:
        loader = load("stream", directory, **by_processes(method, 2))
        iterator = iter(loader)
        next(iterator)
        pids = workers_of(loader)
        pid = os.fork()
        if not pid:
            from multiprocess import util

            status = 1
            try:
                if within == "iter":
                    next(iter(loader))
                if within == "close":
                    loader.close()
                if within == "forget":
                    del iterator, loader
                util._exit_function()  # what it has registered for the end
                status = 0
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(status)
        _, status = os.waitpid(pid, 0)
        found = [status, len(list(iterator)), workers_of(loader) == pids]
        loader.close()
        return found

    assert in_fork(work) == [0, 7, True]


def test_a_loader_that_is_used_when_the_process_ends(directory: Path) -> None:
    """After the pools were closed: it opens another, goes on, and says nothing."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", AT_EXIT, str(directory)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "7\n", "")


@pytest.mark.parametrize("method", ["is_gone", "close", "send_signal"])
@pytest.mark.parametrize("failing", [0, 1, 2])
def test_one_worker_whose_end_fails(
    directory: Path, monkeypatch: pytest.MonkeyPatch, method: str, failing: int
) -> None:
    """The others are ended, and all that waits gets an error."""
    loader = load("stream", directory, **by_processes("fork", 3))
    next(iter(loader))
    before = descriptors()
    pool: Any = loader._workers._pool
    pids, workers = workers_of(loader), pool._crew.workers
    bad = workers[failing]
    original = getattr(WorkerHandle, method)

    def fails(worker: WorkerHandle, *arguments: Any) -> Any:
        if worker is bad:
            raise ImportError("partially initialised")
        return original(worker, *arguments)

    monkeypatch.setattr(WorkerHandle, method, fails)
    try:
        loader.close()
    except ImportError:
        assert method != "send_signal"
    monkeypatch.undo()
    assert wait_until(5, lambda: not any(map(is_there, pids)))
    assert not any(worker.told or worker.waiting for worker in workers)
    if method != "send_signal":  # it had ended, and no signal was sent
        bad.close()
    loader.close()
    assert descriptors() < before


def test_many_threads_close_at_once(directory: Path) -> None:
    """Nothing fails, everything ends, and nothing is counted twice."""
    loader = load("stream", directory, **by_processes("fork", 1))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for turn in range(1, 11):
            list(loader)
            reads = loader.stats().reads
            barrier = threading.Barrier(8)
            errors: list[BaseException] = []

            def close(barrier: Any = barrier, errors: list[BaseException] = errors) -> None:
                try:
                    barrier.wait()
                    loader.close()
                except BaseException as error:  # noqa: BLE001
                    errors.append(error)

            threads = [threading.Thread(target=close) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert errors == []
            assert loader.stats().reads == reads, turn
            assert workers_of(loader) == []
    finally:
        sys.setswitchinterval(interval)

"""Workers or their parent end at any time: it is said which, nothing is left, and it goes on."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom import LoaderTimeoutError, WorkerError

from .loader_cases import wait_until
from .process_cases import (
    Sleeper,
    Slow,
    by_processes,
    descriptors,
    in_fork,
    is_there,
    load,
    plain,
    resident,
    steps_of,
    workers_of,
    write,
)
from .process_victims import kill_a_worker, kill_the_parent

FORK = by_processes("fork", 2, prefetch=2)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("stream", tmp_path_factory.mktemp("killed") / "stream")


def test_a_worker_is_killed_at_any_point(directory: Path) -> None:
    errors = sum(kill_a_worker(directory, seed) for seed in range(20))
    assert errors > 5


def test_a_worker_of_the_fork_server_is_killed(directory: Path) -> None:
    for seed in range(3):
        kill_a_worker(directory, seed, "forkserver")


def test_the_parent_is_killed_at_any_point(directory: Path) -> None:
    served = sum(kill_the_parent(directory, seed) for seed in range(20))
    assert served > 5


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_the_parent_of_processes_that_began_anew_is_killed(method: str) -> None:
    """From a process of its own, which has no fork server yet.

    Not in `tmp_path`: the name of the server's socket must not be longer than 107 characters.
    """
    command = [sys.executable, "-m", "tests.torch.process_campaign", "served", "1", "3", method]
    with tempfile.TemporaryDirectory() as short:
        result = subprocess.run(
            command,
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, "TMPDIR": short},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert result.returncode == 0, result.stderr
    assert f"1 served with {method}: 0 bad, 1 had delivered a batch" in result.stdout


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stopped_worker_is_a_timeout_and_is_replaced(directory: Path, workers: int) -> None:
    """Nothing wakes a stopped process: the error comes in time, the next iter has other workers."""
    wanted = steps_of(load("stream", directory))
    options = by_processes("fork", workers)
    with load("stream", directory, **options, timeout=0.8) as loader:
        iterator = iter(loader)
        found = [plain(next(iterator))]
        pids = workers_of(loader)
        os.kill(pids[0], signal.SIGSTOP)
        begin = time.monotonic()
        with pytest.raises(LoaderTimeoutError, match=r"did not come within 0\.8 s"):
            found.extend(map(plain, iterator))
        assert time.monotonic() - begin < 0.8 + 1
        assert loader.position == 3 * len(found)
        assert found + [step[1] for step in steps_of(loader)] == [step[1] for step in wanted]
        assert not is_there(pids[0])


def test_a_stopped_worker_does_not_keep_the_loader_open(directory: Path) -> None:
    loader = load("stream", directory, **FORK)
    next(iter(loader))
    for pid in workers_of(loader):
        os.kill(pid, signal.SIGSTOP)
    begin = time.monotonic()
    loader.close()
    assert time.monotonic() - begin < 2


def test_a_busy_worker_does_not_keep_the_loader_open(tmp_path: Path, directory: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    loader = load("stream", directory, Sleeper(flag), **FORK)
    iterator = iter(loader)
    pids = workers_of(loader)
    begin = time.monotonic()
    threading.Timer(0.2, loader.close).start()
    with pytest.raises(RuntimeError, match=r"no longer valid|loader was closed"):
        next(iterator)
    assert time.monotonic() - begin < 3
    assert wait_until(2, lambda: not any(map(is_there, pids)))
    flag.unlink()
    assert steps_of(loader) == steps_of(load("stream", directory, Sleeper(flag)))
    loader.close()


# --- ends of loaders ----------------------------------------------------------------------------


def _drop_all(loader: list[Any]) -> None:
    iterator = iter(loader[0])
    next(iterator)
    loader.clear()


def _close_twice(loader: list[Any]) -> None:
    iterator = iter(loader[0])
    next(iterator)
    loader[0].close()
    loader[0].close()


def _close_elsewhere(loader: list[Any]) -> None:
    next(iter(loader[0]))
    thread = threading.Thread(target=loader[0].close)
    thread.start()
    thread.join()


def _use_elsewhere(loader: list[Any]) -> None:
    thread = threading.Thread(target=lambda: next(iter(loader[0])))
    thread.start()
    thread.join()
    loader.clear()


def _raise_in_the_loop(loader: list[Any]) -> None:
    try:
        with loader[0] as entered:
            for batch in entered:
                raise ZeroDivisionError(len(batch))
    except ZeroDivisionError:
        pass


def _collect_a_cycle(loader: list[Any]) -> None:
    iterator = iter(loader[0])
    cycle = [iterator, loader.pop()]
    next(iterator)
    cycle.append(cycle)
    del iterator, cycle
    gc.collect()


def _close_in_a_signal_handler(loader: list[Any]) -> None:
    """Wherever the loop is: 1 ms apart, while it iterates."""
    before = signal.signal(signal.SIGALRM, lambda *_: loader[0].close())
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    texts: list[str] = []
    begin = time.monotonic()
    try:
        while time.monotonic() - begin < 0.3:
            try:
                for _ in loader[0]:
                    pass
            except RuntimeError as error:
                texts.append(str(error))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert all("no longer valid" in text or "was closed" in text for text in texts), texts
    loader[0].close()


def _lose_a_worker(loader: list[Any]) -> None:
    """After the error nothing holds the others, not even its traceback."""
    iterator = iter(loader[0])
    next(iterator)
    os.kill(workers_of(loader[0])[0], signal.SIGKILL)
    with pytest.raises(WorkerError):
        list(iterator)
    del iterator
    loader.clear()
    gc.collect()


LEAVINGS = [
    _drop_all,
    _close_twice,
    _close_elsewhere,
    _use_elsewhere,
    _raise_in_the_loop,
    _collect_a_cycle,
    _close_in_a_signal_handler,
    _lose_a_worker,
]


@pytest.mark.parametrize("leave", LEAVINGS)
def test_processes_threads_and_files_are_gone(
    directory: Path, leave: Callable[[list[Any]], None]
) -> None:
    next(iter(load("stream", directory, prefetch=1)))  # what stays once, such as the watchdog
    gc.collect()
    threads, files = {*threading.enumerate()}, descriptors()
    loader = [load("stream", directory, Slow(0.002, 50_000), **FORK)]
    alive = weakref.ref(loader[0])
    iter(loader[0])
    pids = workers_of(loader[0])
    begin = time.monotonic()
    leave(loader)
    loader.clear()
    gc.collect()
    assert time.monotonic() - begin < 2 + (leave is _close_in_a_signal_handler)
    assert wait_until(2, lambda: not any(map(is_there, pids)))
    named = "guideloom-loader-watchdog"
    assert wait_until(
        2, lambda: {x for x in threading.enumerate() if x.name != named} <= threads
    ), threading.enumerate()
    assert alive() is None
    assert descriptors() <= files


def test_an_old_loader_does_not_touch_files_of_others(tmp_path: Path, directory: Path) -> None:
    """Numbers of files are used again. Once, 8 bytes went into whatever had the number by then."""
    loader = load("stream", directory, **FORK)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with (tmp_path / "empty").open("wb") as file:
        numbers = [os.dup(file.fileno()) for _ in range(40)]
        loader.close()
        del loader, iterator
        gc.collect()
        for number in numbers:
            os.close(number)
    assert (tmp_path / "empty").read_bytes() == b""


def test_nothing_grows_over_many_batches_and_iterators(directory: Path) -> None:
    check_flat(directory, batches=12_000, iterators=300, pools=25)


@pytest.mark.slow
def test_nothing_grows_over_a_hundred_thousand_batches(directory: Path) -> None:
    check_flat(directory, batches=100_000, iterators=3_000, pools=300)


def check_flat(directory: Path, batches: int, iterators: int, pools: int) -> None:
    """Memory, threads and descriptors after many of each are those after a few."""

    def work() -> list[float]:
        options = {**FORK, "local_batch_size": 1}
        loader = load("stream", directory, **options)

        def take(count: int) -> None:
            taken = 0
            while taken < count:
                taken += sum(1 for _ in loader)

        def drop(count: int) -> None:
            for _ in range(count):
                loader.set_epoch(loader.epoch + 1)
                next(iter(loader))

        def start(count: int) -> None:
            for _ in range(count):
                other = load("stream", directory, **options)
                next(iter(other))

        take(2000)
        drop(50)
        start(3)
        gc.collect()
        first = [resident(), threading.active_count(), descriptors()]
        take(batches)
        drop(iterators)
        start(pools)
        gc.collect()
        time.sleep(0.2)
        last = [resident(), threading.active_count(), descriptors()]
        loader.close()
        assert not any(map(is_there, workers_of(loader)))
        return [last[0] / first[0], last[1] - first[1], last[2] - first[2]]

    memory, threads, files = in_fork(work, 400)
    assert memory < 1.01, memory
    assert (threads, files) == (0, 0)


EXITS = {
    "end of the script": "next(batches)",
    "within the loop": "for batch in batches:\n    sys.exit()",
    "an exception": "for batch in batches:\n    raise SystemExit(0)",
    "a thread": (
        "import threading\n"
        "thread = threading.Thread(target=next, args=(batches,))\nthread.start(); thread.join()"
    ),
    "in the middle of a load": "time.sleep(0.05)",
    "two loaders": "next(batches)\nother = iter(make())\nnext(other)",
}
SCRIPT = """
import sys, time
from pathlib import Path
from tests.torch.process_cases import Slow, by_processes, load

def make():
    options = by_processes(sys.argv[2], 2, prefetch=4)
    return load("stream", Path(sys.argv[1]), Slow(0.02, 100_000), **options)

def work():
    begin = [0.0]
    import atexit
    atexit.register(lambda: print(time.monotonic() - begin[0]))  # called last
    loader = make()
    batches = iter(loader)
    begin[0] = time.monotonic()
    scope = {"sys": sys, "time": time, "make": make, "batches": batches}
    scope["loader"] = loader
    globals()["kept"] = scope
    try:
        exec(sys.argv[3], scope)
    finally:
        begin[0] = time.monotonic()

if __name__ == "__main__":
    work()
"""


@pytest.mark.parametrize(
    "end, method",
    [
        *(
            (end, "fork")
            if end in ("end of the script", "two loaders", "in the middle of a load")
            else pytest.param(end, "fork", marks=pytest.mark.slow)
            for end in EXITS
        ),
        pytest.param("end of the script", "forkserver", marks=pytest.mark.slow),
        pytest.param("end of the script", "spawn", marks=pytest.mark.slow),
    ],
)
def test_exit_while_processes_load(tmp_path: Path, directory: Path, end: str, method: str) -> None:
    """Within 2 s, and without a word."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    root = str(Path(__file__).resolve().parents[2])
    result = subprocess.run(
        [sys.executable, "-W", "error", str(script), str(directory), method, EXITS[end]],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert float(result.stdout) < 2


def test_batches_that_are_kept_are_not_changed(directory: Path) -> None:
    """No memory is used again while someone has it."""
    with load("stream", directory, Slow(0, 20_000), **FORK) as loader:
        kept = list(loader)
        before = [plain(batch) for batch in kept]
        for _ in range(20):
            for batch in loader:
                batch[-1].zero_()
        assert [plain(batch) for batch in kept] == before
        assert np.all(kept[0][-1].numpy() == 1)

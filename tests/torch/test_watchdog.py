"""A wait that is too long is said once, with what is waited for; and costs nothing else."""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import re
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from guideloom import LoaderTimeoutError, StatefulDataLoader
from guideloom_torch import _watchdog
from guideloom_torch._watchdog import Watchdog, stall_warning

from .loader_cases import WatchedIO, wait_until
from .process_cases import METHODS, by_processes, load, workers_of, write

MODES: dict[str, dict[str, Any]] = {
    "in the loop": {},
    "one thread": {"prefetch": 2},
    "threads": {"num_workers": 2},
    "processes": by_processes("fork", 2, prefetch=1),
}
STALL_AFTER = 0.15


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("stream", tmp_path_factory.mktemp("watchdog") / "stream")


class Naps:
    """A backend whose reads sleep as long as the numbers in a file say, one after the other."""

    def __init__(self, file: Path, seconds: list[float]) -> None:
        self.file = file
        file.write_text("\n".join(map(str, seconds)))

    def __call__(self, rows: NDArray[np.int64]) -> None:
        del rows
        with self.file.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # threads and processes take them
            first, *rest = file.read().split() or ["0"]
            file.seek(0)
            file.truncate()
            file.write("\n".join(rest))
        time.sleep(float(first))


def slow_loader(
    directory: Path, file: Path, seconds: list[float], **options: Any
) -> StatefulDataLoader:
    backend = WatchedIO(Naps(file, seconds))
    return load("stream", directory, backend=backend, stall_after=STALL_AFTER, **options)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record for record in caplog.records if record.name == "guideloom_torch"]
    assert all(record.levelno == logging.WARNING for record in found)
    return [record.getMessage() for record in found]


@pytest.mark.parametrize("mode", MODES)
def test_each_stall_is_said_once(
    tmp_path: Path, directory: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With rank, samples and who loads them; the second stall again, and nothing else."""
    options = {**MODES[mode], "rank": 1, "world_size": 2}
    seconds = [0.5, 0.0, 0.5] if mode == "in the loop" else [0.5, 0.5, 0.5]
    if mode == "one thread":
        seconds = [0.5, 0.0, 0.5]
    loader = slow_loader(directory, tmp_path / "naps", seconds, **options)
    wanted = load("stream", directory, rank=1, world_size=2)
    with loader:
        batches = iter(loader)
        for batch in wanted:
            assert np.array_equal(next(batches)["tokens"], batch["tokens"])
        said = warnings_in(caplog)
        pids = workers_of(loader)
    assert len(said) == (2 if mode in ("in the loop", "one thread") else len(said))
    assert 1 <= len(said) <= 2
    for text in said:
        assert re.match(r"rank 1 of 2 has waited 0\.[1-4] s for a batch: ", text), text
        assert re.search(
            r"loading samples \d+, \d+, \d+ \(epoch 0, rank 1, step \d since the epoch", text
        ), text
        assert any(f"(pid {pid}) has been loading" in text for pid in pids) or not pids
    steps = [int(re.search(r"step (\d)", text)[1]) for text in said]  # type: ignore[index]
    assert steps == sorted(steps)
    assert steps[0] == 0


STUCK: dict[str, dict[str, Any]] = {
    "in the loop": {},
    "one thread": {"prefetch": 2},
    "threads": {"num_workers": 2},
    **{method: by_processes(method, 2) for method in METHODS},
}


@pytest.mark.parametrize("mode", STUCK)
def test_a_stall_names_file_and_bytes(
    tmp_path: Path, directory: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever reads them: in this process or another one."""
    loader = slow_loader(directory, tmp_path / "naps", [0.0, 0.0, 1.0, 1.0], **STUCK[mode])
    with loader:
        list(loader)
    pattern = re.compile(r"(reads|read, 0\.\d s ago,) (\S+), bytes (\d+) to (\d+) \(one of")
    named = [found for text in warnings_in(caplog) if (found := pattern.search(text))]
    assert named, warnings_in(caplog)  # the others are of the time when processes start
    for found in named:
        assert Path(found[2]).is_relative_to(directory)
        assert int(found[3]) < int(found[4]) <= Path(found[2]).stat().st_size


def test_a_timeout_names_what_a_process_reads(tmp_path: Path, directory: Path) -> None:
    """Without a watchdog of the loop, too."""
    backend = WatchedIO(Naps(tmp_path / "naps", [0.0, 0.0, 99.0, 99.0]))
    options = {**by_processes("fork", 2), "stall_after": None, "timeout": 2.0}
    loader = load("stream", directory, backend=backend, **options)
    with loader, pytest.raises(LoaderTimeoutError) as caught:
        list(loader)
    assert re.search(r"ago, \S+, bytes \d+ to \d+", "\n".join(caught.value.__notes__))


@pytest.mark.parametrize("mode", MODES)
def test_no_stall_no_word(
    tmp_path: Path, directory: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither while batches come, nor while nobody waits for one, nor with `stall_after` None."""
    with slow_loader(directory, tmp_path / "naps", [0.01] * 4, **MODES[mode]) as loader:
        for k, _ in enumerate(loader):
            if k == 3:
                time.sleep(0.4)
    backend = WatchedIO(Naps(tmp_path / "more", [0.4]))
    with load("stream", directory, backend=backend, stall_after=None, **MODES[mode]) as loader:
        next(iter(loader))
    assert warnings_in(caplog) == []


def test_a_stall_that_ends_in_an_error_is_over(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def collate(samples: list[Any]) -> Any:
        raise ValueError(len(samples))

    with load("stream", directory, collate, stall_after=0.1) as loader:
        with pytest.raises(ValueError, match="3"):
            next(iter(loader))
        time.sleep(0.3)
    assert warnings_in(caplog) == []


def test_what_cannot_be_described_is_said_as_well(caplog: pytest.LogCaptureFixture) -> None:
    def describe() -> str:
        raise KeyError("mine")

    dog = Watchdog(0.05, stall_warning(describe, "rank 0 of 1"))
    dog.begin()
    assert wait_until(5, lambda: len(warnings_in(caplog)) == 1)
    assert "what for cannot be said (KeyError('mine'))" in warnings_in(caplog)[0]
    time.sleep(0.2)
    assert len(warnings_in(caplog)) == 1
    dog.end()
    dog.begin()
    assert wait_until(5, lambda: len(warnings_in(caplog)) == 2)
    dog.end()


def watchdog_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if "watchdog" in thread.name]


@pytest.mark.parametrize("mode", MODES)
def test_one_thread_for_all_and_nothing_is_kept(directory: Path, mode: str) -> None:
    """Iterators, loaders and watchdogs go when they are dropped, while the thread stays."""
    alive: list[weakref.ref[Any]] = []
    for k in range(3 if mode == "processes" else 20):
        loader = load("stream", directory, stall_after=0.05 + k, **MODES[mode])
        iterator = iter(loader)
        next(iterator)
        alive += [weakref.ref(loader), weakref.ref(iterator), weakref.ref(iterator._watchdog)]  # type: ignore[attr-defined]
    assert len(watchdog_threads()) == 1
    del loader, iterator
    gc.collect()
    assert wait_until(5, lambda: all(one() is None for one in alive))
    assert len(watchdog_threads()) == 1


def test_a_thread_only_if_somebody_waits(directory: Path) -> None:
    """And one of its own in a forked process."""
    next(iter(load("stream", directory)))
    assert len(watchdog_threads()) == 1
    pid = os.fork()
    if pid == 0:
        try:
            before = len(watchdog_threads())
            iterator = iter(load("stream", directory, stall_after=None))
            next(iterator)
            without = len(watchdog_threads())
            kept = iter(load("stream", directory))
            next(kept)
            os._exit(0 if (before, without, len(watchdog_threads())) == (0, 0, 1) else 1)
        except BaseException:  # noqa: BLE001
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert _watchdog._the_watch[0].process == os.getpid()

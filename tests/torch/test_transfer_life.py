"""Memory and descriptors of batches from processes, from the worker to their last user."""

from __future__ import annotations

import gc
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from .loader_cases import wait_until
from .process_cases import (
    batch_maps,
    by_processes,
    descriptors,
    in_fork,
    is_there,
    load,
    plain,
    workers_of,
    write,
)


def big(samples: list[Any]) -> dict[str, Any]:
    first = plain(samples[0])
    return {"x": torch.full((1 << 19,), len(samples)), "y": np.ones(1 << 12), "first": first}


def test_a_batch_outlives_loader_and_worker(tmp_path: Path) -> None:
    """It is valid and writable after all is gone, and its memory goes with its last part."""
    directory = write("stream", tmp_path / "stream")
    gc.collect()
    maps, files = batch_maps(), descriptors()
    loader = load("stream", directory, big, **by_processes("fork"))
    batches = list(loader)
    pids = workers_of(loader)
    assert batch_maps() == maps + 8
    loader.close()
    del loader
    gc.collect()
    assert not any(map(is_there, pids))
    assert descriptors() == files  # none for all these batches
    for batch in batches:
        assert (batch["x"] == 3).all()
        batch["x"] += 1
        assert int(batch["x"].sum()) == 4 << 19
    tail = batches[0]["y"][-1:]
    del batch, batches
    assert batch_maps() == maps + 1
    assert tail.tolist() == [1.0]
    del tail
    assert batch_maps() == maps


@pytest.mark.parametrize("limit", [64, 256])
def test_many_batches_under_few_descriptors(tmp_path: Path, limit: int) -> None:
    """1,000 batches through memory without a name, and all of an epoch kept, with `ulimit -n`."""
    directory = write("stream", tmp_path / "stream", 1200)

    def work() -> list[int]:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        inherited = descriptors() - 3  # of the tests; a process has three when it begins
        resource.setrlimit(resource.RLIMIT_NOFILE, (inherited + limit, most))
        options = by_processes("fork", 2, prefetch=8, local_batch_size=1, shuffle=False)
        with load(
            "stream", directory, lambda samples: np.ones(3000, int) * len(samples), **options
        ) as loader:
            first = sum(int(batch.sum()) for batch in loader)
            before = descriptors()
            kept = list(loader)
            assert descriptors() == before
            return [first, len(kept), int(sum(batch.sum() for batch in kept))]

    assert in_fork(work) == [1200 * 3000, 1200, 1200 * 3000]


def test_a_batch_for_which_no_descriptor_is_left(tmp_path: Path) -> None:
    """A clear error, and the loader goes on when there is room again."""
    directory = write("stream", tmp_path / "stream")

    def work() -> str:
        with load("stream", directory, big, **by_processes("fork")) as loader:
            iterator = iter(loader)
            next(iterator)
            _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() + 20, most))
            held = []
            try:
                while True:
                    held.append(os.dup(0))
            except OSError:
                pass
            try:
                for _ in range(3):
                    next(iterator)
            except OSError as error:
                text = str(error)
            for descriptor in held:
                os.close(descriptor)
            rest = len(list(loader))
            assert rest in (5, 6, 7), rest
            return text

    assert "too many open files; close some, or raise the limit (ulimit -n)" in in_fork(work)


def quarter(samples: list[Any]) -> torch.Tensor:
    return torch.full((256 << 20,), len(samples), dtype=torch.uint8)


def test_too_little_memory_for_a_batch(tmp_path: Path) -> None:
    directory = write("stream", tmp_path / "stream")

    def work() -> str:
        with load("stream", directory, quarter, **by_processes("fork")) as loader:
            warm = load("stream", directory)
            next(iter(warm))
            iterator = iter(loader)  # the worker is there, without the limit
            size = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
            soft, most = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (size + (128 << 20), most))
            try:
                next(iterator)
                text = "no error"
            except (OSError, RuntimeError, MemoryError) as error:
                text = str(error)
            resource.setrlimit(resource.RLIMIT_AS, (soft, most))
            assert loader.position == 0
            assert int(next(iter(loader))[-1]) == 3
            return text

    assert "Cannot allocate memory" in in_fork(work)


def test_nothing_ever_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While batches travel, neither of the folders for temporary files gets an entry."""
    directory = write("stream", tmp_path / "stream")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    seen: set[str] = set()
    over = threading.Event()

    def shared(pid: Any) -> set[str]:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        return {line for line in lines if "/dev/shm/" in line and str(tmp_path) not in line}

    before = shared("self")  # of others in this process, such as semaphores

    def look() -> None:
        while not over.is_set():
            seen.update(os.listdir(temporary))
            for pid in ("self", *pids):
                seen.update(shared(pid) - before)
            time.sleep(0.001)

    with load("stream", directory, big, **by_processes("fork", 2, prefetch=4)) as loader:
        next(iter(loader))
        pids = workers_of(loader)
        thread = threading.Thread(target=look)
        thread.start()
        for _ in range(10):
            for batch in loader:
                assert batch["x"][0] == 3
        over.set()
        thread.join()
    assert seen == set()
    assert wait_until(5, lambda: not any(map(is_there, pids)))

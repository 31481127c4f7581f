"""Batches from processes are those of the loop's own thread, byte for byte, and so are errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom import DatasetNotFoundError, MismatchError, WorkerError

from .loader_cases import wait_until
from .process_cases import (
    COLLATES,
    KINDS,
    METHODS,
    busy,
    by_processes,
    descriptors,
    is_there,
    load,
    pid_and_first,
    plain,
    steps_of,
    storage_of,
    tour,
    workers_of,
    write,
)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("processes")
    return {kind: write(kind, place / kind) for kind in KINDS}


@pytest.fixture(scope="module")
def directory(directories: dict[str, Path]) -> Path:
    return directories["stream"]


def check_tour(kind: str, directory: Path, collate: Any, options: dict[str, Any]) -> None:
    """Batches and states are those without workers; the processes are the same all the time."""
    reference = tour(load(kind, directory, collate))
    with load(kind, directory, collate, **options) as loader:
        first = steps_of(loader, 1)
        pids = workers_of(loader)
        assert len(set(pids)) == options["num_workers"]
        assert first == reference[:1]
        loader.set_epoch(1)
        loader.set_epoch(0)
        assert tour(loader) == reference
        assert workers_of(loader) == pids
    assert not any(map(is_there, pids))


@pytest.mark.parametrize(
    "method, kind, collate",
    [
        *product(["fork"], KINDS, COLLATES),
        *(("forkserver", *pair) for pair in zip(KINDS, COLLATES, strict=True)),
    ],
)
def test_batches_and_states_are_those_without_workers(
    directories: dict[str, Path], method: str, kind: str, collate: str
) -> None:
    """Every number of workers meets every depth, and both every kind of data and of function."""
    number = 3 * KINDS.index(kind) + list(COLLATES).index(collate)
    for workers in (1, 2, 3):
        prefetch = (0, 1, 8)[(number + workers) % 3]
        options = by_processes(method, workers, prefetch=prefetch, pad=None, drop_last=False)
        check_tour(kind, directories[kind], COLLATES[collate], options)


@pytest.mark.slow
@pytest.mark.parametrize("kind, collate", list(product(KINDS, COLLATES)))
@pytest.mark.parametrize("method", METHODS)
def test_batches_and_states_with_everything_crossed(
    directories: dict[str, Path], method: str, kind: str, collate: str
) -> None:
    for workers, prefetch in product((1, 2, 3), (0, 1, 8)):
        options = by_processes(method, workers, prefetch=prefetch)
        check_tour(kind, directories[kind], COLLATES[collate], options)


def test_spawned_workers(directories: dict[str, Path]) -> None:
    """The slow start method, once."""
    check_tour("spans", directories["spans"], COLLATES["closure"], by_processes("spawn"))


@pytest.mark.parametrize("method", ["fork", "forkserver"])
@pytest.mark.parametrize("workers, prefetch", [(1, 0), (2, 1), (3, 8)])
def test_the_state_after_every_batch_goes_on_exactly(
    directory: Path, method: str, workers: int, prefetch: int
) -> None:
    """From every k, in the same loader: what is left of the epoch, and the next one."""
    reference = load("stream", directory)
    steps = steps_of(reference) + steps_of(reference)
    states = [json.dumps(load("stream", directory).state_dict()), *(step[2] for step in steps)]
    with load("stream", directory, **by_processes(method, workers, prefetch=prefetch)) as loader:
        for k in range(len(steps)):
            loader.load_state_dict(json.loads(states[k]))
            found = steps_of(loader)
            assert found == steps[k : k + len(found)]
            assert loader.epoch == (1 if k < len(steps) // 2 else 2)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_all_workers_work_and_a_dead_one_is_replaced(directory: Path, method: str) -> None:
    with load("stream", directory, pid_and_first, **by_processes(method, 2, prefetch=2)) as loader:
        made_by = {pid for pid, _ in loader} | {pid for pid, _ in loader}
        pids = workers_of(loader)
        assert made_by == set(pids)
        assert os.getpid() not in made_by
        os.kill(pids[1], signal.SIGKILL)
        assert wait_until(5, lambda: len(workers_of(loader)) < 2)
        again = {pid for pid, _ in loader} | {pid for pid, _ in loader}
        assert len(again) == 2
        assert again.isdisjoint({pids[1]})
        assert not is_there(pids[1])


MAIN = """
import sys
import threading
from pathlib import Path

from guideloom import StatefulDataLoader, StreamNumpyFormat, StreamStorage

FACTOR = 3


class Collate:
    def __call__(self, samples):
        return [FACTOR * int(sample['tokens'].sum()) for sample in samples]


def by_name(samples):
    return Collate()(samples)


def enclosed(factor):
    return lambda samples: [factor * int(sample['tokens'].sum()) for sample in samples]


def main():
    storage = StreamStorage(Path(sys.argv[1]), StreamNumpyFormat([("tokens", "<u2")]))
    for collate in (by_name, Collate(), lambda samples: by_name(samples), enclosed(3)):
        make = lambda **options: StatefulDataLoader.from_storage(
            storage, collate, sequence_length=4, local_batch_size=3, shuffle=True, **options
        )
        wanted = [*make(), *make()]
        with make(num_workers=1, parallel_method="process", start_method=sys.argv[2]) as loader:
            assert [*loader, *make()] == wanted
    print("all equal")


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(
    "method", ["forkserver", *(pytest.param(x, marks=pytest.mark.slow) for x in ("fork", "spawn"))]
)
def test_functions_of_a_script(tmp_path: Path, directory: Path, method: str) -> None:
    """What a script defines in __main__, where no other process can import it."""
    script = tmp_path / "train.py"
    script.write_text(MAIN)
    result = run(script, directory, method)
    assert (result.returncode, result.stdout, result.stderr) == (0, "all equal\n", "")


def test_a_script_without_its_guard_is_told_so(tmp_path: Path, directory: Path) -> None:
    """Its workers run it again from the top, and would start workers of their own."""
    script = tmp_path / "train.py"
    script.write_text(MAIN.replace('if __name__ == "__main__":\n    main()', "main()"))
    result = run(script, directory, "spawn")
    assert result.returncode == 1
    assert "WorkerError: the worker process (pid " in result.stderr
    assert 'below its line `if __name__ == "__main__":`' in result.stderr


def run(script: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_dataset_that_changed_before_the_workers_opened_it(tmp_path: Path, method: str) -> None:
    directory = write("stream", tmp_path / "stream")
    loader = load("stream", directory, **by_processes(method, 2))
    loader.state_dict()
    with storage_of("stream", directory).sync_writer() as writer:
        writer.append(0, {"tokens": np.arange(4, dtype="<u2")})
    steps_of(load("stream", directory, **by_processes(method)), 1)  # what multiprocess keeps
    before = descriptors()
    for _ in range(2):
        with pytest.raises(MismatchError, match="the dataset has changed since") as raised:
            next(iter(loader))
        assert "in guideloom-loader-" in raised.value.__notes__[-1]
    loader.close()
    assert descriptors() <= before


def test_a_dataset_that_is_gone_when_the_workers_open_it(tmp_path: Path) -> None:
    directory = write("stream", tmp_path / "stream")
    loader = load("stream", directory, **by_processes("fork", 2))
    loader.state_dict()
    directory.rename(tmp_path / "elsewhere")
    with pytest.raises(DatasetNotFoundError, match="stream"):
        next(iter(loader))
    (tmp_path / "elsewhere").rename(directory)
    assert steps_of(loader) == steps_of(load("stream", directory))
    loader.close()


def test_a_collate_fn_that_cannot_be_sent(directory: Path) -> None:
    """A clear error where it must be sent; a forked process has it as it is."""
    generator: Iterator[int] = (k for k in range(1000))

    def collate(samples: list[Any]) -> Any:
        return len(samples), next(generator)

    before = descriptors()
    for method in ("forkserver", "spawn"):
        loader = load("stream", directory, collate, **by_processes(method))
        with pytest.raises(TypeError, match=r"dataset or collate_fn cannot be sent.*generator"):
            iter(loader)
        loader.close()
    assert descriptors() <= before + 1  # the reader's own
    with load("stream", directory, collate, **by_processes("fork")) as loader:
        assert list(loader) == [(3, k) for k in range(8)]


def test_a_process_that_cannot_be_started(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three: the error says so, the first one ends, nothing stays open."""
    loader = load("stream", directory, **by_processes("fork", 3))
    loader.state_dict()
    before, calls, fork = descriptors(), [0], os.fork

    def second_fails() -> int:
        calls[0] += 1
        if calls[0] == 2:
            raise OSError(11, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", second_fails)
    with pytest.raises(WorkerError, match=r"after 1 of them .*Resource temporarily unavailable"):
        next(iter(loader))
    assert descriptors() <= before + 4  # pipes that multiprocess opens before it forks
    monkeypatch.undo()
    assert steps_of(loader) == steps_of(load("stream", directory))
    loader.close()


@pytest.mark.parametrize(
    "method, workers, threads, has_read",
    [
        *product(["fork"], [0, 1, 2, 8], [0, 2], [False, True]),
        *product(["forkserver"], [1], [0, 2], [False, True]),
        ("forkserver", 8, 2, True),
    ],
)
def test_starts_beside_threads_and_open_readers(
    directory: Path, method: str, workers: int, threads: int, has_read: bool
) -> None:
    """No hang, whatever the parent did before; the right bytes."""
    import logging

    wanted = [step[1] for step in steps_of(load("stream", directory))]
    stop = threading.Event()
    lock = logging.getLogger().handlers[0].lock if logging.getLogger().handlers else None
    others = [
        threading.Thread(target=busy, args=(stop, lock or threading.Lock()), daemon=True)
        for _ in range(threads)
    ]
    for thread in others:
        thread.start()
    try:
        loader = load(
            "stream", directory, **by_processes(method, workers), timeout=30 if workers else None
        )
        if has_read:
            loader._pinned.reader()[np.arange(3)]
        assert [step[1] for step in steps_of(loader)] == wanted
        loader.close()
    finally:
        stop.set()
        for thread in others:
            thread.join()


def test_two_loaders_side_by_side(directory: Path) -> None:
    """Forked workers of one have the other's sockets open, which must not keep it from ending."""
    first = load("stream", directory, **by_processes("fork", 2))
    second = load("stream", directory, **by_processes("fork", 2))
    wanted = steps_of(load("stream", directory))
    iterators = iter(first), iter(second)
    assert [plain(next(one)) for one in iterators] == [wanted[0][1]] * 2
    begin = time.monotonic()
    first.close()
    assert time.monotonic() - begin < 1
    assert plain(next(iterators[1])) == wanted[1][1]
    second.close()


def test_a_forked_process_does_not_end_the_workers_of_its_parent(directory: Path) -> None:
    """It has copies of loader and iterator; it may drop them, close them, and use its own."""
    with load("stream", directory, **by_processes("fork", 2)) as loader:
        iterator = iter(loader)
        first = plain(next(iterator))
        pids = workers_of(loader)
        pid = os.fork()
        if pid == 0:
            try:
                loader.close()
                own = load("stream", directory, **by_processes("fork"))
                found = steps_of(own)
                own.close()
                os._exit(0 if found[0][1] == first else 1)
            except BaseException:  # noqa: BLE001
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert plain(next(iterator)) == steps_of(load("stream", directory))[1][1]
        assert workers_of(loader) == pids

"""What processes do that start loaders with worker processes in unusual places."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guideloom import WorkerError

from .process_cases import by_processes, descriptors, load, plain

MAIN = """
import sys
from pathlib import Path

import numpy as np

from guideloom import ShardOptions, StatefulDataLoader, StreamNumpyFormat, StreamStorage
from guideloom import write_shards

FACTOR = 3
FIELDS = np.dtype([("tokens", "<u2")])


def produce(task):
    yield {"tokens": np.arange(12, dtype="<u2") * FACTOR + task}


def collate(samples):
    return [FACTOR * int(sample["tokens"].sum()) for sample in samples]


def main(directory, method):
    storage = StreamStorage(Path(directory), StreamNumpyFormat(FIELDS))
    options = ShardOptions(start_method=method)
    write_shards(storage, [1, 2], produce, workers=2, progress=False, options=options)

    def make(**options):
        return StatefulDataLoader.from_storage(
            storage, collate, sequence_length=4, local_batch_size=3, **options
        )

    with make(num_workers=1, parallel_method="process", start_method=method) as loader:
        assert list(loader) == list(make()) != []
    print("all equal")


if __name__ == "__main__":
    main(*sys.argv[1:])
"""
"""A script; it gets a directory and a start method."""

AT_EXIT = """
import atexit
import sys
from pathlib import Path

from guideloom import StatefulDataLoader, StreamNumpyFormat, StreamStorage


def late():
    print(len(list(loader)), flush=True)


atexit.register(late)  # it is called after what is registered later
storage = StreamStorage(Path(sys.argv[1]), StreamNumpyFormat([("tokens", "<u2")]))
loader = StatefulDataLoader.from_storage(
    storage, len, sequence_length=4, local_batch_size=3, num_workers=2, parallel_method="process"
)
next(iter(loader))
"""
"""A script that uses a loader again when it ends."""


def fork_server() -> Any:
    """multiprocess's own."""
    from multiprocess import forkserver

    return forkserver._forkserver


def without_the_folder() -> None:
    """As cleaners of temporary files do."""
    shutil.rmtree(Path(fork_server()._forkserver_address).parent)


def without_the_socket() -> None:
    """A cleaner that leaves folders."""
    os.unlink(fork_server()._forkserver_address)


def without_the_server() -> None:
    """Killed, and waited for by somebody else."""
    os.kill(fork_server()._forkserver_pid, 9)
    os.waitpid(fork_server()._forkserver_pid, 0)


def numbers_of(directory: Path, method: str, **options: Any) -> list[Any]:
    """An epoch through two worker processes."""
    with load("stream", directory, **by_processes(method, 2, **options)) as loader:
        return [plain(batch) for batch in loader]


def in_a_child(directory: Path, temporary: Path, wanted: list[Any]) -> None:
    """What a process of `multiprocessing` does."""
    os.environ["TMPDIR"], tempfile.tempdir = str(temporary), None
    assert numbers_of(directory, "forkserver") == wanted
    assert any(name.startswith("pymp-") for name in os.listdir(temporary))


def what_is_said(call: Callable[[], Any]) -> str:
    """The message of the error of a pool that cannot be started."""
    try:
        call()
    except WorkerError as error:
        return f"{error} from {type(error.__cause__).__name__}"
    return ""


def under_every_limit(directory: Path) -> list[Any]:
    """What is said with so many descriptors left, and those that are open afterwards."""
    found: list[Any] = []
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    loader = load("stream", directory, **by_processes("fork", 2))
    len(loader)
    list(loader)
    loader.close()
    for left in range(16):
        before = descriptors()
        highest = max(map(int, os.listdir("/proc/self/fd"))) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + left, most))
        holes = [os.dup(0) for _ in range(highest - before)]
        try:
            said = what_is_said(lambda: iter(loader))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))
        for hole in holes:
            os.close(hole)
        loader.close()
        found.append((said, descriptors() - before))
    return found


def in_a_deleted_folder(directory: Path, method: str) -> str:
    """What is said where the current folder is gone."""
    gone = tempfile.mkdtemp()
    import multiprocess  # noqa: F401

    os.chdir(gone)
    os.rmdir(gone)
    return what_is_said(lambda: numbers_of(directory, method))


def in_a_folder_with_a_long_name(directory: Path) -> str:
    """What is said where a socket's name is too long."""
    folder = Path(tempfile.mkdtemp()) / ("x" * 120)
    folder.mkdir()
    tempfile.tempdir = str(folder)
    try:
        return what_is_said(lambda: numbers_of(directory, "forkserver"))
    finally:
        shutil.rmtree(folder.parent)

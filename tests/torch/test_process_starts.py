"""Worker processes start wherever a loader is used; where they cannot, an error says why."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from guideloom import WorkerError

from . import start_cases
from .process_cases import by_processes, in_fork, load, plain, workers_of, write
from .start_cases import numbers_of


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("stream", tmp_path_factory.mktemp("starts") / "stream")


@pytest.fixture(scope="module")
def wanted(directory: Path) -> list[Any]:
    return [plain(batch) for batch in load("stream", directory)]


@pytest.mark.parametrize(
    "lose",
    [
        start_cases.without_the_folder,
        start_cases.without_the_socket,
        start_cases.without_the_server,
    ],
)
def test_a_fork_server_that_was_lost(
    directory: Path, wanted: list[Any], lose: Callable[[], None]
) -> None:
    """The next loader starts another; one that was open before goes on, unless it was killed."""

    def work() -> list[bool]:
        with load("stream", directory, **by_processes("forkserver", 2)) as loader:
            iterator = iter(loader)
            batches = [next(iterator)]
            lose()
            again = [numbers_of(directory, "forkserver") == wanted for _ in range(2)]
            if lose is not start_cases.without_the_server:
                batches += iterator
            return [*again, [plain(batch) for batch in batches] == wanted[: len(batches)]]

    assert in_fork(work) == [True, True, True]


def test_the_fork_server_of_a_parent(directory: Path, wanted: list[Any]) -> None:
    """A fork has one of its own, and leaves that of its parent as it was."""

    def work() -> list[bool]:
        right = [numbers_of(directory, "forkserver") == wanted]
        address = start_cases.fork_server()._forkserver_address

        def in_the_fork() -> bool:
            right = numbers_of(directory, "forkserver") == wanted
            from multiprocess import util

            util._exit_function()
            return right and start_cases.fork_server()._forkserver_address != address

        right.append(in_fork(in_the_fork))
        return [*right, os.path.exists(address), numbers_of(directory, "forkserver") == wanted]

    assert in_fork(work) == [True] * 4


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_child_of_multiprocessing_leaves_no_folder(
    directory: Path, wanted: list[Any], method: Any
) -> None:
    def work(temporary: Path) -> list[Any]:
        child = multiprocessing.get_context(method).Process(
            target=start_cases.in_a_child, args=(directory, temporary, wanted)
        )
        child.start()
        child.join()
        return [child.exitcode, os.listdir(temporary)]

    with tempfile.TemporaryDirectory() as temporary:  # a short name, as its server needs it
        assert in_fork(partial(work, Path(temporary))) == [0, []]


def _as_file(folder: Path) -> list[str]:
    (folder / "train.py").write_text(start_cases.MAIN)
    return [str(folder / "train.py")]


def _as_module(folder: Path) -> list[str]:
    _as_file(folder)
    return ["-m", "train"]


def _as_package(folder: Path) -> list[str]:
    (folder / "training").mkdir()
    (folder / "training" / "__init__.py").touch()
    (folder / "training" / "__main__.py").write_text(start_cases.MAIN)
    return ["-m", "training"]


def _as_folder(folder: Path) -> list[str]:
    _as_package(folder)
    return [str(folder / "training")]


def _as_archive(folder: Path) -> list[str]:
    with zipfile.ZipFile(folder / "train.pyz", "w") as archive:
        archive.writestr("__main__.py", start_cases.MAIN)
    return [str(folder / "train.pyz")]


def _from_stdin(folder: Path) -> list[str]:
    del folder
    return ["-"]


def _as_argument(folder: Path) -> list[str]:
    del folder
    return ["-c", start_cases.MAIN]


WAYS = (_as_package, _as_archive, _from_stdin, _as_file, _as_module, _as_folder, _as_argument)


@pytest.mark.parametrize(
    "way, method",
    [
        *((way, "forkserver") for way in WAYS[:3]),
        *(pytest.param(way, "forkserver", marks=pytest.mark.slow) for way in WAYS[3:]),
        *(pytest.param(way, "spawn", marks=pytest.mark.slow) for way in WAYS),
    ],
)
def test_every_way_to_run_a_script(
    tmp_path: Path, way: Callable[[Path], list[str]], method: str
) -> None:
    """Loaders and `write_shards`, with functions that use what the script defines."""
    result = subprocess.run(
        [sys.executable, "-W", "error", *way(tmp_path), str(tmp_path / "data"), method],
        input=start_cases.MAIN,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "all equal\n", "")


def test_every_number_of_descriptors(directory: Path) -> None:
    """Either the processes start, or it is said what to do; of ours, nothing stays open."""
    found = in_fork(lambda: start_cases.under_every_limit(directory))
    said = [text for text, _ in found]
    assert said[0]
    assert not said[-1]
    for text in filter(None, said):
        assert text.endswith(" from OSError")
        assert "2 worker processes of a loader could not be started" in text
        assert "raise the limit (ulimit -n)" in text
    assert max(more for _, more in found) <= 2  # a pipe that multiprocess opens before the next


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_current_folder_that_is_gone(directory: Path, method: str) -> None:
    said = in_fork(lambda: start_cases.in_a_deleted_folder(directory, method))
    assert "the folder in which this process works is gone" in said


def test_a_folder_whose_name_is_too_long(directory: Path) -> None:
    said = in_fork(lambda: start_cases.in_a_folder_with_a_long_name(directory))
    assert "set TMPDIR to one with a shorter name" in said


def test_no_more_threads(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes were there already: they end."""

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "guideloom-loader-receiver":
            raise RuntimeError("can't start new thread")
        start(thread)

    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with load("stream", directory, **by_processes("fork", 2)) as loader:
        with pytest.raises(WorkerError, match=r"after 2 of them .*use fewer of them"):
            iter(loader)
        assert workers_of(loader) == []
        monkeypatch.undo()
        assert len(list(loader)) == 8


def test_workers_of_workers(directory: Path) -> None:
    """What a collate_fn with a loader of its own is told."""
    with (
        load(
            "stream", directory, lambda _: numbers_of(directory, "fork"), **by_processes("fork")
        ) as loader,
        pytest.raises(WorkerError, match=r"is daemonic.*num_workers=0 or parallel_method"),
    ):
        next(iter(loader))

"""Errors in workers arrive as they are, say where they come from, and cost no sample."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom import GuideLoomError, WorkerError

from .process_cases import by_processes, load, storage_of, workers_of
from .process_errors import Raises, known_errors, strange_errors

KNOWN = known_errors()


def at_position(loader: Any, position: int) -> None:
    loader.load_state_dict({**loader.state_dict(), "epoch": 0, "position": position})


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sample k is a document that begins with k."""
    place = tmp_path_factory.mktemp("errors") / "documents"
    with storage_of("documents", place).sync_writer() as writer:
        writer.extend(0, [np.array([k, k], dtype="<i4") for k in range(200)])
    return place


def test_there_are_many_errors() -> None:
    assert len(KNOWN) > 60
    assert len({type(error) for error in KNOWN if isinstance(error, GuideLoomError)}) >= 16


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_errors_arrive_as_they_are(numbered: Path, method: str) -> None:
    """Their class, text and arguments, with notes: which samples, which worker, its traceback."""
    options = by_processes(method, local_batch_size=1, shuffle=False, rank=0, world_size=2)
    with load("documents", numbered, Raises(known_errors), **options) as loader:
        next_of(loader)
        pids = workers_of(loader)
        for k in range(0, len(KNOWN), 2):
            at_position(loader, k)
            error = next_of(loader)
            assert type(error) is type(KNOWN[k])
            assert str(error) == str(KNOWN[k])
            if not isinstance(error, ExceptionGroup):
                assert error.args == KNOWN[k].args
            samples, lie, where = error.__notes__
            assert lie.startswith("where they lie in ")
            assert samples == (
                f"while loading samples {k} (epoch 0, rank 0, step 0 since the epoch began or "
                "was resumed)"
            )
            assert where.startswith(f"in guideloom-loader-0 (pid {pids[0]}):\nTraceback (most")
            assert "raise self.errors()[int(samples[0][0])]" in where
            assert (loader.epoch, loader.position) == (0, k)
        assert workers_of(loader) == pids
    with load("documents", numbered, Raises(known_errors), **{**options, "rank": 1}) as loader:
        for k in range(1, len(KNOWN), 2):
            at_position(loader, k - 1)
            error = next_of(loader)
            assert (type(error), str(error)) == (type(KNOWN[k]), str(KNOWN[k]))
            assert f"samples {k} (epoch 0, rank 1" in error.__notes__[0]


def next_of(loader: Any) -> BaseException:
    """The error that comes in place of a batch."""
    try:
        next(iter(loader))
    except BaseException as error:  # noqa: BLE001  # such as KeyboardInterrupt
        return error
    raise AssertionError("no error came")


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_an_error_that_cannot_be_sent_arrives_as_text(numbered: Path, method: str) -> None:
    options = by_processes(method, local_batch_size=1, shuffle=False)
    with load("documents", numbered, Raises(strange_errors), **options) as loader:
        for k, error in enumerate(strange_errors()):
            at_position(loader, k)
            found = next_of(loader)
            assert type(found) is WorkerError, found
            assert f"{type(error).__name__}: {error}" in str(found)
            assert f"while loading samples {k} (epoch 0" in str(found)
            assert "Traceback (most recent call last)" in str(found)
            assert "in guideloom-loader-0 (pid " in str(found)


def test_an_error_of_a_class_that_is_only_in_the_worker(numbered: Path) -> None:
    """Its module is not to be found where the batch is awaited: the text arrives."""

    def collate(samples: list[Any]) -> Any:
        import types

        module = types.ModuleType("only_in_the_worker")
        exec("class Odd(Exception): pass", module.__dict__)
        sys.modules["only_in_the_worker"] = module
        raise module.Odd(f"only here, {len(samples)} samples")

    with load("documents", numbered, collate, **by_processes("fork")) as loader:
        found = next_of(loader)
        assert type(found) is WorkerError, found
        assert "only_in_the_worker.Odd: only here, 3 samples" in str(found)
        assert "in collate" in str(found)


def test_a_cause_is_told(numbered: Path) -> None:
    def collate(samples: list[Any]) -> Any:
        try:
            return samples[1000]
        except IndexError as error:
            raise ValueError("no such sample") from error

    with load("documents", numbered, collate, **by_processes("fork")) as loader:
        found = next_of(loader)
        assert type(found) is ValueError
        assert "IndexError: list index out of range" in found.__notes__[-1]
        assert "direct cause" in found.__notes__[-1]


def test_stop_iteration_ends_no_epoch(numbered: Path) -> None:
    def collate(samples: list[Any]) -> Any:
        return next(iter(samples[:0]))

    with load("documents", numbered, collate, **by_processes("fork")) as loader:
        with pytest.raises(RuntimeError, match="raised StopIteration"):
            list(loader)
        assert loader.position == 0


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt("mine"), SystemExit(3)])
def test_an_interrupt_in_a_worker_arrives_and_skips_nothing(
    numbered: Path, tmp_path: Path, interrupt: BaseException
) -> None:
    flag = tmp_path / "flag"
    flag.touch()

    def collate(samples: list[Any]) -> Any:
        if samples[0][0] == 6 and flag.exists():
            raise interrupt
        return int(samples[0][0])

    options = by_processes("fork", 2, prefetch=2, shuffle=False)
    with load("documents", numbered, collate, **options) as loader:
        delivered: list[int] = []
        with pytest.raises(type(interrupt)) as raised:
            delivered.extend(loader)
        assert raised.value.args == interrupt.args
        assert (delivered, loader.position) == ([0, 3], 6)
        flag.unlink()
        assert list(loader) == list(range(6, 198, 3))


ENDS: dict[str, tuple[Callable[[], Any], str]] = {
    "os._exit": (lambda: os._exit(7), "ended with exit code 7"),
    "segmentation fault": (lambda: ctypes.string_at(0), r"killed by signal 11 \(SIGSEGV\)"),
    "abort": (lambda: os.abort(), r"killed by signal 6 \(SIGABRT\)"),
}


@pytest.mark.parametrize(
    "end, method", [*((end, "fork") for end in ENDS), ("os._exit", "forkserver")]
)
def test_a_worker_that_ends_itself_is_named(
    numbered: Path, tmp_path: Path, end: str, method: str
) -> None:
    call, text = ENDS[end]
    flag = tmp_path / "flag"
    flag.touch()

    def collate(samples: list[Any]) -> Any:
        if samples[0][0] == 6 and flag.exists():
            faulthandler.disable()  # the traceback of an expected end is no news
            call()
        return int(samples[0][0])

    options = by_processes(method, 2, prefetch=2, shuffle=False)
    with load("documents", numbered, collate, **options) as loader:
        iterator = iter(loader)
        delivered = [next(iterator)]  # the processes have begun
        begin = time.monotonic()
        with pytest.raises(WorkerError, match=text) as raised:
            delivered.extend(iterator)
        assert time.monotonic() - begin < 5
        assert "while it loaded samples 6, 7, 8 (epoch 0, rank 0, step 2" in str(raised.value)
        assert (delivered, loader.position) == ([0, 3][: len(delivered)], 3 * len(delivered))
        flag.unlink()
        assert delivered + list(loader) == list(range(0, 198, 3))

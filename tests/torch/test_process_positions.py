"""Positions of loaders with processes: every k, breaks, moves, stops, and states at any moment.

`test_resume` and `test_position` for batches that come from other processes.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from guideloom import LoaderTimeoutError, StatefulDataLoader

from .process_cases import (
    KINDS,
    Step,
    by_processes,
    load,
    plain,
    steps_of,
    storage_of,
    workers_of,
    write,
)

AHEAD = list(product((0, 1, 8), (1, 3)))  # (prefetch, num_workers)
SAMPLES = 15  # five batches


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("positions")
    return {kind: write(kind, place / kind, SAMPLES) for kind in KINDS}


@pytest.fixture(scope="module")
def directory(directories: dict[str, Path]) -> Path:
    return directories["stream"]


def run_of(directory: Path, epochs: int) -> list[Step]:
    """What comes without workers."""
    loader = load("stream", directory)
    return [step for _ in range(epochs) for step in steps_of(loader)]


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize("kind", KINDS)
def test_the_tail_of_the_run_from_every_batch(
    directories: dict[str, Path], kind: str, prefetch: int, workers: int
) -> None:
    """Saved with processes after every batch of two epochs and at their ends; loaded with processes
    and without, in a loader that has been elsewhere."""
    directory = directories[kind]
    reference = load(kind, directory, drop_last=False)
    first = json.dumps(reference.state_dict())
    run = [step for _ in range(4) for step in steps_of(reference)]
    options = by_processes("fork", workers, prefetch=prefetch, drop_last=False)
    with load(kind, directory, **options) as loader:
        saved = [step for _ in range(2) for step in steps_of(loader)]
        assert saved == run[: len(saved)]
        for k, state in enumerate([first, *(step[2] for step in saved)]):
            for resumed in (loader, load(kind, directory, drop_last=False)):
                resumed.load_state_dict(json.loads(state))
                assert json.dumps(resumed.state_dict()) == state
                rest = [step for _ in range(2) for step in steps_of(resumed)]
                assert rest == run[k : k + len(rest)], k
                assert len(rest) >= len(saved) // 2


@pytest.mark.parametrize("prefetch, workers", AHEAD)
def test_a_break_after_every_batch(directory: Path, prefetch: int, workers: int) -> None:
    """A new loop goes on with the next batch, whatever was loaded ahead; the same every time."""
    run = run_of(directory, 2)
    with load("stream", directory, **by_processes("fork", workers, prefetch=prefetch)) as loader:
        for stop_after in (*range(1, 6), *range(1, 6)):
            loader.set_epoch(3)
            loader.set_epoch(0)
            found = steps_of(loader, stop_after)
            found += [step for _ in range(2) for step in steps_of(loader)]
            assert found[: len(run)] == run, stop_after
        loader.set_epoch(0)
        found = []
        while len(found) < len(run):
            found += steps_of(loader, 1)
        assert found == run


def _load(loader: StatefulDataLoader) -> None:
    loader.load_state_dict(loader.state_dict() | {"epoch": 2, "position": 6})


def _iterate(loader: StatefulDataLoader) -> None:
    iter(loader)


def _set_epoch(loader: StatefulDataLoader) -> None:
    loader.set_epoch(2)


def _seek(loader: StatefulDataLoader) -> None:
    loader.seek(4)


def _skip(loader: StatefulDataLoader) -> None:
    loader.skip(7)


def _close(loader: StatefulDataLoader) -> None:
    loader.close()


MOVES: dict[Callable[[StatefulDataLoader], None], tuple[int, int]] = {
    _load: (2, 2),
    _iterate: (0, 0),
    _set_epoch: (2, 0),
    _seek: (0, 4),
    _skip: (0, 7),
}


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize("move", [*MOVES, _close])
def test_a_move_between_iter_and_any_batch(
    directory: Path, move: Callable[[StatefulDataLoader], None], prefetch: int, workers: int
) -> None:
    """It counts for the next iter; the iterator that was there delivers nothing more."""
    run = run_of(directory, 4)
    with load("stream", directory, **by_processes("fork", workers, prefetch=prefetch)) as loader:
        for before in range(3):
            loader.set_epoch(1)
            loader.set_epoch(0)
            iterator = iter(loader)
            for k in range(before):
                assert plain(next(iterator)) == run[k][1]
            move(loader)
            for _ in range(2):
                with pytest.raises(RuntimeError, match="no longer valid"):
                    next(iterator)
            epoch, step = MOVES.get(move, (0, before))
            at = 5 * epoch + step
            at += before if move in (_iterate, _skip) else 0
            assert steps_of(loader, 3) == run[at : at + 3][: 3 - max(0, at % 5 - 2)]


def test_a_worker_stopped_before_every_batch(directory: Path) -> None:
    """SIGSTOP at any step: an error in time, and the next iter goes on exactly."""
    wanted = [step[1] for step in steps_of(load("stream", directory))]
    options = by_processes("fork", 2, prefetch=1, timeout=0.4)
    for at in range(len(wanted)):
        with load("stream", directory, **options) as loader:
            iterator = iter(loader)
            found = [plain(next(iterator)) for _ in range(at)]
            for pid in workers_of(loader):
                os.kill(pid, signal.SIGSTOP)
            begin = time.monotonic()
            try:
                found += map(plain, iterator)
                assert at == len(wanted) - 1 or len(found) == len(wanted)  # all was loaded before
            except LoaderTimeoutError:
                assert time.monotonic() - begin < 0.4 * (1 + len(wanted) - at) + 2
                assert loader.position == 3 * len(found)
                found += [step[1] for step in steps_of(loader)]
            assert found == wanted, at


# States at any moment


@contextmanager
def handler(number: signal.Signals, call: Callable[[], None]) -> Iterator[None]:
    def handle(_: int, __: FrameType | None) -> None:
        call()

    before = signal.signal(number, handle)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(number, before)


MODES: dict[str, dict[str, Any]] = {
    "in the loop": {},
    "one thread": {"prefetch": 4},
    "threads": {"num_workers": 3, "prefetch": 4},
    "processes": by_processes("fork", 2, prefetch=4),
}


@pytest.mark.parametrize("mode", MODES)
def test_states_of_a_signal_handler_go_on_exactly(directory: Path, mode: str) -> None:
    """A timer interrupts the loop some hundred times; each state found is resumed from.

    It is the state before the batch on its way, or that behind it: no third.
    """
    seen: list[tuple[int, str]] = []
    delivered = 0
    with load("stream", directory, **MODES[mode]) as loader:
        loader.state_dict()

        def look() -> None:
            seen.append((delivered, json.dumps(loader.state_dict())))

        with handler(signal.SIGALRM, look):
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
            while len(seen) < 300:
                for _ in loader:
                    delivered += 1
    whole = load("stream", directory)
    for before, state in seen:
        fields = json.loads(state)
        assert 5 * fields["epoch"] + fields["position"] // 3 - before in (0, 1), (before, state)
    with load("stream", directory, **MODES[mode]) as resumed:
        for before, state in seen[::10]:
            fields = json.loads(state)
            whole.set_epoch(fields["epoch"] + 1)
            whole.set_epoch(fields["epoch"])
            tail = [step for _ in range(2) for step in steps_of(whole)][fields["position"] // 3 :]
            resumed.load_state_dict(fields)
            rest = [step for _ in range(2) for step in steps_of(resumed)]
            assert rest == tail, (before, state)


@pytest.mark.parametrize("mode", MODES)
def test_asking_for_the_state_has_no_effect(directory: Path, mode: str) -> None:
    """Before, between and behind batches, and to change what was returned."""
    run = run_of(directory, 2)
    found = []
    with load("stream", directory, **MODES[mode]) as loader:
        for _ in range(2):
            loader.state_dict()
            iterator = iter(loader)
            while True:
                states = [loader.state_dict() for _ in range(3)]
                states[0].clear()
                assert states[1] == states[2] == loader.state_dict()
                batch = next(iterator, None)
                if batch is None:
                    break
                found.append(plain(batch))
    assert found == [step[1] for step in run]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_is_small_and_quick_after_every_batch(
    directories: dict[str, Path], kind: str, mode: str
) -> None:
    """Under 600 bytes of JSON; within 10 ms, also to load. The quickest of several calls counts."""
    options = {"shuffle_seed": 2**64 - 1, **MODES[mode]}
    with load(kind, directories[kind], **options) as loader:
        loader.set_epoch(10**9)
        for batch in loader:
            del batch
            saving = [time.perf_counter()]
            for _ in range(5):
                text = json.dumps(loader.state_dict())
                saving.append(time.perf_counter())
            assert len(text) < 600, text
            assert np.diff(saving).min() < 0.01
        loading = [time.perf_counter()]
        for k in range(5):
            loader.load_state_dict(json.loads(text) | {"position": 3 * k})
            loading.append(time.perf_counter())
        assert np.diff(loading).min() < 0.01


# Nothing to load


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("samples, drop_last", [(0, False), (0, True), (2, True)])
def test_processes_with_an_epoch_without_a_batch(
    tmp_path: Path, kind: str, samples: int, drop_last: bool
) -> None:
    """It warns and ends, and the next one comes; nothing hangs."""
    directory = write(kind, tmp_path / kind, samples)
    options = by_processes("fork", 2, prefetch=2, drop_last=drop_last, timeout=20)
    with load(kind, directory, **options) as loader:
        assert len(loader) == 0
        for epoch in range(3):
            assert (loader.epoch, loader.position) == (epoch, 0)
            with pytest.warns(UserWarning, match=rf"no batch: {samples} samples"):
                assert list(loader) == []
    assert loader.epoch == 3


def test_processes_when_there_is_no_shard(tmp_path: Path) -> None:
    """A writer that got nothing."""
    with storage_of("stream", tmp_path / "stream").sync_writer():
        pass
    with (
        load("stream", tmp_path / "stream", **by_processes("fork", 2), timeout=20) as loader,
        pytest.warns(UserWarning, match="no batch: 0 samples"),
    ):
        assert list(loader) == []

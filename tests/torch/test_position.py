"""Where a loader stands: after a break, a load, set_epoch, and seen from elsewhere."""

from __future__ import annotations

import json
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch

from guideloom import StatefulDataLoader

from .loader_cases import (
    deliver,
    deliver_with_states,
    expected_run,
    ids_of,
    make_loader,
    sample_id,
    write_stream,
)

AHEAD = [(0, 0), (1, 0), (8, 0), (0, 1), (8, 3)]  # (prefetch, num_workers)
RETIRED = (
    "this iterator is no longer valid: the loader was closed, moved, or iterated anew. "
    r"Call iter\(loader\) again; it goes on at the loader's position"
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_stream(tmp_path / "stream", 11)


@pytest.mark.parametrize("prefetch, workers", AHEAD)
def test_a_break_and_a_new_loop_go_on_with_the_next_batch(
    directory: Path, prefetch: int, workers: int
) -> None:
    """The same every time, wherever the break comes."""
    run = expected_run(11, 2, seed=1, local_batch_size=2)
    for stop_after in (1, 2, 4, 5):
        loader = make_loader(
            directory, seed=1, local_batch_size=2, prefetch=prefetch, num_workers=workers
        )
        found = []
        for number, batch in enumerate(loader, start=1):
            found.append((0, ids_of(batch)))
            if number == stop_after:
                break
        assert found == run[:stop_after]
        assert deliver(loader, until_epoch=2) == run[stop_after:]


def test_breaks_after_every_batch_give_the_whole_sequence(directory: Path) -> None:
    loader = make_loader(directory, seed=1, local_batch_size=2, drop_last=False)
    found = []
    while loader.epoch < 3:
        epoch = loader.epoch
        found.append((epoch, ids_of(next(iter(loader)))))
    assert found == expected_run(11, 3, seed=1, local_batch_size=2, drop_last=False)


def _load(loader: StatefulDataLoader, state: dict[str, Any]) -> None:
    loader.load_state_dict(state | {"epoch": 2, "position": 4})


def _iterate(loader: StatefulDataLoader, _: dict[str, Any]) -> None:
    iter(loader)


def _close(loader: StatefulDataLoader, _: dict[str, Any]) -> None:
    loader.close()


def _set_epoch(loader: StatefulDataLoader, _: dict[str, Any]) -> None:
    loader.set_epoch(2)


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize(
    "move, epoch, skipped",
    [(_load, 2, 2), (_iterate, 0, 1), (_close, 0, 1), (_set_epoch, 2, 0)],
)
def test_an_older_iterator_raises_and_a_new_one_is_at_the_new_place(
    directory: Path,
    prefetch: int,
    workers: int,
    move: Callable[[StatefulDataLoader, dict[str, Any]], None],
    epoch: int,
    skipped: int,
) -> None:
    loader = make_loader(
        directory, seed=1, local_batch_size=2, prefetch=prefetch, num_workers=workers
    )
    iterator = iter(loader)
    next(iterator)
    move(loader, loader.state_dict())
    for _ in range(2):
        with pytest.raises(RuntimeError, match=RETIRED):
            next(iterator)
    before = 5 * epoch + skipped
    assert (
        deliver(loader, until_epoch=3) == expected_run(11, 3, seed=1, local_batch_size=2)[before:]
    )


def test_a_load_between_iter_and_the_first_batch(directory: Path) -> None:
    """The load counts for the next iter; the iterator that was there does not deliver."""
    loader = make_loader(directory, local_batch_size=2)
    iterator = iter(loader)
    loader.load_state_dict(loader.state_dict() | {"position": 6})
    with pytest.raises(RuntimeError, match=RETIRED):
        next(iterator)
    assert ids_of(next(iter(loader))) == [6, 7]


def test_later_epochs_are_whole_after_a_resume_in_the_middle(directory: Path) -> None:
    loader = make_loader(directory, seed=9, drop_last=False)
    loader.load_state_dict(loader.state_dict() | {"epoch": 4, "position": 7})
    run = expected_run(11, 7, seed=9, drop_last=False)
    assert deliver(loader, until_epoch=7) == run[4 * 11 + 7 :]
    assert len(loader) == 11


def test_a_loop_with_set_epoch_goes_on_after_a_resume_at_every_batch(directory: Path) -> None:
    options: dict[str, Any] = {"local_batch_size": 2, "seed": 3, "drop_last": False}
    states: list[str] = []
    run = deliver_with_states(make_loader(directory, **options), until_epoch=3, states=states)
    for k, state in enumerate(states):
        loader = make_loader(directory, **options)
        loader.load_state_dict(json.loads(state))
        found = []
        for epoch in range(loader.epoch, 3):
            loader.set_epoch(epoch)
            found += [(epoch, ids_of(batch)) for batch in loader]
        assert found == run[k:], k


def test_set_epoch_to_the_current_epoch_changes_nothing(directory: Path) -> None:
    loader = make_loader(directory, local_batch_size=2)
    iterator = iter(loader)
    next(iterator)
    loader.set_epoch(0)
    assert (loader.epoch, loader.position) == (0, 2)
    assert ids_of(next(iterator)) == [2, 3]


@pytest.mark.parametrize("target", [0, 1, 3, 10**9])
def test_set_epoch_to_another_epoch_goes_to_its_start(directory: Path, target: int) -> None:
    loader = make_loader(directory, local_batch_size=2, seed=4)
    loader.set_epoch(2)
    next(iter(loader))
    loader.set_epoch(np.int64(target))  # type: ignore[arg-type]
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (target, 0)
    whole = make_loader(directory, local_batch_size=2, seed=4)
    whole.load_state_dict(state)
    found = deliver(loader, until_epoch=target + 1) if target < 100 else [ids_of(b) for b in loader]
    assert len(found) == 5
    assert loader.epoch == target + 1
    assert [ids_of(batch) for batch in whole] == [
        ids[1] if isinstance(ids, tuple) else ids for ids in found
    ]


@pytest.mark.parametrize(
    "epoch, error, text",
    [
        (-1, ValueError, "epoch is -1; expected between 0 and 9223372036854775807"),
        (1.0, TypeError, r"epoch is 1.0 \(float\); expected an integer"),
        (True, TypeError, "epoch is True; expected an integer"),
        ("1", TypeError, r"epoch is '1' \(str\); expected an integer"),
    ],
)
def test_set_epoch_refuses(directory: Path, epoch: Any, error: type[Exception], text: str) -> None:
    loader = make_loader(directory)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(error, match=text):
        loader.set_epoch(epoch)
    assert (loader.epoch, loader.position) == (0, 1)
    assert ids_of(next(iterator)) == [1]


@pytest.mark.parametrize("prefetch, workers", AHEAD)
def test_the_order_depends_on_no_ambient_randomness_and_uses_none(
    directory: Path, prefetch: int, workers: int
) -> None:
    found = []
    for number in range(3):
        random.seed(number)
        np.random.seed(number)  # noqa: NPY002  # the ambient one is meant
        torch.manual_seed(number)
        before = _ambient_states()
        loader = make_loader(directory, seed=2, prefetch=prefetch, num_workers=workers)
        found.append([ids_of(batch) for batch in loader])
        assert _ambient_states() == before
    assert found == [[ids for _, ids in expected_run(11, 1, seed=2)]] * 3


def test_asking_for_the_state_changes_nothing(directory: Path) -> None:
    loader = make_loader(directory, seed=2, local_batch_size=2)
    found = []
    while loader.epoch < 2:
        for batch in loader:
            states = [loader.state_dict() for _ in range(3)]
            states[0].clear()
            assert states[1] == states[2] == loader.state_dict()
            found.append(ids_of(batch))
    assert found == [ids for _, ids in expected_run(11, 2, seed=2, local_batch_size=2)]


def test_the_state_within_a_signal_handler_while_a_batch_is_made(directory: Path) -> None:
    """Deterministic: the signal comes while batch k is collated; the state stands behind k - 1."""
    seen: list[str] = []

    def collate(samples: list[Any]) -> list[int]:
        signal.raise_signal(signal.SIGUSR1)
        return [sample_id(sample) for sample in samples]

    loader = make_loader(directory, collate, seed=8, drop_last=False)
    states = [json.dumps(loader.state_dict())]
    with _handler(signal.SIGUSR1, lambda: seen.append(json.dumps(loader.state_dict()))):
        while loader.epoch < 2:
            for _ in loader:
                states.append(json.dumps(loader.state_dict()))  # noqa: PERF401
    assert seen == states[:-1]
    assert len(seen) == 22


@pytest.mark.parametrize("prefetch, workers", [(0, 0), (4, 0), (4, 3)])
def test_the_state_within_a_signal_handler_at_any_moment(
    directory: Path, prefetch: int, workers: int
) -> None:
    """A timer interrupts the loop some hundred times: the state is one of a batch border.

    The one before the batch on its way, or, within the last lines of next(), the one behind it.
    """
    loader = make_loader(directory, seed=8, prefetch=prefetch, num_workers=workers)
    delivered = 0
    seen: list[tuple[int, int]] = []

    def look() -> None:
        state = loader.state_dict()
        seen.append((delivered, int(state["epoch"] or 0) * 11 + int(state["position"] or 0)))

    with _handler(signal.SIGALRM, look):
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        try:
            while len(seen) < 200:
                for _ in loader:
                    delivered += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    assert all(at - before in (0, 1) for before, at in seen), seen


def test_the_state_from_another_thread(directory: Path) -> None:
    """Whatever the moment: epoch and position belong together, and never go back."""
    loader = make_loader(directory, seed=8, local_batch_size=2)
    seen: list[tuple[Any, Any]] = []
    enough = threading.Event()

    def watch() -> None:
        while not enough.is_set():
            state = loader.state_dict()
            seen.append((state["epoch"], state["position"]))

    loader.state_dict()
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        while len(seen) < 2000 or len(set(seen)) < 20:
            for _ in loader:
                pass
    finally:
        enough.set()
        thread.join()
    assert seen == sorted(seen)
    assert {position for _, position in seen} <= {0, 2, 4, 6, 8}


def _ambient_states() -> tuple[object, str, bytes]:
    numpy_state = repr(np.random.get_state())  # noqa: NPY002
    return random.getstate(), numpy_state, bytes(torch.get_rng_state().tolist())


@contextmanager
def _handler(number: signal.Signals, call: Callable[[], None]) -> Iterator[None]:
    def handle(_: int, __: FrameType | None) -> None:
        call()

    before = signal.signal(number, handle)
    try:
        yield
    finally:
        signal.signal(number, before)

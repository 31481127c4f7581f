"""The position when the loader is moved, forked or interrupted while a batch is on its way."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from guideloom import StatefulDataLoader

from .loader_cases import ids_of, make_loader, write_stream

MOVES: dict[str, Callable[[StatefulDataLoader, dict[str, Any]], None]] = {
    "load_state_dict": lambda loader, state: loader.load_state_dict(state),
    "set_epoch": lambda loader, _: loader.set_epoch(5),
    "iter": lambda loader, _: (iter(loader), None)[1],
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_stream(tmp_path / "stream", 24)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("move", MOVES)
def test_a_batch_on_its_way_does_not_move_the_loader_back(
    directory: Path, move: str, workers: int
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    slow: list[bool] = []
    raised: list[Exception] = []

    def collate(samples: list[Any]) -> int:
        if slow:
            begun.set()
            assert go_on.wait(60)
        return len(samples)

    loader = make_loader(directory, collate, local_batch_size=4, num_workers=workers)
    start = loader.state_dict()
    iterator = iter(loader)
    if not workers:
        next(iterator)
    slow.append(True)

    def work() -> None:
        try:
            next(iterator)
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(60)
    MOVES[move](loader, start)
    place = (loader.epoch, loader.position)
    go_on.set()
    thread.join(60)
    assert (loader.epoch, loader.position) == place
    assert "no longer valid" in str(raised[0])


def test_a_collate_fn_that_moves_the_loader(directory: Path) -> None:
    def collate(samples: list[Any]) -> int:
        loader.load_state_dict(start)
        return len(samples)

    loader = make_loader(directory, collate, local_batch_size=4)
    start = loader.state_dict()
    with pytest.raises(RuntimeError, match="no longer valid"):
        next(iter(loader))
    assert (loader.epoch, loader.position) == (0, 0)


def test_an_iterator_in_a_forked_process_raises(directory: Path) -> None:
    loader = make_loader(directory, num_workers=2, prefetch=2)
    iterator = iter(loader)
    next(iterator)
    child = os.fork()
    if not child:
        signal.alarm(30)
        try:
            next(iterator)
        except RuntimeError as error:
            os._exit(0 if "workers are of process" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert ids_of(next(iterator))


def test_an_interrupt_at_any_opcode_skips_no_batch(directory: Path) -> None:
    """Raised by tracing in `__next__`: what was delivered and the position always agree."""
    code = type(iter(make_loader(directory))).__next__.__code__
    tried = 0
    for at in range(200):
        loader = make_loader(directory, local_batch_size=2, drop_last=True)
        iterator = iter(loader)
        delivered = ids_of(next(iterator))
        if not interrupted_at(code, at, iterator, delivered):
            break
        tried += 1
        assert loader.position == len(delivered)
        delivered += ids_of(next(iter(loader)))
        assert delivered == sorted(set(delivered)) == list(range(len(delivered)))
    assert tried > 20


def interrupted_at(code: Any, at: int, iterator: Any, delivered: list[int]) -> bool:
    """Whether opcode number `at` of a call of next() could be interrupted, as CPython can.

    CPython looks for interrupts where a call returns; those are the places that count.
    """
    seen = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal seen
        del arg
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == at + 1 and frame.f_locals.get("batch") is None:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        batch = next(iterator)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    delivered += ids_of(batch)
    return seen > at + 1

"""Streams whose samples say their ids, and the order that a loader must keep, in plain Python."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from guideloom import StatefulDataLoader, StreamNumpyFormat, StreamStorage
from guideloom.io import PosixPreadIO
from guideloom.shuffle import FeistelShuffler
from guideloom.types import IOFiles, IOReader, IOSession
from guideloom_format._processes import StartMethod

LENGTH = 3
TOKENS = np.dtype([("tokens", "<u4")])
_WITHIN = np.arange(LENGTH, dtype="<u4")
T = TypeVar("T")

Delivered = tuple[int, list[int]]  # an epoch, and the ids of a batch


def write_stream(directory: Path, samples: int, *, shards: int = 3) -> Path:
    """Samples i = 0, 1, …: the elements LENGTH * i … LENGTH * i + LENGTH - 1, each its own number.

    The LENGTH - 1 elements behind the last sample belong to none. Samples cross shards.
    """
    elements = np.arange(samples * LENGTH + LENGTH - 1, dtype="<u4")
    with StreamStorage(directory, StreamNumpyFormat(TOKENS)).sync_writer() as writer:
        for shard, part in enumerate(np.array_split(elements, shards)):
            writer.append(shard, {"tokens": part})
    return directory


def make_loader(
    directory: Path,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    *,
    backend: IOReader | None = None,
    sequence_length: int = LENGTH,
    seed: int | None = None,
    **options: Any,
) -> StatefulDataLoader:
    """A loader of fresh objects all the way down; it shuffles if there is a seed."""
    storage = StreamStorage(directory, StreamNumpyFormat(TOKENS), backend)
    return StatefulDataLoader.from_storage(
        storage,
        collate_fn,
        sequence_length=sequence_length,
        shuffle=seed is not None,
        shuffle_seed=seed,
        **options,
    )


def sample_id(sample: dict[str, NDArray[Any]]) -> int:
    """The id that one sample of a written stream says it has."""
    return int(sample["tokens"][0]) // LENGTH


def ids_of(batch: Any) -> list[int]:
    """The ids that the rows of a batch say they have; every element is checked."""
    tokens = batch["tokens"]
    assert tokens.dtype == torch.uint32, tokens.dtype
    assert tokens.shape[1:] == (LENGTH,), tokens.shape
    rows = tokens.numpy()
    ids = rows[:, 0] // LENGTH
    assert (rows == LENGTH * ids[:, None] + _WITHIN).all(), rows
    return list(map(int, ids))


class Trainer:
    """What trains: it has the loader, and the function that makes the loader's batches."""

    def __init__(self, directory: Path, start_method: StartMethod) -> None:
        self.loader = make_loader(
            directory,
            self.collate,
            num_workers=2,
            parallel_method="process",
            start_method=start_method,
        )

    def collate(self, samples: list[Any]) -> int:
        """The id of the one sample."""
        return sample_id(samples[0])


def global_order(samples: int, epoch: int, seed: int | None) -> list[int]:
    """All samples in the order of an epoch."""
    if seed is None:
        return list(range(samples))
    shuffler = FeistelShuffler.from_seed(samples, seed, epoch=epoch)
    return [shuffler.shuffle(position) for position in range(samples)]


def deal(
    order: Sequence[int], *, world_size: int, local_batch_size: int, drop_last: bool
) -> list[list[list[int]]]:
    """The rows of each rank at each step, dealt like cards: ``deal(…)[step][rank]``."""
    steps = []
    left = list(order)
    while left:
        step = left[: world_size * local_batch_size]
        del left[: len(step)]
        if drop_last and len(step) < world_size * local_batch_size:
            break
        hands: list[list[int]] = [[] for _ in range(world_size)]
        for number, sample in enumerate(step):
            hands[number % world_size].append(sample)
        steps.append(hands)
    return steps


def expected_run(
    samples: int,
    epochs: int,
    *,
    seed: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    local_batch_size: int = 1,
    drop_last: bool = True,
) -> list[Delivered]:
    """What a rank gets over the first epochs."""
    return [
        (epoch, hands[rank])
        for epoch in range(epochs)
        for hands in deal(
            global_order(samples, epoch, seed),
            world_size=world_size,
            local_batch_size=local_batch_size,
            drop_last=drop_last,
        )
    ]


def deliver(loader: StatefulDataLoader, *, until_epoch: int) -> list[Delivered]:
    """Everything from where the loader is to the start of an epoch."""
    return deliver_with_states(loader, until_epoch=until_epoch, states=None)


def deliver_with_states(
    loader: StatefulDataLoader, *, until_epoch: int, states: list[str] | None
) -> list[Delivered]:
    """The same, and the states as JSON: first of all, and after every batch."""
    delivered: list[Delivered] = []
    if states is not None:
        states.append(json.dumps(loader.state_dict()))
    for _ in range(until_epoch + 1):
        if loader.epoch >= until_epoch:
            return delivered
        iterator = iter(loader)
        epoch = loader.epoch
        for batch in iterator:
            delivered.append((epoch, ids_of(batch)))
            if states is not None:
                states.append(json.dumps(loader.state_dict()))
    raise AssertionError(f"epoch {until_epoch} does not come; the loader is in {loader.epoch}")


def within(seconds: float, call: Callable[[], T]) -> T:
    """The call's result; an error if it does not come in time."""
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  # raised again below
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    assert results, f"nothing after {seconds} s"
    return results[0]


def wait_until(seconds: float, holds: Callable[[], bool]) -> bool:
    """Whether it comes to hold before the deadline."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


@contextmanager
def python(*scripts: str, arguments: Sequence[object]) -> Iterator[subprocess.Popen[str]]:
    """A fresh interpreter in which warnings are errors; it gets the arguments as text."""
    script = "\n".join(map(textwrap.dedent, scripts))
    command = [sys.executable, "-W", "error", "-c", script]
    with subprocess.Popen(
        [*command, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def output_of(process: subprocess.Popen[str], seconds: float = 60) -> str:
    """What a process printed; an error unless it ended well and silently."""
    output, errors = process.communicate(timeout=seconds)
    ended = (process.returncode, errors)
    assert ended == (0, ""), ended
    return output


class WatchedIO:
    """The default backend; `before` is called ahead of each read, to count, to wait or to fail.

    It gets the bytes to read as rows of (file, offset, bytes, offset in the batch).
    """

    def __init__(self, before: Callable[[NDArray[np.int64]], None]) -> None:
        self._before = before

    def open(self, directory: str) -> IOSession:
        return _WatchedSession(PosixPreadIO().open(directory), self._before)


class _WatchedSession:
    def __init__(self, session: IOSession, before: Callable[[NDArray[np.int64]], None]) -> None:
        self._before = before
        self._session = session
        self.list_names = session.list_names
        self.read_file = session.read_file
        self.file_size = session.file_size
        self.close = session.close

    def open_files(self, names: Sequence[str], sizes: NDArray[np.int64]) -> IOFiles:
        return _WatchedFiles(self._session.open_files(names, sizes), self._before)


class _WatchedFiles:
    def __init__(self, files: IOFiles, before: Callable[[NDArray[np.int64]], None]) -> None:
        self._before = before
        self._files = files
        self.close = files.close

    def fill(self, rows: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
        self._before(rows)
        self._files.fill(rows, out)

"""An error in a worker arrives as it was raised, at its turn, and the loader goes on from there."""

from __future__ import annotations

import errno
import json
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch.utils.data import default_collate

from guideloom import DamagedFileError, GuideLoomError, ReadError, StatefulDataLoader
from guideloom.types import IOReader

from .loader_cases import (
    LENGTH,
    WatchedIO,
    deliver,
    expected_run,
    ids_of,
    make_loader,
    sample_id,
    within,
    write_stream,
)

AHEAD = list(product((0, 4), (0, 1, 3)))  # (prefetch, num_workers)
SAMPLES, BATCH, SEED = 12, 2, 6


class PlainError(Exception):
    """Cannot be made again from one string, and carries more than its text."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"number {number}: {reason}")
        self.number = number
        self.reason = reason


def _errors() -> list[Exception]:
    return [
        PlainError(5, "odd"),
        KeyError("tokens"),
        OSError(errno.EIO, "Input/output error", "some/file"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        ReadError("some/file: Input/output error (errno 5) at offset 70"),
        ExceptionGroup("two", [ValueError("one"), TypeError("two")]),
        MemoryError(),
    ]


class Fault:
    """Raises at one sample until it is repaired."""

    def __init__(self, error: Exception, at_sample: int) -> None:
        self.error: Exception | None = error
        self.at_sample = at_sample

    def collate(self, samples: list[Any]) -> dict[str, Any]:
        self.check([sample_id(sample) for sample in samples])
        batch: dict[str, Any] = default_collate(samples)
        return batch

    def read(self, rows: NDArray[np.int64]) -> None:
        self.check((rows[:, 1] // (4 * LENGTH)).tolist())

    def check(self, ids: list[int]) -> None:
        if self.error is not None and self.at_sample in ids:
            raise self.error


def _with_collate(directory: Path, fault: Fault, **options: Any) -> StatefulDataLoader:
    return make_loader(directory, fault.collate, seed=SEED, local_batch_size=BATCH, **options)


def _with_backend(directory: Path, fault: Fault, **options: Any) -> StatefulDataLoader:
    backend: IOReader = WatchedIO(fault.read)
    return make_loader(directory, backend=backend, seed=SEED, local_batch_size=BATCH, **options)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stream(tmp_path_factory.mktemp("errors") / "stream", SAMPLES, shards=1)


@pytest.mark.parametrize("make, function", [(_with_collate, "collate"), (_with_backend, "read")])
@pytest.mark.parametrize("step", [0, 2, 5])
def test_an_error_arrives_unchanged_at_its_turn(
    directory: Path, make: Callable[..., StatefulDataLoader], function: str, step: int
) -> None:
    """The batches before it first; then the object that was raised, with a note that says where.

    The state stands behind the last batch delivered, and once the cause is gone a new iter goes on.
    The cases wait for threads most of the time, so they run side by side.
    """
    run = expected_run(SAMPLES, 2, seed=SEED, local_batch_size=BATCH)
    before, (first, second) = [ids for _, ids in run[6 : 6 + step]], run[6 + step][1]
    notes = [
        f"while loading samples {first}, {second} (epoch 1, rank 0, step {at} since the epoch "
        "began or was resumed)"
        for at in (step, 0)
    ]

    def check(case: tuple[int, tuple[int, int]]) -> None:
        number, (prefetch, workers) = case
        error = _errors()[number]
        fault = Fault(error, at_sample=second)
        loader = make(directory, fault, prefetch=prefetch, num_workers=workers)
        loader.set_epoch(1)
        delivered: list[list[int]] = []
        for _ in range(2):
            with pytest.raises(type(error)) as raised:
                delivered.extend(map(ids_of, loader))
            assert raised.value is error, case
            assert delivered == before, case
            assert (loader.epoch, loader.position) == (1, BATCH * step), case
        frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        assert function in frames, case
        assert [note for note in error.__notes__ if "while loading" in note] == notes, case
        lies = f"  {second}: shard 0 at {LENGTH * second}: data/0000/"
        assert sum(lies in note for note in error.__notes__) == 2, case
        state = json.loads(json.dumps(loader.state_dict()))
        fault.error = None
        assert deliver(loader, until_epoch=2) == run[6 + step :], case
        elsewhere = make(directory, fault)
        elsewhere.load_state_dict(state)
        assert deliver(elsewhere, until_epoch=2) == run[6 + step :], case

    cases = list(product(range(len(_errors())), AHEAD))
    with ThreadPoolExecutor(len(cases)) as pool:
        assert within(60, lambda: list(pool.map(check, cases))) == [None] * len(cases)


def test_attributes_and_texts_stay(directory: Path) -> None:
    loader = _with_collate(directory, Fault(PlainError(5, "odd"), 0), num_workers=2)
    with pytest.raises(PlainError) as raised:
        list(loader)
    assert str(raised.value) == "number 5: odd"
    assert (raised.value.number, raised.value.reason) == (5, "odd")
    fault = Fault(OSError(errno.EIO, "Input/output error", "some/file"), 0)
    with pytest.raises(OSError, match="Input/output error") as found:
        list(_with_backend(directory, fault, num_workers=2))
    assert str(found.value) == "[Errno 5] Input/output error: 'some/file'"
    assert (found.value.errno, found.value.filename) == (errno.EIO, "some/file")


def test_the_note_of_a_large_batch_names_the_first_samples(directory: Path) -> None:
    fault = Fault(ValueError("odd"), 11)
    loader = make_loader(
        directory, fault.collate, local_batch_size=6, rank=1, world_size=2, num_workers=1
    )
    with pytest.raises(ValueError, match="odd") as raised:
        list(loader)
    text = "while loading samples 1, 3, 5, 7, 9, 11 (epoch 0, rank 1, step 0 since the epoch "
    assert raised.value.__notes__[0].startswith(text)
    fault = Fault(ValueError("odd"), 11)
    with pytest.raises(ValueError, match="odd") as raised:
        list(make_loader(directory, fault.collate, local_batch_size=12))
    assert "samples 0, 1, 2, 3, 4, 5, 6, 7, … (epoch 0" in raised.value.__notes__[0]


@pytest.mark.parametrize("prefetch, workers", AHEAD)
def test_a_truncated_file_is_named_with_the_samples(
    tmp_path: Path, prefetch: int, workers: int
) -> None:
    directory = write_stream(tmp_path / "stream", SAMPLES, shards=1)
    loader = make_loader(directory, prefetch=prefetch, num_workers=workers)
    loader.state_dict()
    (file,) = directory.glob("data/*/*.elements")
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(DamagedFileError, match=f"{file.name} has 147 bytes; 152 were") as raised:
        list(loader)
    assert "while loading samples 0 (epoch 0, rank 0, step 0" in raised.value.__notes__[0]


@pytest.mark.parametrize("prefetch, workers", AHEAD)
def test_a_missing_dataset_is_named_at_the_first_use(
    tmp_path: Path, prefetch: int, workers: int
) -> None:
    loader = make_loader(tmp_path / "nowhere", prefetch=prefetch, num_workers=workers)
    uses: list[Callable[[], object]] = [
        lambda: iter(loader), lambda: len(loader), loader.state_dict, loader.__enter__
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(GuideLoomError, match="nowhere"):
            use()


@pytest.mark.parametrize("prefetch, workers", AHEAD)
def test_stop_iteration_in_collate_fn_ends_no_epoch(
    directory: Path, prefetch: int, workers: int
) -> None:
    """It would end the for loop without a word and leave out the rest of the epoch."""

    def collate(samples: list[Any]) -> Any:
        empty: Iterator[Any] = iter(())
        return next(empty) if sample_id(samples[0]) == 4 else samples

    loader = make_loader(
        directory, collate, local_batch_size=2, prefetch=prefetch, num_workers=workers
    )
    delivered: list[Any] = []
    with pytest.raises(RuntimeError, match="StopIteration") as raised:
        delivered.extend(loader)
    assert isinstance(raised.value.__cause__, StopIteration)
    assert len(delivered) == 2
    assert loader.position == 4


@pytest.mark.parametrize("prefetch, workers", AHEAD)
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_arrives_and_its_batch_is_not_skipped(
    directory: Path, interrupt: BaseException, prefetch: int, workers: int
) -> None:
    """Whoever loads: what is no Exception would end a worker silently, and next() would hang.

    Afterwards, if the user caught it and calls next() again, either the iterator is over or it
    delivers the interrupted batch: never the one behind it, and the state agrees.
    """
    interrupts = [interrupt]

    def collate(samples: list[Any]) -> list[int]:
        ids = [sample_id(sample) for sample in samples]
        if ids[0] == 4 and interrupts:
            raise interrupts.pop()
        return ids

    loader = make_loader(
        directory, collate, local_batch_size=2, prefetch=prefetch, num_workers=workers
    )
    iterator = iter(loader)
    assert [next(iterator), next(iterator)] == [[0, 1], [2, 3]]
    with pytest.raises(type(interrupt)) as raised:
        within(5, lambda: next(iterator))
    assert raised.value is interrupt
    assert loader.position == 4
    try:
        again = next(iterator)
    except (StopIteration, RuntimeError):
        again = next(iter(loader))
    assert again == [4, 5]
    assert loader.position == 6

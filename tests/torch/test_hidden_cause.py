"""Whatever fails, and whoever loads: text, traceback, samples, file and offset arrive."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import guideloom
import guideloom_format
import guideloom_read
import guideloom_read.io
import guideloom_torch
from guideloom import DatasetError, GuideLoomError
from guideloom_read.io import PosixPreadIO

from .cause_cases import (
    FAULTS,
    LOADING,
    CollateError,
    OddSample,
    elements_file,
    failing_backend,
    io_error,
    plain_error,
)
from .loader_cases import LENGTH, make_loader, write_stream
from .process_cases import by_processes
from .process_errors import known_errors

SAMPLES, BATCH, AT = 12, 2, 7  # the sample of which loading fails, in step 3
QUICK = [name for name in LOADING if name != "spawn"]  # spawned processes take seconds to begin


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_stream(tmp_path / "stream", SAMPLES, shards=1)


def error_of(loader: Any, delivered: int) -> BaseException:
    """The error that comes in place of the batch behind those that are delivered."""
    with loader:
        iterator = iter(loader)
        for _ in range(delivered):
            next(iterator)
        try:
            next(iterator)
        except Exception as error:  # noqa: BLE001  # whatever it is
            assert loader.position == BATCH * delivered
            return error
    raise AssertionError("no error came")


def all_of(error: BaseException) -> str:
    """As Python shows it when nobody catches it."""
    return "".join(traceback.format_exception(error))


def check_says_samples(error: BaseException, ids: str, step: int, loading: str) -> None:
    text = "\n".join(getattr(error, "__notes__", []))
    assert f"while loading samples {ids} (epoch 0, rank 0, step {step} since" in text
    in_worker = re.search(r"in guideloom-loader-\d \(pid \d+\):\nTraceback \(most recent", text)
    assert bool(in_worker) == ("start_method" in LOADING[loading])


@pytest.mark.parametrize("loading", LOADING)
def test_an_error_of_collate_fn(directory: Path, loading: str) -> None:
    """Its class, attributes, text, traceback with all frames, its own cause, and the samples."""
    loader = make_loader(directory, OddSample(AT), local_batch_size=BATCH, **LOADING[loading])
    error = error_of(loader, 3)
    assert type(error) is CollateError
    assert (error.number, error.args) == (AT, (AT,))
    check_says_samples(error, "6, 7", 3, loading)
    shown = all_of(error)
    for piece in (
        "CollateError: sample 7 is odd, as was to be expected",
        "in looked_at",
        "in __call__",
        "raise CollateError(number) from error",
        "KeyError: 'the hidden cause'",
        "direct cause of the following exception",
    ):
        assert piece in shown, (piece, shown)


@pytest.mark.parametrize("make, kind", [(io_error, OSError), (plain_error, ArithmeticError)])
@pytest.mark.parametrize("loading", QUICK)
def test_an_error_of_a_users_backend(
    directory: Path, loading: str, make: Callable[[int, int], Exception], kind: type[Exception]
) -> None:
    backend = failing_backend(AT, make)
    options = {"local_batch_size": BATCH, "backend": backend, **LOADING[loading]}
    error = error_of(make_loader(directory, **options), 3)
    assert type(error) is kind
    assert str(error) == str(make(0, 4 * LENGTH * AT))
    check_says_samples(error, "6, 7", 3, loading)
    shown = all_of(error)
    assert "cause_cases.py" in shown
    assert "raise self.make(file, start)" in shown


@pytest.mark.parametrize("loading", ["in the loop", "threads", "fork"])
@pytest.mark.parametrize("failing", ["collate_fn", "backend"])
def test_where_the_samples_lie_is_said(directory: Path, loading: str, failing: str) -> None:
    """File, which has the shard in its path, and offset, whoever raised the error."""
    options: dict[str, Any] = {"local_batch_size": BATCH, **LOADING[loading]}
    if failing == "backend":
        options["backend"] = failing_backend(AT, plain_error)
    error = error_of(make_loader(directory, OddSample(AT), **options), 3)
    notes = "\n".join(error.__notes__)
    assert elements_file(directory).name in notes
    assert str(4 * LENGTH * (AT - 1)) in notes or str(4 * LENGTH * AT) in notes


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("loading", QUICK)
def test_a_file_that_is_not_what_it_was(directory: Path, loading: str, fault: str) -> None:
    """The error names the file, which has the shard in its path, and the samples."""
    loader = make_loader(directory, local_batch_size=BATCH, **LOADING[loading])
    loader.state_dict()  # opened: the workers open what is damaged by now
    file = elements_file(directory)
    text = FAULTS[fault](file)
    error = error_of(loader, 0)
    assert isinstance(error, DatasetError)
    assert str(file.relative_to(directory)) in str(error)
    assert re.search(text, str(error)), error
    check_says_samples(error, "0, 1", 0, loading)


@pytest.mark.parametrize("loading", QUICK)
def test_a_file_that_is_cut_while_it_is_open(directory: Path, loading: str) -> None:
    """The error names file, bytes and samples: those of the step that needs what is gone."""
    backend = PosixPreadIO()
    loader = make_loader(directory, local_batch_size=BATCH, backend=backend, **LOADING[loading])
    file = elements_file(directory)
    with loader:
        iterator = iter(loader)
        next(iterator)  # whoever loads has the file open
        if "num_workers" in LOADING[loading]:
            list(loader)
            iterator = iter(loader)
            next(iterator)
        with file.open("r+b") as open_file:
            open_file.truncate(1)
        with pytest.raises(DatasetError) as raised:
            list(iterator)
    error = raised.value
    name = re.escape(str(file.relative_to(directory)))
    assert re.search(rf"{name}, bytes \d+ to \d+: the file has ended before", str(error)), error
    notes = "\n".join(error.__notes__)
    assert re.search(r"while loading samples \d+, \d+ \(epoch \d, rank 0, step \d", notes)
    first = int(re.search(r"samples (\d+)", notes)[1])  # type: ignore[index]
    assert f"bytes {4 * LENGTH * first} to " in str(error)


def public_errors() -> dict[str, type[BaseException]]:
    """All exceptions among the public names of all packages."""
    found: dict[str, type[BaseException]] = {}
    modules = (guideloom, guideloom_format, guideloom_read, guideloom_read.io, guideloom_torch)
    for module in modules:
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, type) and issubclass(value, BaseException):
                found[f"{module.__name__}.{name}"] = value
    return found


def test_no_public_error_is_left_out_of_those_that_are_sent() -> None:
    """`test_process_errors` sends each of these from workers."""
    sent = {type(error) for error in known_errors()}
    public = public_errors()
    assert len(set(public.values())) >= 16
    assert set(public.values()) <= sent
    assert all(issubclass(kind, GuideLoomError) for kind in public.values())


@pytest.mark.parametrize("kind", sorted({*public_errors().values()}, key=repr))
def test_every_public_error_has_file_shard_and_offset_when_it_arrives(
    directory: Path, kind: type[BaseException]
) -> None:
    """From a backend in a worker process: as it was raised there, through the reader."""
    text = "data/0007/00000000.elements: shard 7, offset 65536: found 3 bytes, expected 4. Copy it"
    backend = failing_backend(AT, lambda _, __: kind(text))  # type: ignore[arg-type,return-value]
    options = {"local_batch_size": BATCH, "backend": backend, **by_processes("fork")}
    error = error_of(make_loader(directory, **options), 3)
    assert type(error) is kind
    assert (str(error), error.args) == (text, (text,))
    check_says_samples(error, "6, 7", 3, "fork")

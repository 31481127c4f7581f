"""Faults of collate functions, backends and files; importable from a process that begins anew."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom.types import IOReader

from .loader_cases import LENGTH, WatchedIO, sample_id
from .process_cases import by_processes

LOADING: dict[str, dict[str, Any]] = {
    "in the loop": {},
    "threads": {"num_workers": 2, "prefetch": 1},
    "fork": by_processes("fork", 2, prefetch=1),
    "forkserver": by_processes("forkserver", 1),
    "spawn": by_processes("spawn", 1),
}


class CollateError(Exception):
    """A user's own, with more than a text."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        return f"sample {self.number} is odd, as was to be expected"


class OddSample:
    """A collate_fn that has a cause for its error, some calls below."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.table: dict[str, int] = {}

    def __call__(self, samples: list[Any]) -> list[int]:
        return [self.looked_at(sample) for sample in samples]

    def looked_at(self, sample: Any) -> int:
        number = sample_id(sample)
        if number == self.at:
            try:
                self.table["the hidden cause"]
            except KeyError as error:
                raise CollateError(number) from error
        return number


class Fails:
    """A user's backend: its reads fail where a sample begins."""

    def __init__(self, at: int, make: Callable[[int, int], Exception]) -> None:
        self.at = at
        self.make = make

    def __call__(self, rows: NDArray[np.int64]) -> None:
        for file, start, nbytes, _ in rows.tolist():
            if start <= 4 * LENGTH * self.at < start + nbytes:
                raise self.make(file, start)


def io_error(file: int, start: int) -> Exception:
    return OSError(5, f"the server said no to file {file} at {start}")


def plain_error(file: int, start: int) -> Exception:
    return ArithmeticError(f"the proxy of file {file} cannot count to {start}")


def failing_backend(at: int, make: Callable[[int, int], Exception]) -> IOReader:
    return WatchedIO(Fails(at, make))


# Files


def elements_file(directory: Path) -> Path:
    """The one file that has the samples."""
    (file,) = directory.glob("data/*/*.elements")
    return file


def truncate(file: Path) -> str:
    """Shorter than committed; what the error must say of it."""
    os.truncate(file, file.stat().st_size - 5)
    return "bytes"


def remove(file: Path) -> str:
    file.unlink()
    return "not there"


def replace_by_a_folder(file: Path) -> str:
    file.unlink()
    file.mkdir()
    return "cannot be opened|not a regular file|a special file"


FAULTS = {"truncated": truncate, "removed": remove, "a folder": replace_by_a_folder}

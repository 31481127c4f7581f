"""Batches and errors that are hard to send, to receive or to load."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

IMPORTS = """
import dataclasses
from pathlib import Path

import torch

from {package}.batch_cases import Lazy
from {package}.process_cases import load, plain


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    text: str


class Mine(Exception):
    pass


def collate(samples):
    if {fails}:
        raise Mine(str(plain(samples[0])))
    batch = Batch(torch.arange(len(samples)), str(plain(samples)))
    return Lazy(batch.x, batch.text) if {lazy} else batch


found = []
with load("stream", Path({directory!r}), collate, timeout=20, **{options!r}) as loader:
    try:
        for batch in loader:
            assert type(batch) is Batch
            found.append(batch.text)
    except Mine as error:
        found.append(str(error))
"""
"""A module that loads while it is imported; it defines the types of batches and errors."""


class Lazy:
    """Becomes a batch of that module, which it imports when it is unpickled."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __reduce__(self) -> Any:
        return _made_there, self.parts


def _made_there(*parts: Any) -> Any:
    return importlib.import_module("loads_in_import").Batch(*parts)


def found_in_an_import(
    folder: Path, directory: Path, fails: bool, lazy: bool, options: Any
) -> list[str]:
    """What such a module has found."""
    package = __name__.rpartition(".")[0]
    (folder / "loads_in_import.py").write_text(
        IMPORTS.format(
            package=package, fails=fails, lazy=lazy, directory=str(directory), options=options
        )
    )
    sys.path.insert(0, str(folder))
    found: list[str] = importlib.import_module("loads_in_import").found
    return found


class Raises:
    """Raises an error where it is pickled."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


class RaisesThere:
    """Raises an error where it is unpickled, in another process than this one."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __reduce__(self) -> Any:
        return _raise_elsewhere, (self.kind, os.getpid())


def _raise_elsewhere(kind: type[BaseException], process: int) -> None:
    if os.getpid() != process:
        raise kind("there")


class UnsendableError(Exception):
    """An error whose pickling raises something else."""

    def __init__(self, kind: type[BaseException]) -> None:
        super().__init__("what went wrong")
        self.kind = kind

    def __reduce__(self) -> Any:
        raise self.kind


def odd(error: BaseException) -> BaseException:
    """An error that takes no notes."""
    error.__notes__ = "text"  # type: ignore[assignment]
    return error

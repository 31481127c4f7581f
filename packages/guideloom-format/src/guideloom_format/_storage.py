"""Descriptions of datasets: where, which storage format, which I/O backend.

They open the half that is installed: a machine that only writes needs no reader, and the other
way round.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from guideloom_format._dtypes import storable_dtype
from guideloom_format._errors import MissingPackageError
from guideloom_format._types import IOReader, StreamStorageFormat

if TYPE_CHECKING:
    from guideloom_read import StreamReader
    from guideloom_write import StreamWriter


class StreamStorage:
    """A stream of fixed-size elements in a directory.

    Args:
        directory: the dataset's folder; a writer creates it.
        storage_format: how samples are packed into elements, for example `StreamNumpyFormat`.
        read_interface: the I/O backend for readers; `PosixPreadIO()` when left out.

    Raises:
        TypeError: the storage format lacks a method or its dtype is not stored.
    """

    kind = "stream"

    def __init__(
        self,
        directory: str | os.PathLike[str],
        storage_format: StreamStorageFormat,
        read_interface: IOReader | None = None,
    ) -> None:
        self.directory = Path(directory)
        for name in ("stream_dtype", "pack", "unpack"):
            if not hasattr(storage_format, name):
                raise TypeError(
                    f"the storage format {type(storage_format).__name__} has no {name!r}; a stream "
                    "format needs stream_dtype, pack and unpack, see guideloom.types"
                )
        if read_interface is not None and (
            isinstance(read_interface, type) or not hasattr(read_interface, "open")
        ):
            raise TypeError(
                f"read_interface is {read_interface!r}; expected an instance of a backend, such as "
                "guideloom.io.MmapIO()"
            )
        self.storage_format = storage_format
        self.element_type: np.dtype[Any] = storable_dtype(storage_format.stream_dtype)
        self.read_interface = read_interface

    def sync_writer(self, *, user: Mapping[str, Any] | None = None) -> StreamWriter:
        """A writer, to be used as a context manager.

        Args:
            user: a JSON object for the header: tokenizer, licence, provenance. It counts when this
                writer creates the dataset; the header of an existing dataset is not changed.

        Raises:
            MissingPackageError: guideloom-write is not installed.
        """
        writer: StreamWriter = require("guideloom_write", "sync_writer()").StreamWriter(
            self, user=user
        )
        return writer

    def sync_reader(self) -> StreamReader:
        """A reader, to be used as a context manager.

        Raises:
            MissingPackageError: guideloom-read is not installed.
        """
        reader: StreamReader = require("guideloom_read", "sync_reader()").StreamReader(self)
        return reader

    def __repr__(self) -> str:
        return f"StreamStorage({str(self.directory)!r}, {self.storage_format!r})"


_NEEDS = {"guideloom-torch": ["guideloom-read"]}


def require(module: str, wanted: str) -> Any:
    """The module of another GuideLoom package.

    Raises:
        MissingPackageError: it is not installed; the message has the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        package = module.replace("_", "-")
        needed = ["guideloom-format", *_NEEDS.get(package, ()), package]
        folders = " ".join(f"./packages/{name}" for name in needed)
        raise MissingPackageError(
            f"{wanted} needs the package {package}, which is not installed. "
            f"Install it with: pip install {package} (in a clone of the repository: "
            f"pip install {folders})"
        ) from error

"""Descriptions of datasets: where, which storage format, which I/O backend.

They open the half that is installed: a machine that only writes needs no reader, and the other
way round.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from guideloom_format._dtypes import storable_dtype
from guideloom_format._errors import MissingPackageError
from guideloom_format._parts import DOCUMENT, STREAM, STREAM_WITH_META
from guideloom_format._types import (
    DocumentStorageFormat,
    IOReader,
    StreamStorageFormat,
    StreamWithMetaStorageFormat,
)

if TYPE_CHECKING:
    from guideloom_read import DocumentReader, StreamReader, StreamWithMetaReader
    from guideloom_write import DocumentWriter, StreamWithMetaWriter, StreamWriter


def check_backend(read_interface: Any) -> None:
    """Raises TypeError unless it is None or an instance of a backend."""
    if read_interface is not None and (
        isinstance(read_interface, type) or not hasattr(read_interface, "open")
    ):
        raise TypeError(
            f"read_interface is {read_interface!r}; expected an instance of a backend, such as "
            "guideloom.io.MmapIO()"
        )


class Storage:
    """What the three storage classes share; use one of them.

    Attributes:
        kind: of the data: `stream`, `stream-with-meta` or `document`.
        directory: the dataset's folder.
        storage_format: how samples are packed.
        element_type: of the stored values, little-endian.
        read_interface: the I/O backend for readers; None for the default.
    """

    kind: ClassVar[str]
    _methods: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        directory: str | os.PathLike[str],
        storage_format: Any,
        read_interface: IOReader | None = None,
    ) -> None:
        self.directory = Path(directory)
        for name in self._methods:
            if isinstance(storage_format, type) or not hasattr(storage_format, name):
                is_class = isinstance(storage_format, type)
                form = storage_format if is_class else type(storage_format)
                raise TypeError(
                    f"the storage format {form.__name__} "
                    f"{'is a class and not an instance' if is_class else f'has no {name!r}'}; "
                    f"{type(self).__name__} needs an object with {', '.join(self._methods)}, see "
                    "guideloom.types"
                )
        found_kind = getattr(storage_format, "storage_kind", self.kind)
        if found_kind != self.kind:
            raise TypeError(
                f"the storage format {type(storage_format).__name__} is for data of kind "
                f"{found_kind!r}, {type(self).__name__} for {self.kind!r}; use "
                f"{STORAGE_OF_KIND[found_kind].__name__}, or another format"
            )
        check_backend(read_interface)
        self.storage_format = storage_format
        self.element_type: np.dtype[Any] = storable_dtype(self._element_type(storage_format))
        self.read_interface = read_interface

    @staticmethod
    def _element_type(storage_format: Any) -> Any:
        return storage_format.stream_dtype

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.directory)!r}, {self.storage_format!r})"


class StreamStorage(Storage):
    """A stream of fixed-size elements in a directory.

    Args:
        directory: the dataset's folder; a writer creates it.
        storage_format: how samples are packed into elements, for example `StreamNumpyFormat`.
        read_interface: the I/O backend for readers; `PosixPreadIO()` when left out.

    Raises:
        TypeError: the storage format lacks a method or its dtype is not stored.
    """

    kind = STREAM
    _methods = ("stream_dtype", "pack", "unpack")
    storage_format: StreamStorageFormat

    def sync_writer(self, *, user: Mapping[str, Any] | None = None) -> StreamWriter:
        """A writer, to be used as a context manager.

        Args:
            user: a JSON object for the header: tokenizer, licence, provenance. It counts when this
                writer creates the dataset; the header of an existing dataset is not changed.

        Raises:
            MissingPackageError: guideloom-write is not installed.
        """
        writer: StreamWriter = _writers().StreamWriter(self, user=user)
        return writer

    def sync_reader(self) -> StreamReader:
        """A reader, to be used as a context manager.

        Raises:
            MissingPackageError: guideloom-read is not installed.
        """
        reader: StreamReader = _readers().StreamReader(self)
        return reader


class StreamWithMetaStorage(Storage):
    """A stream whose spans carry payloads, in a directory.

    Args:
        directory: the dataset's folder; a writer creates it.
        storage_format: how samples are packed into elements, spans and payloads, for example
            `StreamSpansFormat`.
        read_interface: the I/O backend for readers; `PosixPreadIO()` when left out.

    Raises:
        TypeError: the storage format lacks a method or its dtype is not stored.
    """

    kind = STREAM_WITH_META
    _methods = ("stream_dtype", "pack", "unpack")
    storage_format: StreamWithMetaStorageFormat

    def sync_writer(self, *, user: Mapping[str, Any] | None = None) -> StreamWithMetaWriter:
        """A writer, to be used as a context manager; see `StreamStorage.sync_writer`."""
        writer: StreamWithMetaWriter = _writers().StreamWithMetaWriter(self, user=user)
        return writer

    def sync_reader(self) -> StreamWithMetaReader:
        """A reader, to be used as a context manager; see `StreamStorage.sync_reader`."""
        reader: StreamWithMetaReader = _readers().StreamWithMetaReader(self)
        return reader


class DocumentStorage(Storage):
    """Documents of any length in a directory, each kept whole.

    Args:
        directory: the dataset's folder; a writer creates it.
        storage_format: how a document becomes bytes, for example `DocumentJSONFormat`.
        read_interface: the I/O backend for readers; `PosixPreadIO()` when left out.

    Raises:
        TypeError: the storage format lacks a method or its dtype is not stored.
    """

    kind = DOCUMENT
    _methods = ("pack", "unpack")
    storage_format: DocumentStorageFormat

    @staticmethod
    def _element_type(storage_format: Any) -> Any:
        dtype = getattr(storage_format, "document_dtype", None)
        return np.uint8 if dtype is None else dtype

    def sync_writer(self, *, user: Mapping[str, Any] | None = None) -> DocumentWriter:
        """A writer, to be used as a context manager; see `StreamStorage.sync_writer`."""
        writer: DocumentWriter = _writers().DocumentWriter(self, user=user)
        return writer

    def sync_reader(self) -> DocumentReader:
        """A reader, to be used as a context manager; see `StreamStorage.sync_reader`."""
        reader: DocumentReader = _readers().DocumentReader(self)
        return reader


STORAGE_OF_KIND: Mapping[str, type[Storage]] = {
    storage.kind: storage for storage in (StreamStorage, StreamWithMetaStorage, DocumentStorage)
}


def _writers() -> Any:
    return require("guideloom_write", "sync_writer()")


def _readers() -> Any:
    return require("guideloom_read", "sync_reader()")


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

"""Descriptions of datasets: where, which storage format, which I/O backend.

They open the half that is installed: a machine that only writes needs no reader, and the other
way round.
"""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypedDict, Unpack

import numpy as np

from guideloom_format._dtypes import storable_dtype
from guideloom_format._errors import MissingPackageError
from guideloom_format._integers import as_index
from guideloom_format._manifest import MAX_MANIFEST_VERSION
from guideloom_format._parts import DOCUMENT, STREAM, STREAM_WITH_META
from guideloom_format._types import (
    DocumentStorageFormat,
    IOReader,
    StreamStorageFormat,
    StreamWithMetaStorageFormat,
)

if TYPE_CHECKING:
    from guideloom_read import DocumentReader, StreamReader, StreamWithMetaReader
    from guideloom_write import (
        CleanReport,
        Consolidation,
        DocumentWriter,
        StreamWithMetaWriter,
        StreamWriter,
    )


class WriterOptions(TypedDict, total=False):
    """The keyword arguments of `sync_writer`.

    Attributes:
        user: a JSON object for the header: tokenizer, licence, provenance. It counts when this
            writer creates the dataset; the header of an existing dataset is not changed.
        stale_after: seconds without a sign of life after which a shard is taken over from a writer
            on another machine; 3,600 when left out. From one on this machine that runs no more it
            is taken over at once.
        take_over: take over shards whoever owns them: for a job whose earlier run is known to be
            dead. Two writers of a shard never both commit, with or without it.
    """

    user: Mapping[str, Any] | None
    stale_after: float
    take_over: bool


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
        version: of the manifest that readers show; None for all that is committed.
    """

    kind: ClassVar[str]
    _methods: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        directory: str | os.PathLike[str],
        storage_format: Any,
        read_interface: IOReader | None = None,
        *,
        version: int | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.version = _checked(version)
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
        pinned = "" if self.version is None else f", version={self.version}"
        return f"{type(self).__name__}({str(self.directory)!r}, {self.storage_format!r}{pinned})"

    def at_version(self, version: int | None) -> Self:
        """The same storage, pinned to a manifest version, or to none."""
        pinned = copy.copy(self)
        pinned.version = _checked(version)
        return pinned

    def consolidate(self) -> Consolidation:
        """Write all committed parts as the next manifest version, so that opening reads one file.

        Several at once are safe, and so are writers and readers meanwhile. Commit records stay.

        Returns:
            the version that has all parts that were committed when it began; the present one if
            there is nothing new.

        Raises:
            MissingPackageError: guideloom-write is not installed.
            DatasetNotFoundError: there is no dataset.
            MismatchError: it is of another kind, element type or built-in format.
            DatasetError: a record or manifest is damaged.
            WriteError: the operating system refused; the dataset is as it was.
        """
        done: Consolidation = require("guideloom_write", "consolidate()").consolidate(self)
        return done

    def clean(
        self,
        *,
        remove: bool = False,
        older_than: float = 86400.0,
        pinned: Iterable[int] | None = None,
    ) -> CleanReport:
        """List, or remove, what nothing refers to: what killed writers left, and old manifests.

        Args:
            remove: remove it; otherwise it is only listed.
            older_than: seconds since the last change, by the clock of the file system. It must be
                longer than any writer takes between its first append to a part and the commit:
                what is not committed is referred to by nothing. Files of a writer that is seen to
                be alive are kept in any case.
            pinned: manifest versions that training runs still need (`manifest_version` in the
                state of a loader). The others but the newest are removed; when left out, none is.

        Raises:
            MissingPackageError, DatasetNotFoundError, MismatchError, DatasetError, WriteError: see
                `consolidate`. If the dataset is damaged, nothing is removed.
        """
        report: CleanReport = require("guideloom_write", "clean()").clean(
            self, remove=remove, older_than=older_than, pinned=pinned
        )
        return report


class StreamStorage(Storage):
    """A stream of fixed-size elements in a directory.

    Args:
        directory: the dataset's folder; a writer creates it.
        storage_format: how samples are packed into elements, for example `StreamNumpyFormat`.
        read_interface: the I/O backend for readers; `PosixPreadIO()` when left out.
        version: of the manifest that readers show, see `consolidate`; all that is committed when
            left out. A storage that is pinned to a version gives no writer.

    Raises:
        TypeError: the storage format lacks a method or its dtype is not stored.
    """

    kind = STREAM
    _methods = ("stream_dtype", "pack", "unpack")
    storage_format: StreamStorageFormat

    def sync_writer(self, **options: Unpack[WriterOptions]) -> StreamWriter:
        """A writer, to be used as a context manager.

        Args:
            **options: see `WriterOptions`.

        Raises:
            MissingPackageError: guideloom-write is not installed.
            ValueError: the storage is pinned to a version.
        """
        writer: StreamWriter = _writers().StreamWriter(self, **options)
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
        version: of the manifest that readers show, see `consolidate`; all that is committed when
            left out. A storage that is pinned to a version gives no writer.

    Raises:
        TypeError: the storage format lacks a method or its dtype is not stored.
    """

    kind = STREAM_WITH_META
    _methods = ("stream_dtype", "pack", "unpack")
    storage_format: StreamWithMetaStorageFormat

    def sync_writer(self, **options: Unpack[WriterOptions]) -> StreamWithMetaWriter:
        """A writer, to be used as a context manager; see `StreamStorage.sync_writer`."""
        writer: StreamWithMetaWriter = _writers().StreamWithMetaWriter(self, **options)
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
        version: of the manifest that readers show, see `consolidate`; all that is committed when
            left out. A storage that is pinned to a version gives no writer.

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

    def sync_writer(self, **options: Unpack[WriterOptions]) -> DocumentWriter:
        """A writer, to be used as a context manager; see `StreamStorage.sync_writer`."""
        writer: DocumentWriter = _writers().DocumentWriter(self, **options)
        return writer

    def sync_reader(self) -> DocumentReader:
        """A reader, to be used as a context manager; see `StreamStorage.sync_reader`."""
        reader: DocumentReader = _readers().DocumentReader(self)
        return reader


def _checked(version: int | None) -> int | None:
    return None if version is None else as_index("version", version, 0, MAX_MANIFEST_VERSION)


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

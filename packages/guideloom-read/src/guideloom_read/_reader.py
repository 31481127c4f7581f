"""`Reader`: what the readers of all kinds share: opening, closing, what the dataset says of itself.

It shows the dataset as it was when it was opened. All data files of all roles are one list for the
backend, numbered role by role, so that one limit of open files holds for all of them.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from guideloom_format import Header, IOFiles, IOReader, IOSession, PartTable
from guideloom_format._built_in import check_same_format
from guideloom_format._parts import DATA_ROLES
from guideloom_format._storage import Storage, check_backend
from guideloom_read._contents import Contents, read_contents, read_header
from guideloom_read._file_names import FileNames
from guideloom_read.io import PosixPreadIO

MUCH_MEMORY = 1 << 24


@dataclass(frozen=True, slots=True)
class OpenDataset:
    """A dataset as it was when a reader opened it, and the means to read it."""

    directory: str
    session: IOSession
    files: IOFiles
    contents: Contents

    @property
    def table(self) -> PartTable:
        """The parts."""
        return self.contents.table

    def look_at(self, rows: NDArray[np.int64], nbytes: int) -> None:
        """Before much memory is allocated for what rows read, see that their files are there.

        A record can state any size; a backend compares it with the file when it opens it.

        Args:
            rows: of a plan.
            nbytes: how much memory is needed.

        Raises:
            MissingFileError, DamagedFileError: a file is not there, or has another size.
        """
        if nbytes >= MUCH_MEMORY and rows.shape[0]:
            _, first = np.unique(rows[:, 0], return_index=True)
            probes = rows[first].copy()
            probes[:, 2] = 1
            probes[:, 3] = np.arange(first.size)
            self.files.fill(probes, np.empty(first.size, dtype=np.uint8))

    @property
    def announces(self) -> bool:
        """Whether the backend wants to know what will be read soon."""
        return hasattr(self.files, "announce")

    def announce(self, rows: NDArray[np.int64]) -> None:
        """Tell the backend, which `announces`, that these rows will be read soon."""
        files: Any = self.files
        if rows.shape[0]:
            files.announce(rows)

    def close(self) -> None:
        """Give back files and maps."""
        self.files.close()
        self.session.close()


def open_dataset(storage: Storage) -> OpenDataset:
    """Read header and table of parts. Data files are opened when they are first read.

    Raises:
        DatasetNotFoundError, MismatchError, DatasetError: what the reader's `open` says.
    """
    directory = str(storage.directory)
    session = (storage.read_interface or PosixPreadIO()).open(directory)
    try:
        header = read_header(session, directory)
        header.check_opened_as(storage.kind, storage.element_type, directory)
        check_same_format(header, storage.storage_format, directory)
        contents = read_contents(session, directory, header, storage.version)
        roles = DATA_ROLES[storage.kind]
        sizes = np.concatenate([contents.table.nbytes[role] for role in roles])
        files = session.open_files(FileNames(contents.table, *roles), sizes)
    except BaseException:
        session.close()
        raise
    return OpenDataset(directory, session, files, contents)


def with_backend(storage: Any, read_interface: IOReader | None) -> Any:
    """The same storage, read through another backend."""
    check_backend(read_interface)
    other = copy.copy(storage)
    other.read_interface = read_interface
    return other


Opened = TypeVar("Opened", bound=OpenDataset)


class Reader(Generic[Opened]):
    """Opens a dataset; a context manager, or `open()` and `close()`.

    Reads may run in several threads at once. What is returned stays valid after the reader is
    closed.

    Args:
        storage: the description of the dataset.
    """

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self._now: Opened | None = None  # replaced as one: other threads may be reading

    def _prepare(self, dataset: OpenDataset) -> Opened:
        """The dataset with the indexes that this kind of reader needs."""
        raise NotImplementedError

    def open(self) -> Self:
        """Read header and table of parts. Data files are opened when they are first read.

        Raises:
            DatasetNotFoundError: there is no dataset.
            MismatchError: it is of another kind, element type or built-in format.
            DatasetError: it is damaged, or too new.
        """
        if self._now is None:
            dataset = open_dataset(self._storage)
            try:
                self._now = self._prepare(dataset)
            except BaseException:
                dataset.close()
                raise
        return self

    def close(self) -> None:
        """Give back files and maps. What was returned stays valid."""
        now, self._now = self._now, None
        if now is not None:
            now.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the description; the copy is not open."""
        return (type(self), (self._storage,))

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def header(self) -> Header:
        """What the dataset says of itself, with the writer's `user` object."""
        return self._opened().contents.header

    @property
    def fingerprint(self) -> str:
        """SHA-256 over identity and content of all parts, as they were opened."""
        return self._opened().contents.fingerprint

    @property
    def version(self) -> int | None:
        """The manifest version that shows what this reader shows; None if there is none yet.

        A storage with ``version=`` shows it again, also when the dataset has grown.
        """
        return self._opened().contents.version

    def _opened(self) -> Opened:
        if self._now is None:
            raise ValueError("the reader is not open; use it in a with block, or call open() first")
        return self._now

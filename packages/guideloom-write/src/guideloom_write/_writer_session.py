"""`WriterSession`: opening, closing and failing, the same for writers of all kinds.

A session begins with `open`: it has a token that no other has, and notes which shards it owns.
After a step went wrong it is void: nothing that was not committed can be.
"""

from __future__ import annotations

import datetime
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Self

from guideloom_format import (
    GuideLoomError,
    Header,
    PartTable,
    WriteError,
    WriterStateError,
)
from guideloom_format._integers import as_flag
from guideloom_format._storage import Storage
from guideloom_write._dataset import consolidated, open_or_create
from guideloom_write._files import PosixFiles
from guideloom_write._owners import STALE_AFTER, Note, Owners
from guideloom_write._packing import DocumentPacker, ElementPacker, SpanPacker
from guideloom_write._part import ShardPart
from guideloom_write._process import this_process


class WriterSession:
    """The state of a writer; a context manager, or `open()` and `close()`. See `ShardWriter`."""

    _packer_of: ClassVar[type[ElementPacker | SpanPacker | DocumentPacker]]
    _part_of: ClassVar[type[ShardPart]]
    _files_of_part: ClassVar[int]

    def __init__(
        self,
        storage: Storage,
        *,
        user: Mapping[str, Any] | None = None,
        stale_after: float = STALE_AFTER,
        take_over: bool = False,
        files: PosixFiles | None = None,
    ) -> None:
        if storage.version is not None:
            raise ValueError(
                f"{storage!r} is pinned to manifest version {storage.version}; write with a "
                "storage without version="
            )
        if not stale_after >= 0:
            raise ValueError(f"stale_after is {stale_after!r}; expected seconds, 0 or more")
        self._storage = storage
        self._stale_after = stale_after
        self._take_over = as_flag("take_over", take_over)
        self._directory = str(storage.directory)
        self._process = os.getpid()
        self._busy = threading.Lock()
        self._holder: int | None = None  # the thread in a call
        self._manifest: PartTable | None = None
        self._user = user
        self._packer = self._packer_of(storage.storage_format, storage.element_type)
        self._files = files or PosixFiles()
        self._header: Header | None = None
        self._failure: str | None = None
        self._committed: dict[int, tuple[int, int]] = {}
        self._parts: dict[int, ShardPart] = {}
        self._open_parts: OrderedDict[int, None] = OrderedDict()
        self._folders: set[str] = set()  # made durable by this session

    def open(self) -> Self:
        """Find the dataset, or create it.

        Raises:
            MismatchError: it is of another kind or element type.
            DatasetError: its header is damaged or too new.
            WriteError: it cannot be created.
        """
        if self._header is None:
            self._directory = os.path.abspath(self._storage.directory)  # which may change
            self._process = os.getpid()
            self._busy = threading.Lock()
            self._holder = None
            with self._errors_named():
                header = open_or_create(self._files, self._storage, self._directory, self._user)
                self._manifest = consolidated(self._files, self._directory, header)
            self._header = header
            self._token = secrets.token_hex(8)
            now = datetime.datetime.now(datetime.UTC)
            note = Note(self._token, this_process(), now.isoformat(timespec="seconds"))
            self._owner = note.owner
            self._owners = Owners(
                self._files,
                self._directory,
                header.dataset_id,
                note,
                stale_after=self._stale_after,
                take_over=self._take_over,
            )
            self._failure = None
            self._committed.clear()
            self._parts.clear()
            self._open_parts.clear()
            self._folders.clear()
        return self

    def commit(self, task: str | None = None) -> None:
        """Make everything that was appended durable and visible."""
        raise NotImplementedError

    def rollback(self) -> None:
        """Forget everything since the last commit and remove its files.

        In a forked process the files stay: they are the parent's.
        """
        if self._process == os.getpid():
            for part in self._parts.values():
                part.abandon()
        self._parts.clear()
        self._open_parts.clear()

    def close(self) -> None:
        """End without committing; what was not committed is rolled back."""
        self.rollback()
        if self._header is not None:
            self._owners.end(remove=self._process == os.getpid())
        self._header = None

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._header is not None:  # not closed in the block
                self.commit()
        finally:
            self.close()

    def __repr__(self) -> str:
        pending = {shard: part.length for shard, part in sorted(self._parts.items())}
        return f"{type(self).__name__}({self._storage!r}), not committed yet: {pending}"

    @property
    def in_call(self) -> bool:
        """Whether files are being changed, by this thread or another; an interrupt had better wait.

        While `pack` runs, which is the user's code, they are not.
        """
        return self._busy.locked()

    def _usable(self) -> Header:
        if self._failure is not None:
            raise WriterStateError(
                f"this writer failed before ({self._failure}); everything since its last commit is "
                "void. Open a new writer; its length(shard) says where to go on"
            )
        if self._process != os.getpid():
            raise WriterStateError(
                f"the writer belongs to process {self._process}, this is process {os.getpid()}; "
                "open a writer, for other shards, in each process"
            )
        if self._header is None:
            raise WriterStateError(
                "the writer is not open; use it in a with block, or call open() first"
            )
        return self._header

    def _fail(self, error: BaseException) -> NoReturn:
        """After a step went wrong the writer is void: roll back and raise the named error."""
        self._failure = f"{type(error).__name__}: {error}"
        self.rollback()
        self._owners.end()
        self._raise_named(error)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """One call at a time."""
        if not self._busy.acquire(blocking=False):
            self._refuse_call()
        try:
            self._holder = threading.get_ident()
            yield
        finally:
            self._holder = None
            self._busy.release()

    def _refuse_call(self) -> NoReturn:
        """Another call holds the writer: of another thread, or one that an interrupt cut off."""
        if self._holder == threading.get_ident():
            self._fail(WriterStateError("an earlier call of this writer was interrupted"))
        raise WriterStateError(
            "another thread is in a call of this writer, or an interrupt cut a call off; let one "
            "thread use a writer at a time, or open one for each thread, for other shards"
        )

    def _raise_named(self, error: BaseException) -> NoReturn:
        if not isinstance(error, OSError) or isinstance(error, GuideLoomError):
            raise error
        what = f"{self._directory}: {error.strerror or error} (errno {error.errno}), file "
        if self._header is None:
            named = WriteError(f"{what}{error.filename}. The dataset was not opened")
        else:
            named = WriteError(
                f"{what}{error.filename or 'of the part being written'}. What was not committed "
                "is void; a new writer goes on from length(shard)"
            )
        named.errno = error.errno
        raise named from error

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._raise_named(error)

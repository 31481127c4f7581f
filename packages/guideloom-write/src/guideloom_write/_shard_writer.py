"""`ShardWriter`: append to shards, commit, go on after a restart; the same for all kinds of data.

The way of an append: the storage format packs the data and the result is checked (nothing is
touched yet), then the shard's part takes the bytes. `commit` publishes the parts one after the
other. What differs between kinds is how data is packed and which files a part has.
"""

from __future__ import annotations

import datetime
import os
import resource
import secrets
import socket
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Self

from guideloom_format import (
    GuideLoomError,
    Header,
    Owner,
    PartTable,
    WriteError,
    WriterStateError,
    _names,
)
from guideloom_format._integers import as_index
from guideloom_format._storage import Storage
from guideloom_write._dataset import committed, consolidated, open_or_create
from guideloom_write._files import PosixFiles
from guideloom_write._packing import DocumentPacker, ElementPacker, SpanPacker
from guideloom_write._part import ShardPart

MOST_OPEN_PARTS = 128


def most_open_parts(files: int = 2) -> int:
    """Parts whose files may be open at once: for at most a quarter of the process's limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST_OPEN_PARTS if soft == resource.RLIM_INFINITY else soft // (4 * files)
    return max(1, min(MOST_OPEN_PARTS, allowed))


class ShardWriter:
    """What the writers of all kinds share; a context manager, or `open()` and `close()`.

    Each shard must have one writer at a time; writers of different shards share nothing. What was
    appended becomes visible by `commit`, or by leaving the ``with`` block; an exception rolls back
    to the last commit. One thread uses a writer at a time.

    Memory is bounded: 256 KiB for each data file (a stream has one, documents two, a stream with
    metadata three) of each shard appended to since the last commit.

    Args:
        storage: the description of the dataset, which `open` creates if there is none.
        user: a JSON object for the header of a new dataset.
        files: file operations; for tests.
    """

    _packer_of: ClassVar[type[ElementPacker | SpanPacker | DocumentPacker]]
    _part_of: ClassVar[type[ShardPart]]
    _files_of_part: ClassVar[int]

    def __init__(
        self,
        storage: Storage,
        *,
        user: Mapping[str, Any] | None = None,
        files: PosixFiles | None = None,
    ) -> None:
        self._storage = storage
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
            self._owner = Owner(
                socket.gethostname(), os.getpid(), now.isoformat(timespec="seconds")
            )
            self._failure = None
            self._committed.clear()
            self._parts.clear()
            self._open_parts.clear()
        return self

    def append(self, shard: int, data: Any) -> None:
        """Encode `data` and append it to a shard.

        The caller may reuse its buffers afterwards, and must not change them meanwhile.

        Raises:
            DataError, TypeError: the storage format cannot hold the data. Nothing was appended;
                the writer goes on.
            WriteError: the operating system refused. Everything since the last commit is void and
                the writer takes no more calls.
            WriterStateError: the writer is closed, or failed before.
        """
        header = self._usable()
        packed = self._packer.pack(data)
        if self._header is not header:  # pack is the user's code
            self._usable()
        self._put(header, shard, "append", packed)

    def _put(self, header: Header, shard: int, method: str, packed: Any) -> None:
        """Give what was packed to the shard's part, by its `append` or another method."""
        if type(shard) is not int:
            shard = as_index("shard", shard, 0, _names.MAX_SHARD)
        if not self._busy.acquire(blocking=False):
            self._refuse_call()
        try:
            self._holder = threading.get_ident()
            part = self._parts.get(shard)
            if part is None or shard not in self._open_parts:
                part = self._part(as_index("shard", shard, 0, _names.MAX_SHARD), header)
            try:
                getattr(part, method)(packed)
            except BaseException as error:  # noqa: BLE001  # an interrupt leaves a hole, too
                self._fail(error)
        finally:
            self._holder = None
            self._busy.release()

    def length(self, shard: int) -> int:
        """Elements or documents in a shard, committed or appended by this writer.

        This is where a restart goes on.

        Raises:
            DatasetError: a commit record of the shard is damaged.
            WriterStateError: the writer is closed, or failed before.
        """
        header = self._usable()
        shard = as_index("shard", shard, 0, _names.MAX_SHARD)
        part = self._parts.get(shard)
        return self._of_shard(shard, header)[1] + (part.length if part is not None else 0)

    def commit(self) -> None:
        """Make everything that was appended durable and visible, shard after shard.

        Raises:
            ShardConflictError: another writer committed to one of the shards.
            WriteError: the operating system refused. Shards before this one are committed, the
                others are void, and the writer takes no more calls.
            WriterStateError: the writer is closed, or failed before.
        """
        self._usable()
        if not self._busy.acquire(blocking=False):
            self._refuse_call()
        try:
            self._holder = threading.get_ident()
            for shard in sorted(self._parts):
                self._commit_shard(shard, self._parts[shard])
        finally:
            self._holder = None
            self._busy.release()

    def _commit_shard(self, shard: int, part: ShardPart) -> None:
        try:
            if not part.empty:
                part.publish(self._owner)
                parts, length = self._committed[shard]
                self._committed[shard] = (parts + 1, length + part.length)
            else:
                part.abandon()
            del self._parts[shard]
            self._open_parts.pop(shard, None)
        except BaseException as error:  # noqa: BLE001  # an interrupt leaves doubt, too
            self._fail(error)

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

    def _of_shard(self, shard: int, header: Header) -> tuple[int, int]:
        """(parts, elements) committed to the shard, as this writer knows it."""
        if shard not in self._committed:
            with self._errors_named():
                self._committed[shard] = committed(
                    self._files, self._directory, header, self._manifest, shard
                )
        return self._committed[shard]

    def _part(self, shard: int, header: Header) -> ShardPart:
        """The shard's part, with open files; the part used longest ago gives its back."""
        try:
            while len(self._open_parts) >= most_open_parts(self._files_of_part):
                oldest, _ = self._open_parts.popitem(last=False)
                self._parts[oldest].release()
            if shard not in self._parts:
                parts, _ = self._of_shard(shard, header)
                self._parts[shard] = self._part_of(
                    self._files, self._directory, header, shard, parts, self._token
                )
        except BaseException as error:  # noqa: BLE001  # an interrupt leaves a hole, too
            self._fail(error)
        self._open_parts[shard] = None
        return self._parts[shard]

    def _fail(self, error: BaseException) -> NoReturn:
        """After a step went wrong the writer is void: roll back and raise the named error."""
        self._failure = f"{type(error).__name__}: {error}"
        self.rollback()
        self._raise_named(error)

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

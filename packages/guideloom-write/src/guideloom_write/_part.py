"""One part: its files under names that nobody else can pick, and their publication.

::

    write data/…-token.elements, .elements.crc     invisible: no record names them
    check sizes, sync files, sync their folder
    write commits/….json.token.tmp, sync
    link it to commits/SSSSSSS-PPPP.json           the commit: exclusive, atomic
    sync commits/, remove the other name

A part that met an error is void: its files are removed if possible and never used again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Protocol, TypeVar

from guideloom_format import (
    CommitRecord,
    DamagedFileError,
    FileFacts,
    FileIdentity,
    Header,
    Owner,
    Part,
    PartTable,
    ShardConflictError,
    WriteError,
    WriterStateError,
    _names,
)
from guideloom_format._parts import DOCUMENT
from guideloom_format._record import MAX_RECORD_BYTES
from guideloom_write._files import PosixFiles
from guideloom_write._publish import durable_file, link_exclusively

File = TypeVar("File", bound="DataFile")


class DataFile(Protocol):
    """A file of a part with the one of its checksums: `CheckedFile` or `IntegerFile`."""

    @property
    def nbytes(self) -> int:
        """Bytes appended so far."""

    def finish(self) -> dict[str, FileFacts]:
        """Make durable and close: the facts of both files by role."""

    def release(self) -> None:
        """Give back the descriptors for a while."""

    def abandon(self) -> None:
        """Close and remove both files."""


class ShardPart:
    """The part that a writer is about to commit to one shard; a subclass knows its kind.

    The folder that its files go to is there.

    Attributes:
        length: elements or documents appended.
    """

    def __init__(
        self, files: PosixFiles, directory: str, header: Header, shard: int, part: int, token: str
    ) -> None:
        self._files = files
        self._directory = directory
        self._header = header
        self.shard = shard
        self.part = part
        self._token = token
        self.length = 0
        self._perhaps_committed = False
        self._stem = _names.part_stem(shard, part, token)
        self._folder = os.path.join(directory, _names.DATA, _names.part_folder(shard))
        self._data: list[DataFile] = []
        try:
            self._create_files()
        except BaseException:
            self.abandon()
            raise

    def _create_files(self) -> None:
        """Make the data files with `_create`."""
        raise NotImplementedError

    def _create(self, make: Callable[[PosixFiles, str, FileIdentity], File], role: str) -> File:
        file = make(
            self._files,
            os.path.join(self._directory, _names.data_name(self._stem, role)),
            FileIdentity(self._header.dataset_id, self.shard, self.part, self._token, role),
        )
        self._data.append(file)
        return file

    @property
    def empty(self) -> bool:
        """Whether nothing was appended that a reader could find."""
        return self.length == 0 and not self.nbytes

    @property
    def nbytes(self) -> int:
        """Bytes given to the data files, without those of checksums."""
        return sum(file.nbytes for file in self._data)

    def _check_unpublished(self) -> None:
        """To be called before data is appended: never to a part that may be published."""
        if self._perhaps_committed:
            raise WriterStateError(
                f"part {self.part} of shard {self.shard} was published; open a new writer"
            )

    def release(self) -> None:
        """Give back the descriptors for a while."""
        for file in self._data:
            file.release()

    def abandon(self) -> None:
        """Remove the files, unless a record may name them.

        What cannot be removed stays as garbage that no record names.
        """
        if self._perhaps_committed:
            return
        for file in self._data:
            with contextlib.suppress(OSError):
                file.abandon()

    def prepare(self, owner: Owner, *, finished: bool = False, task: str | None = None) -> bytes:
        """Make the data durable; the commit record whose publication makes it visible.

        Args:
            owner: who wrote it.
            finished: whether the shard is complete with this part.
            task: what the shard was made from, for the record of a finished shard.

        Raises:
            WriteError, OSError: a step failed; the part is void.
        """
        self._check_counts()
        facts: dict[str, FileFacts] = {}
        for file in self._data:
            facts |= file.finish()
        part = Part(self.shard, self.part, self._token, self.length, self._stem, facts)
        self._check_sizes(part)
        self._files.sync_folder(self._folder)
        return CommitRecord(self._header.dataset_id, part, owner, finished, task).encode()

    def keep(self) -> None:
        """Leave the files to whoever publishes the record."""
        self._perhaps_committed = True

    def publish(self, owner: Owner, *, finished: bool = False, task: str | None = None) -> None:
        """Make the part durable, then visible; the arguments are those of `prepare`.

        Raises:
            ShardConflictError: another writer has committed this part.
            WriteError, OSError: a step failed. The part is void, or, if only the last sync of the
                folder failed, committed but perhaps not durable.
        """
        record = self.prepare(owner, finished=finished, task=task)
        commits = os.path.join(self._directory, _names.COMMITS)
        target = os.path.join(commits, _names.commit_name(self.shard, self.part))
        temporary = _names.temporary_name(target, self._token)
        with durable_file(self._files, temporary, record):
            self._perhaps_committed = True
            link_exclusively(self._files, temporary, target)
        winner = self._winner(target, record)
        if winner is not None:
            self._perhaps_committed = False
            what = "documents" if self._header.kind == DOCUMENT else "elements"
            raise ShardConflictError(
                f"shard {self.shard}, part {self.part} was committed by another writer: {winner}. "
                f"{self.length} {what} of this writer were not committed. Give each shard to one "
                "writer; a new writer goes on behind what is committed, see length()"
            )
        self._files.sync_folder(commits)

    def _winner(self, target: str, record: bytes) -> Owner | None:
        """The owner of the record that stands there, or None if it is our own."""
        try:
            found = self._files.read(target, MAX_RECORD_BYTES)
        except FileNotFoundError as error:
            raise WriteError(
                f"{target} is not there after it was published; the file system lost it"
            ) from error
        if found == record:
            return None
        return CommitRecord.decode(
            found,
            dataset_id=self._header.dataset_id,
            kind=self._header.kind,
            shard=self.shard,
            part=self.part,
        ).owner

    def _counts(self) -> list[tuple[DataFile, int]]:
        """Each file with the bytes that were given to it, as the part counted them itself."""
        raise NotImplementedError

    def _check_counts(self) -> None:
        """An append that was cut off leaves bytes in one file and not in another."""
        for file, counted in self._counts():
            if file.nbytes != counted:
                raise WriteError(
                    f"shard {self.shard}, part {self.part}: {file.nbytes} bytes went to a file of "
                    f"the part, {counted} were counted; an append was cut off, or several threads "
                    "used the writer at once. Nothing of the part is committed"
                )

    def _check_sizes(self, part: Part) -> None:
        """What readers check when they open the dataset must hold before it is committed."""
        header = self._header
        where = f"the part to be committed to {self._directory}"
        table = PartTable.from_parts([part], list(part.files))
        try:
            table.check_sizes(header.kind, header.element_type.itemsize, where)
        except DamagedFileError as error:
            raise WriteError(
                f"{error}. The writer was used by several threads at once; nothing of the part is "
                "committed"
            ) from error

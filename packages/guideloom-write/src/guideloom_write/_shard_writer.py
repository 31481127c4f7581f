"""`ShardWriter`: append to shards, commit, go on after a restart; the same for all kinds of data.

The way of an append: the storage format packs the data and the result is checked (nothing is
touched yet), then the shard's part takes the bytes. `commit` publishes the parts one after the
other. What differs between kinds is how data is packed and which files a part has.
"""

from __future__ import annotations

import resource
from typing import Any

from guideloom_format import CommitRecord, Header, ShardConflictError, _names
from guideloom_format._integers import as_index, shown
from guideloom_format._members import MAX_TEXT
from guideloom_write._dataset import committed, make_part_folder, read_record
from guideloom_write._part import ShardPart
from guideloom_write._writer_session import WriterSession

MOST_OPEN_PARTS = 128


def most_open_parts(files: int = 2) -> int:
    """Parts whose files may be open at once: for at most a quarter of the process's limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST_OPEN_PARTS if soft == resource.RLIM_INFINITY else soft // (4 * files)
    return max(1, min(MOST_OPEN_PARTS, allowed))


def _check_task(task: object) -> None:
    if task is not None and not (isinstance(task, str) and len(task) <= MAX_TEXT):
        raise ValueError(f"task is {shown(task)}; expected a str of at most {MAX_TEXT} characters")


class ShardWriter(WriterSession):
    """What the writers of all kinds share; a context manager, or `open()` and `close()`.

    Each shard must have one writer at a time; writers of different shards share nothing. What was
    appended becomes visible by `commit`, or by leaving the ``with`` block; an exception rolls back
    to the last commit. One thread uses a writer at a time.

    Memory is bounded: 256 KiB for each data file (a stream has one, documents two, a stream with
    metadata three) of each shard appended to since the last commit.

    Args:
        storage: the description of the dataset, which `open` creates if there is none.
        user: a JSON object for the header of a new dataset.
        stale_after: seconds without a sign of life after which a shard is taken over from a writer
            on another machine. One on this machine that runs no more is taken over at once.
        take_over: take over shards whoever owns them: for a job whose earlier run is known to be
            dead. Two writers of a shard never both commit, with or without it.
        files: file operations; for tests.
    """

    def append(self, shard: int, data: Any) -> None:
        """Encode `data` and append it to a shard.

        The caller may reuse its buffers afterwards, and must not change them meanwhile.

        Raises:
            DataError, TypeError: the storage format cannot hold the data. Nothing was appended;
                the writer goes on.
            ShardConflictError: another writer owns the shard. Nothing was appended; the writer
                goes on.
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
        with self._held():
            part = self._parts.get(shard)
            if part is None or shard not in self._open_parts:
                part = self._part(as_index("shard", shard, 0, _names.MAX_SHARD), header)
            try:
                getattr(part, method)(packed)
            except BaseException as error:  # noqa: BLE001  # an interrupt leaves a hole, too
                self._fail(error)
            self._owners.refresh()

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

    def commit(self, task: str | None = None) -> None:
        """Make everything that was appended durable and visible, shard after shard.

        Args:
            task: what it was made from, for a job that is run again; see `finish`.

        Raises:
            ShardConflictError: another writer committed to one of the shards.
            WriteError: the operating system refused. Shards before this one are committed, the
                others are void, and the writer takes no more calls.
            WriterStateError: the writer is closed, or failed before.
        """
        self._usable()
        _check_task(task)
        with self._held():
            for shard in sorted(self._parts):
                self._commit_shard(shard, self._parts[shard], task=task)
            self._owners.refresh()

    def finish(self, shard: int, task: str | None = None) -> None:
        """Commit a shard and mark it as complete, in one step; others stay as they are.

        The mark is for the job itself, which may be run again: see `finished`. Readers ignore it,
        and a writer that appends to the shard all the same takes it back with its next commit.
        A shard without data gets an empty part. The shard is given up: another writer may own it.

        Args:
            shard: which one.
            task: what it was made from, at most 1,024 characters; kept in the commit record.

        Raises:
            ShardConflictError, WriteError, WriterStateError: see `append` and `commit`.
        """
        header = self._usable()
        shard = as_index("shard", shard, 0, _names.MAX_SHARD)
        _check_task(task)
        with self._held():
            self._commit_shard(shard, self._part(shard, header), finished=True, task=task)
            self._owners.release(shard)

    def finished(self, shard: int) -> bool:
        """Whether the last part committed to a shard came from `finish`.

        Raises:
            DatasetError: a commit record of the shard is damaged.
            WriterStateError: the writer is closed, or failed before.
        """
        record = self.last_record(shard)
        return record is not None and record.finished

    def last_record(self, shard: int) -> CommitRecord | None:
        """The commit record of the last part of a shard; None if there is none, see `finished`."""
        header = self._usable()
        shard = as_index("shard", shard, 0, _names.MAX_SHARD)
        parts, _ = self._of_shard(shard, header)
        if not parts:
            return None
        with self._errors_named():
            return read_record(self._files, self._directory, header, shard, parts - 1)

    def pending_bytes(self, shard: int) -> int:
        """Bytes given to a shard's data files since the last commit, without their checksums."""
        self._usable()
        part = self._parts.get(as_index("shard", shard, 0, _names.MAX_SHARD))
        return 0 if part is None else part.nbytes

    def prepare(self, shard: int) -> bytes | None:
        """Make what was appended to a shard durable, and do not publish it.

        For jobs that publish many shards together: what is visible then is what was published of
        the records. The writer forgets the shard, and does not remove its files.

        Returns:
            the commit record, marked as finished; None if nothing was appended.

        Raises:
            ShardConflictError, WriteError, WriterStateError: see `append` and `commit`.
        """
        self._usable()
        shard = as_index("shard", shard, 0, _names.MAX_SHARD)
        with self._held():
            part = self._parts.get(shard)
            if part is None:
                return None
            try:
                record = part.prepare(self._owner, finished=True)
                part.keep()
            except BaseException as error:  # noqa: BLE001  # an interrupt leaves doubt, too
                self._fail(error)
            self._forget(shard)
            self._owners.release(shard)
            return record

    def _commit_shard(
        self, shard: int, part: ShardPart, *, finished: bool = False, task: str | None = None
    ) -> None:
        try:
            if finished or not part.empty:
                part.publish(self._owner, finished=finished, task=task)
                parts, length = self._committed[shard]
                self._committed[shard] = (parts + 1, length + part.length)
            else:
                part.abandon()
            self._forget(shard)
        except BaseException as error:  # noqa: BLE001  # an interrupt leaves doubt, too
            self._fail(error)

    def _forget(self, shard: int) -> None:
        del self._parts[shard]
        self._open_parts.pop(shard, None)

    def _of_shard(self, shard: int, header: Header) -> tuple[int, int]:
        """(parts, elements) committed to the shard, as this writer knows it."""
        if shard not in self._committed:
            with self._errors_named():
                self._committed[shard] = committed(
                    self._files, self._directory, header, self._manifest, shard
                )
        return self._committed[shard]

    def _check_behind(self, shard: int, header: Header) -> None:
        """Whether somebody has committed since this writer looked; before work is done in vain."""
        if shard in self._committed:
            parts, _ = self._committed[shard]
            record = read_record(self._files, self._directory, header, shard, parts)
            if record is not None:
                self._owners.release(shard)
                raise ShardConflictError(
                    f"shard {shard}, part {parts} was committed by another writer: {record.owner}, "
                    "after this one had asked for the shard's length. Nothing was appended; a new "
                    "writer goes on behind what is committed, see length()"
                )

    def _part(self, shard: int, header: Header) -> ShardPart:
        """The shard's part, with open files; the part used longest ago gives its back."""
        try:
            if self._owners.claim(shard):
                self._check_behind(shard, header)
        except ShardConflictError:
            raise  # nothing has happened
        except BaseException as error:  # noqa: BLE001
            self._fail(error)
        try:
            while len(self._open_parts) >= most_open_parts(self._files_of_part):
                oldest, _ = self._open_parts.popitem(last=False)
                self._parts[oldest].release()
            folder = _names.part_folder(shard)
            if folder not in self._folders:
                make_part_folder(self._files, self._directory, shard)
                self._folders.add(folder)
            if shard not in self._parts:
                parts, _ = self._of_shard(shard, header)
                self._parts[shard] = self._part_of(
                    self._files, self._directory, header, shard, parts, self._token
                )
        except BaseException as error:  # noqa: BLE001  # an interrupt leaves a hole, too
            self._fail(error)
        self._open_parts[shard] = None
        return self._parts[shard]

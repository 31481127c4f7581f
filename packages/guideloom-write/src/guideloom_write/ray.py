"""`GuideLoomDatasink`: a Ray dataset becomes shards, one for each write task.

::

    driver   on_write_start       find or create the dataset; which shard is the first
    tasks    write                append the rows, make the part durable, return its record
    driver   on_write_complete    decide the job, publish all records, consolidate

Only the records that Ray hands to the driver are published, one for each task. So a task that is
run again, for whatever reason, leaves no duplicate; its first part stays garbage that no record
names. What a killed driver leaves is described in `guideloom_write._job`.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guideloom_format import (
    DataError,
    DatasetNotFoundError,
    DocumentStorage,
    MismatchError,
    MissingPackageError,
    StreamSpansFormat,
    StreamStorage,
    StreamWithMetaStorage,
    WriterStateError,
    _names,
)
from guideloom_format._header import Header
from guideloom_format._integers import as_index
from guideloom_format._parts import DOCUMENT
from guideloom_format._storage import Storage
from guideloom_write._dataset import consolidated, errors_named, open_existing, open_or_create
from guideloom_write._files import PosixFiles
from guideloom_write._job import (
    RunningNote,
    check_job_name,
    finish_job,
    read_job,
    running_since,
)
from guideloom_write._owners import REFRESH_AFTER
from guideloom_write._writers import DocumentWriter

try:
    from ray.data import Datasink
    from ray.data.block import Block, BlockAccessor
except ImportError as _error:
    raise MissingPackageError(
        f"guideloom_write.ray needs Ray Data, which cannot be imported ({_error}). Install it "
        'with: pip install "guideloom-write[ray]"'
    ) from _error

__all__ = ["GuideLoomDatasink"]

AnyStorage = StreamStorage | StreamWithMetaStorage | DocumentStorage
_logger = logging.getLogger("guideloom_write")


@dataclass(frozen=True, slots=True)
class _Run:
    """What the tasks of one run must know."""

    dataset_id: str
    first_shard: int
    decided: bool


class GuideLoomDatasink(Datasink[bytes]):
    """Writes the rows of a Ray dataset to shards, each exactly once.

    ::

        dataset.write_datasink(GuideLoomDatasink(storage, job="books"))

    Write task k of the job writes shard ``first_shard + k``. All shards become visible when the
    last task is done. If the job is killed, run the same command again: it begins anew, or, if all
    tasks were done, publishes what they wrote. A job that is complete writes nothing when it is
    run again.

    Every node must see the dataset's directory on one file system.

    Args:
        storage: the description of the dataset, which is created if there is none.
        job: a name for this job, unique within the dataset: letters, digits, ``.``, ``_``, ``-``.
        first_shard: the shard of the first task; behind the last committed shard when left out.
            Jobs that run at the same time need shards of their own. A shard that has data gets
            another part.
        to_data: from a row (a dictionary) to what the storage format packs. When left out: the
            row; for documents its column ``document`` if it has one; for `StreamSpansFormat` the
            columns ``run_lengths`` and ``payloads`` and the elements, in a column for each field
            or in the column ``elements``.
        user: a JSON object for the header of a new dataset.

    Raises:
        TypeError, ValueError: an argument that cannot be, named.
    """

    def __init__(
        self,
        storage: AnyStorage,
        *,
        job: str,
        first_shard: int | None = None,
        to_data: Callable[[dict[str, Any]], Any] | None = None,
        user: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(storage, Storage):
            raise TypeError(f"storage is {type(storage).__name__}; expected a GuideLoom storage")
        if to_data is not None and not callable(to_data):
            raise TypeError(f"to_data is {type(to_data).__name__}; expected a function of a row")
        storage.sync_writer(user=user)  # refuses what cannot be written to
        self._directory = os.path.abspath(storage.directory)  # tasks run in other folders
        self._storage = copy.copy(storage)
        self._storage.directory = Path(self._directory)
        self._job = check_job_name(job)
        self._first_shard = (
            None
            if first_shard is None
            else as_index("first_shard", first_shard, 0, _names.MAX_SHARD)
        )
        self._to_data = to_data or _conversion(storage)
        self._user = user
        self._run: _Run | None = None

    def __repr__(self) -> str:
        return f"GuideLoomDatasink({self._storage!r}, job={self._job!r})"

    def finish_earlier_run(self) -> bool:
        """Complete what an earlier run of the job has decided, without running the dataset.

        ::

            if not sink.finish_earlier_run():
                dataset.write_datasink(sink)

        Returns:
            whether the job is complete now. If not, nothing was done.

        Raises:
            ShardConflictError, WriteError, DatasetError: see `on_write_complete`.
        """
        files = PosixFiles()
        with self._errors_named():
            try:
                header = open_existing(files, self._storage, self._directory)
            except DatasetNotFoundError:
                return False
            if read_job(files, self._directory, header, self._job) is None:
                return False
        self._finish(files, header, [])
        return True

    def on_write_start(self, schema: Any = None) -> None:
        """On the driver, before the tasks: find or create the dataset, and choose the shards.

        Raises:
            MismatchError, DatasetError, WriteError: see the writer's `open`.
        """
        del schema  # rows are checked when they are packed
        files = PosixFiles()
        with self._errors_named():
            header = open_or_create(files, self._storage, self._directory, self._user)
            decided = read_job(files, self._directory, header, self._job) is not None
            first = self._first_shard
            if first is None:
                first = _behind_last_shard(files, self._directory, header)
            if decided:
                _logger.info(
                    "job %s: an earlier run of it has written everything; the tasks write nothing",
                    self._job,
                )
            else:
                self._begin(files)
        self._run = _Run(header.dataset_id, first, decided)

    def write(self, blocks: Iterable[Block], ctx: Any) -> bytes:
        """In a task: write the rows to the task's shard, durable and invisible.

        Returns:
            the part's commit record; nothing if there are no rows, or the job is decided.

        Raises:
            DataError, WriteError: see the writer's `append`. What `to_data` raises arrives as it
                is, with a note that says where.
            DatasetNotFoundError, MismatchError: this node sees another file system.
        """
        run = self._run
        if run is None:
            raise WriterStateError(
                "a write task began before on_write_start was called; use the datasink with "
                "dataset.write_datasink"
            )
        if run.decided:
            return b""
        files = PosixFiles()
        self._check_file_system(files, run)
        note = RunningNote(files, self._directory, self._job)
        shard = run.first_shard + int(ctx.task_idx)
        rows = _Rows(blocks, self._to_data, note)
        writer = self._storage.sync_writer(take_over=True).open()  # from an attempt that died
        try:
            before = writer.length(shard)
            if isinstance(writer, DocumentWriter):
                writer.extend(shard, rows)
            else:
                for data in rows:
                    writer.append(shard, data)
            if writer.length(shard) == before and not writer.pending_bytes(shard):
                return b""
            record = writer.prepare(shard) or b""
        except Exception as error:
            error.add_note(
                f"at row {rows.number} of write task {ctx.task_idx} of job {self._job!r}, which "
                f"writes shard {shard}"
            )
            raise
        finally:
            writer.close()
        note.sign_of_life()
        return record

    def on_write_complete(self, write_result: Any) -> None:
        """On the driver, after all tasks: publish what they wrote, and consolidate.

        Raises:
            ShardConflictError: another writer has committed to one of the shards. Before the
                decision nothing was published; after it, all other shards were.
            WriteError: a step failed; run the same command again.
            DatasetError: a file that is there is damaged.
        """
        if self._run is None:  # Ray calls it with the first block, and there was none
            self.on_write_start()
        files = PosixFiles()
        with self._errors_named():
            header = open_existing(files, self._storage, self._directory)
        self._finish(files, header, [record for record in write_result.write_returns if record])

    def on_write_failed(self, error: Exception) -> None:
        """On the driver: of a job that is not decided, nothing is visible."""
        _logger.warning(
            "job %s did not complete (%s); run the same command again",
            self._job,
            type(error).__name__,
        )
        RunningNote(PosixFiles(), self._directory, self._job).end()

    def _finish(self, files: PosixFiles, header: Header, records: list[bytes]) -> None:
        job = finish_job(files, self._directory, header, self._job, records)
        done = self._storage.consolidate()
        RunningNote(files, self._directory, self._job).end()
        self._run = None
        _logger.info(
            "job %s: %d shards are published, the dataset is at version %d",
            self._job,
            len(job.records),
            done.version,
        )

    def _begin(self, files: PosixFiles) -> None:
        others = {name for name, _, _ in running_since(files, self._directory)}
        if self._job in others:
            _logger.info(
                "job %s: an earlier run of it did not end; all is written anew. If that one still "
                "runs, the first of both to end counts",
                self._job,
            )
        others.discard(self._job)
        if others and self._first_shard is None:
            _logger.warning(
                "job %s: other jobs run or did not end (%s); jobs that run at the same time need "
                "shards of their own, see first_shard",
                self._job,
                ", ".join(sorted(others)),
            )
        RunningNote(files, self._directory, self._job).begin()

    def _check_file_system(self, files: PosixFiles, run: _Run) -> None:
        all_nodes = "all nodes of the cluster must see it on one file system, under one path"
        with self._errors_named():
            try:
                header = open_existing(files, self._storage, self._directory)
            except DatasetNotFoundError as error:
                raise DatasetNotFoundError(
                    f"{self._directory} is not the dataset here that it is on the driver: nothing "
                    f"is there; {all_nodes}"
                ) from error
        if header.dataset_id != run.dataset_id:
            raise MismatchError(
                f"{self._directory} is the dataset {header.dataset_id} here and {run.dataset_id} "
                f"on the driver; {all_nodes}"
            )

    def _errors_named(self) -> contextlib.AbstractContextManager[None]:
        return errors_named(f"{self._directory}: job {self._job!r}")


class _Rows:
    """The rows of blocks as the storage format takes them, and the number of the present one."""

    def __init__(
        self, blocks: Iterable[Block], to_data: Callable[[dict[str, Any]], Any], note: RunningNote
    ) -> None:
        self.number = -1
        self._blocks = blocks
        self._to_data = to_data
        self._note = note

    def __iter__(self) -> Iterator[Any]:
        signed = time.monotonic()
        row: dict[str, Any]
        for block in self._blocks:
            for row in BlockAccessor.for_block(block).iter_rows(public_row_format=True):
                self.number += 1
                yield self._to_data(row)
                if time.monotonic() - signed >= REFRESH_AFTER:
                    signed = time.monotonic()
                    self._note.sign_of_life()


def _conversion(storage: AnyStorage) -> Callable[[dict[str, Any]], Any]:
    """What `to_data` is when it was left out."""
    if storage.kind == DOCUMENT:
        return _document
    form = storage.storage_format
    if isinstance(form, StreamSpansFormat):
        return _spans if form.stream_format is None else _named_spans
    return _row


def _row(row: dict[str, Any]) -> Any:
    return row


def _document(row: dict[str, Any]) -> Any:
    return row.get("document", row)


def _spans(row: dict[str, Any]) -> Any:
    elements, lengths, payloads = _named_spans(row)
    if "elements" not in elements:
        raise _missing(row, "elements")
    return elements["elements"], lengths, payloads


def _named_spans(row: dict[str, Any]) -> tuple[dict[str, Any], Any, Any]:
    elements = dict(row)
    try:
        return elements, elements.pop("run_lengths"), elements.pop("payloads")
    except KeyError as error:
        raise _missing(row, error.args[0]) from None


def _missing(row: dict[str, Any], column: str) -> DataError:
    return DataError(
        f"a row has the columns {sorted(row)}, not {column!r}; give it that, or give to_data, a "
        "function from a row to (elements, run_lengths, payloads)"
    )


def _behind_last_shard(files: PosixFiles, directory: str, header: Header) -> int:
    table = consolidated(files, directory, header)
    shards = [] if table is None or not len(table) else [int(table.shard[-1])]
    for name in files.list_names(os.path.join(directory, _names.COMMITS)):
        place = _names.parse_commit_name(name)
        if place is not None:
            shards.append(place[0])
    return max(shards, default=-1) + 1

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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guideloom_format import (
    DatasetNotFoundError,
    DocumentStorage,
    MismatchError,
    MissingPackageError,
    StreamStorage,
    StreamWithMetaStorage,
    WriteError,
    WriterStateError,
    _names,
)
from guideloom_format._header import Header
from guideloom_format._integers import as_index
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
from guideloom_write._writers import DocumentWriter

try:
    from ray.data import Datasink
    from ray.data.block import Block

    from guideloom_write._ray_rows import Rows, conversion
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


@dataclass(frozen=True, slots=True)
class _Written:
    """What a task did.

    Attributes:
        task: its number.
        record: the commit record of its part; nothing if it had no rows, or the job is decided.
    """

    task: int
    record: bytes


class GuideLoomDatasink(Datasink[_Written]):
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
        self._to_data = to_data or conversion(storage)
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

    def write(self, blocks: Iterable[Block], ctx: Any) -> _Written:
        """In a task: write the rows to the task's shard, durable and invisible.

        Returns:
            what `on_write_complete` must know of the task.

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
        task = int(ctx.task_idx)
        if run.decided:
            return _Written(task, b"")
        files = PosixFiles()
        self._check_file_system(files, run)
        note = RunningNote(files, self._directory, self._job)
        shard = run.first_shard + task
        rows = Rows(blocks, self._to_data, note)
        writer = self._storage.sync_writer(take_over=True).open()  # from an attempt that died
        try:
            before = writer.length(shard)
            if isinstance(writer, DocumentWriter):
                writer.extend(shard, rows)
            else:
                for data in rows:
                    writer.append(shard, data)
            if writer.length(shard) == before and not writer.pending_bytes(shard):
                return _Written(task, b"")
            record = writer.prepare(shard) or b""
        except Exception as error:
            error.add_note(
                f"at row {rows.number} of write task {task} of job {self._job!r}, which "
                f"writes shard {shard}"
            )
            raise
        finally:
            writer.close()
        note.sign_of_life()
        return _Written(task, record)

    def on_write_complete(self, write_result: Any) -> None:
        """On the driver, after all tasks: publish what they wrote, and consolidate.

        Raises:
            ShardConflictError: another writer has committed to one of the shards. Before the
                decision nothing was published; after it, all other shards were.
            WriteError: a step failed, or Ray has lost what tasks returned; run the same command
                again.
            DatasetError: a file that is there is damaged.
        """
        returned = list(write_result.write_returns)
        if self._run is None and not returned:  # Ray calls it with the first block: there was none
            self.on_write_start()
            records: list[bytes] = []
        else:
            records = self._records(returned)
        files = PosixFiles()
        with self._errors_named():
            header = open_existing(files, self._storage, self._directory)
        self._finish(files, header, records)

    def on_write_failed(self, error: Exception) -> None:
        """On the driver: of a job that is not decided, nothing is visible."""
        _logger.warning(
            "job %s did not complete (%s); run the same command again",
            self._job,
            type(error).__name__,
        )
        RunningNote(PosixFiles(), self._directory, self._job).end()

    def _records(self, returned: list[Any]) -> list[bytes]:
        """The records of the tasks that had rows; of every task must be known what it did."""
        tasks = [done.task for done in returned if isinstance(done, _Written)]
        if not returned or sorted(tasks) != list(range(len(returned))):
            raise WriteError(
                f"{self._directory}: job {self._job!r}: Ray says that the write tasks succeeded, "
                f"and gives {len(returned)} results, of {len(set(tasks))} tasks with numbers up to "
                f"{max(tasks, default=-1)}; some are lost, perhaps with a node. Nothing was "
                "published; run the same command again"
            )
        return [done.record for done in returned if done.record]

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


def _behind_last_shard(files: PosixFiles, directory: str, header: Header) -> int:
    table = consolidated(files, directory, header)
    shards = [] if table is None or not len(table) else [int(table.shard[-1])]
    for name in files.list_names(os.path.join(directory, _names.COMMITS)):
        place = _names.parse_commit_name(name)
        if place is not None:
            shards.append(place[0])
    return max(shards, default=-1) + 1

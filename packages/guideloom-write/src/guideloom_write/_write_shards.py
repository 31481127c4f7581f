"""`write_shards`: many tasks, each writes one shard; in many processes, again and again until done.

::

    tasks      0       1       2       3          produce(task) yields what append takes
               │       │       │       │
    shards   0000000 0000001 0000002 0000003      each committed and marked as finished in one step

What is finished is known from the commit records alone, so that a job that was killed, at any
moment and with all its processes, goes on when it is called again.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal

from guideloom_format import TaskError, _names
from guideloom_format._integers import as_flag, as_index, shown
from guideloom_format._storage import Storage
from guideloom_write._files import PosixFiles
from guideloom_write._progress import Progress, progress_for
from guideloom_write._task_pool import TaskPool
from guideloom_write._task_report import (
    Assignment,
    Ended,
    Outcome,
    ShardJob,
    ShardOptions,
    TaskResult,
    WriteReport,
    parallel_package,
    task_text,
)
from guideloom_write._task_run import TaskRunner, check_task, failure_text, unfinished

_DEFAULTS = ShardOptions()
_logger = logging.getLogger("guideloom_write")


def write_shards(
    storage: Storage,
    tasks: Iterable[Any] | Mapping[int, Any],
    produce: Callable[..., Iterable[Any]],
    *,
    workers: int | None = None,
    resume: bool = False,
    on_error: Literal["stop", "continue"] = "stop",
    progress: bool = True,
    options: ShardOptions = _DEFAULTS,
) -> WriteReport:
    """Write shards in parallel, each from a task of its own; called again, go on.

    A task whose shard an earlier call finished is skipped. Whatever the number of workers, the
    shards have the same content.

    Args:
        storage: the description of the dataset, which is created if there is none.
        tasks: anything: names of files, ranges. Task k writes shard k; or a mapping of shard to
            task. If a task is made of strings, numbers, None, paths, ranges, lists and mappings
            (at most 512 characters as JSON), the shard keeps it, and giving the shard another one
            later is an error.
        produce: called with a task, in another process; yields what `append` takes, for documents
            one at a time.
        workers: processes; as many as there are CPUs for this process when left out. With 0 all
            is done in the calling process.
        resume: False: a shard becomes visible as a whole when its task is done, and a task that
            was killed starts over. True: it is committed every `ShardOptions.commit_bytes`, and
            ``produce(task, length)`` goes on where the shard has `length` elements or documents.
        on_error: when a task fails, end the others and raise, or continue and report it.
        progress: show it on stderr: a bar in a terminal, elsewhere a line each 30 seconds.
        options: what is seldom needed.

    Returns:
        what became of each task; `print` shows it as a table.

    Raises:
        TaskError: a task failed, and on_error is "stop". It names the task and its shard and has
            the traceback. What is finished stays; what is not is rolled back.
        MismatchError: a shard was finished or begun from another task than the one it has now; or
            the dataset is of another kind, element type or built-in format.
        DatasetError, WriteError: the dataset is damaged or cannot be created.
        WorkerError: the system lets no process start; the text says which limit.
        MissingPackageError: multiprocess or tqdm is not installed, and needed.
        KeyboardInterrupt: the processes have ended, and what they did not commit is rolled back.
    """
    resume = as_flag("resume", resume)
    _check_arguments(storage, produce, resume, options)
    if on_error not in ("stop", "continue"):
        raise ValueError(f'on_error is {on_error!r}; expected "stop" or "continue"')
    if workers is None:
        workers = len(os.sched_getaffinity(0))
    workers = as_index("workers", workers, 0, None)
    if workers:
        parallel_package("multiprocess")
    job = ShardJob(storage, produce, resume, options)
    assignments = _assignments(tasks)
    known = _known_outcomes(job, assignments)
    skipped = sum(outcome.status == "skipped" for outcome in known.values())
    shows = progress_for(progress, len(assignments), skipped)
    results = {
        assignment.shard: TaskResult(assignment.shard, assignment.task, "not started")
        for assignment in assignments
    }
    with (
        contextlib.closing(shows),
        contextlib.closing(_events(job, assignments, known, workers, shows)) as events,
    ):
        for assignment, outcome, cause in events:
            shard, task = assignment.shard, assignment.task
            results[shard] = TaskResult(shard, task, *outcome)
            failed = outcome.status == "failed"
            if failed or shard not in known:
                shows.ended(shard, outcome.items, outcome.nbytes, failed=failed)
            if failed:
                text = f"task {shown(task)} of shard {shard} failed: {outcome.error}"
                if on_error == "stop":
                    so_far = WriteReport(results.values()).summary()
                    raise TaskError(
                        f"{text}\n\n{so_far}. Another call goes on with the rest"
                    ) from cause
                _logger.error("%s", text)
    return WriteReport(results.values())


def _check_arguments(storage: object, produce: object, resume: bool, options: object) -> None:
    """Before processes are started.

    Raises:
        TypeError: one of them is something else.
    """
    if not isinstance(storage, Storage):
        raise TypeError(
            f"storage is {shown(storage)} ({type(storage).__name__}); expected a storage, such as "
            "StreamStorage(directory, storage_format)"
        )
    if not isinstance(options, ShardOptions):
        raise TypeError(
            f"options is {shown(options)} ({type(options).__name__}); expected ShardOptions(…)"
        )
    if not callable(produce):
        raise TypeError(f"produce is {shown(produce)}; expected a function of a task")
    try:
        signature = inspect.signature(produce)
    except (TypeError, ValueError):
        return  # written in C: it shows when it is called
    arguments = ("task", "length") if resume else ("task",)
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise TypeError(
            f"produce{signature} cannot be called as produce({', '.join(arguments)}), which "
            f"resume={resume} does: {error}"
        ) from None


def _assignments(tasks: Iterable[Any] | Mapping[int, Any]) -> list[Assignment]:
    """The tasks with their shards.

    Raises:
        TypeError, ValueError: they are none.
    """
    if isinstance(tasks, str | bytes | bytearray | memoryview | AbstractSet):
        raise TypeError(
            f"tasks is {shown(tasks)} ({type(tasks).__name__}); expected a list or another "
            "iterable whose order stays, or a mapping of shard to task"
        )
    pairs = tasks.items() if isinstance(tasks, Mapping) else enumerate(tasks)
    return [
        Assignment(as_index("shard", shard, 0, _names.MAX_SHARD), task, task_text(task))
        for shard, task in pairs
    ]


def _known_outcomes(job: ShardJob, assignments: Sequence[Assignment]) -> dict[int, Outcome]:
    """Shards for which nothing is to be done, or nothing can be. Creates the dataset.

    Raises:
        MismatchError: a shard was finished or begun from another task.
    """
    known: dict[int, Outcome] = {}
    with contextlib.closing(job.writer()) as writer:
        commits = os.path.join(os.path.abspath(job.storage.directory), _names.COMMITS)
        places = map(_names.parse_commit_name, PosixFiles().list_names(commits))
        begun = {place[0] for place in places if place is not None}
        for shard, _, text in assignments:
            record = writer.last_record(shard) if shard in begun else None
            if record is None:
                continue
            check_task(record, text)
            if record.finished:
                known[shard] = Outcome("skipped", length=writer.length(shard))
            elif not job.resume:
                length = writer.length(shard)
                error = failure_text(unfinished(shard, length))
                known[shard] = Outcome("failed", length=length, error=error)
    return known


def _events(
    job: ShardJob,
    assignments: Sequence[Assignment],
    known: Mapping[int, Outcome],
    workers: int,
    shows: Progress,
) -> Generator[Ended]:
    """What becomes of each task: first what is known, then what is done."""
    for assignment in assignments:
        if assignment.shard in known:
            yield Ended(assignment, known[assignment.shard])
    pending = [assignment for assignment in assignments if assignment.shard not in known]
    if not workers:
        yield from _run_here(job, pending, shows)
    elif pending:
        with TaskPool(job, pending, min(workers, len(pending))) as pool:
            yield from pool.run(shows)


def _run_here(
    job: ShardJob, assignments: Sequence[Assignment], shows: Progress
) -> Generator[Ended]:
    with contextlib.closing(TaskRunner(job, shows.running)) as runner:
        for assignment in assignments:
            try:
                outcome = runner.run(assignment)
            except Exception as error:  # noqa: BLE001  # whatever it is, it is the task's
                failed = runner.outcome._replace(error=failure_text(error))
                yield Ended(assignment, failed, error)
            else:
                yield Ended(assignment, outcome)

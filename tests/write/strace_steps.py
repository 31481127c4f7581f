"""The steps of `PosixFiles` that strace saw, and what a kill at one of their calls leaves."""

from __future__ import annotations

import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from guideloom_read import verify
from write.crash_cases import COMMON_GARBAGE, DATA_GARBAGE, Scenario, check_state
from write.faulty_files import Watched
from write.known_content import garbage, lengths_of, parts_of
from write.strace_cases import (
    EVERYTHING,
    KILLED,
    Call,
    Outcome,
    Point,
    Writers,
    inject,
    path_key,
    points_of,
)
from write.traced_writer import Job

MANIFESTS = r"manifest(s/[0-9]{8})?\.json(\.[0-9a-f]{16}\.tmp)?"
BY_NAME = {
    "mkdir": "make_folder",
    "mkdirat": "make_folder",
    "write": "write",
    "fsync": "sync",
    "close": "close",
    "link": "link",
    "linkat": "link",
    "rename": "replace",
    "renameat": "replace",
    "renameat2": "replace",
    "unlink": "remove",
    "unlinkat": "remove",
    "utimensat": "touch",
}
INNER = {
    "read": {"newfstatat", "fstat", "ioctl", "lseek", "read", "close"},
    "sync_folder": {"fsync", "close"},
    "list_names": {"newfstatat", "fstat", "getdents64", "close"},
}
"""Steps that are several calls, with the calls there may be behind the first one."""
CALLS = {"openat", "write", "fsync", "close", "linkat", "read"}
"""These are there on every machine; the names of others, such as unlink and unlinkat, differ."""

STATUS = {"stat", "lstat", "newfstatat", "statx"}
_OF_DESCRIPTOR = re.compile(r"(\d+)<")


def steps_of(calls: Sequence[Call], place: Path) -> list[str]:
    """The steps that the calls are, as "kind path"; a call that is no step gives itself."""
    return list(_steps(calls, place))


def _steps(calls: Sequence[Call], place: Path) -> Iterator[str]:
    inside: dict[str, str] = {}
    for call in calls:
        if not call.touches(place):
            continue
        of = _OF_DESCRIPTOR.match(call.arguments)
        step = inside.get(of[1]) if of else None
        if of and step is not None:
            if call.name == "close":
                del inside[of[1]]
            if call.name in INNER[step]:
                continue
        kind = _kind(call)
        opened = _OF_DESCRIPTOR.match(call.result)
        if kind in INNER and opened:
            inside[opened[1]] = kind
        yield f"{kind} {path_key(call.path, place)}"


def _kind(call: Call) -> str:
    if call.name in STATUS and not _OF_DESCRIPTOR.match(call.arguments):
        return "look" if "NOFOLLOW" in call.arguments or call.name == "lstat" else "folder_exists"
    if call.name == "openat":
        for flag, kind in (("O_CREAT", "create"), ("O_APPEND", "reopen")):
            if flag in call.arguments:
                return kind
        if "O_DIRECTORY" in call.arguments:
            return "list_names" if "O_NONBLOCK" in call.arguments else "sync_folder"
        return "read"
    return BY_NAME.get(call.name, f"{call.name}: no step of PosixFiles,")


def steps_watched(files: Watched, place: Path) -> list[str]:
    """What `Watched` saw in the place, in the same words."""
    same = {"size": "look", "modified": "look"}
    return [
        f"{same.get(kind, kind)} {path_key(path, place)}"
        for kind, path in files.calls
        if Path(path).is_relative_to(place)
    ]


def points_in(writers: Writers, job: Job, place: Path) -> list[Point]:
    """The calls of an undisturbed run, whose dataset is removed afterwards."""
    points = points_of(undisturbed(writers, job).calls, place)
    shutil.rmtree(job.directory)
    counts = Counter(point.name for point in points)
    print(f"{job.kind}: {len(points)} calls {dict(counts)}")
    assert set(counts) >= CALLS
    assert counts["linkat"] >= 1 + len(parts_of(job.script))  # the header and the records
    return points


def undisturbed(writers: Writers, job: Job) -> Outcome:
    """A run that nothing happens to, with all its calls that concern files."""
    outcome = writers.run(job, ["-e", f"trace={EVERYTHING}"])
    assert (outcome.status, outcome.error) == (0, None)
    return outcome


def kill(writers: Writers, job: Job, point: Point, place: Path) -> Outcome:
    """Kill the job at the entry of the call, and make sure that it was this call."""
    outcome = writers.run(job, inject(point, "signal=KILL"))
    assert outcome.status == -signal.SIGKILL, "the process was not killed"
    assert outcome.end == KILLED
    last = outcome.calls[-1]
    assert (last.result, last.key(place)) == ("?", point.key), "another call was hit"
    assert sum(call.name == point.name for call in outcome.calls) == point.when
    return outcome


def kill_and_go_on(writers: Writers, job: Job, point: Point, place: Path) -> None:
    """After the kill: what is visible is exact, and the same job again ends with all of it."""
    directory = Path(job.directory)
    scenario = Scenario(job.known, job.script)
    try:
        outcome = kill(writers, job, point, place)
        check_state(directory, scenario, set(point.linked), outcome.committed)
        go_on(writers, job)
    except Exception as error:
        error.add_note(f"{job.kind}, killed at {point}")
        raise
    shutil.rmtree(directory, ignore_errors=True)


def go_on(writers: Writers, job: Job) -> Outcome:
    """The same job again completes the dataset."""
    again = writers.run(job)
    assert (again.status, again.error) == (0, None)
    check_end(job)
    return again


def check_end(job: Job) -> None:
    """The content is that of an undisturbed run; all else that is there is garbage."""
    directory = Path(job.directory)
    assert job.known.visible(directory) == lengths_of(parts_of(job.script))
    report = verify(directory)
    assert report.clean, report.faults
    if job.consolidate:
        newest = max((directory / "manifests").glob("*.json"))
        assert (directory / "manifest.json").read_bytes() == newest.read_bytes()
    data = rf"{DATA_GARBAGE}\.({'|'.join(job.known.roles)})(\.crc)?"
    expected = re.compile(rf"{COMMON_GARBAGE}|{MANIFESTS}|{data}")
    left_over = garbage(directory)
    assert all(expected.fullmatch(name) for name in left_over), left_over

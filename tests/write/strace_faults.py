"""Calls of real processes that fail because strace lets them, and the run after it."""

from __future__ import annotations

import errno
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from guideloom_read import verify
from write.crash_cases import Scenario, check_state
from write.known_content import garbage, lengths_of, parts_of
from write.strace_cases import Call, Outcome, Point, Writers, inject
from write.strace_steps import go_on
from write.traced_writer import Job

ADVICE = "/owners/"
"""Files here say who writes a shard; nothing depends on them."""

ALSO_LOGGED = "openat,write,fsync,linkat"


@dataclass(frozen=True)
class Fault:
    """What a call gives instead of being made.

    Attributes:
        call: its name.
        error: of an errno, or None: `what` says.
        what: a false result, as options of strace say it.
        harmless: whether the writer may go on without a word, as it does when it cannot remove a
            name that nothing refers to, or when Python makes an interrupted call again.
    """

    call: str
    error: str | None = None
    what: str = ""
    harmless: bool = False

    @property
    def may_last(self) -> bool:
        """Whether this may go on for ever; Python makes an interrupted call again and again."""
        return self.error != "EINTR"

    @property
    def number(self) -> int | None:
        return None if self.error is None else int(getattr(errno, self.error))

    def options(self, point: Point, *, forever: bool = False) -> list[str]:
        what = self.what or f"error={self.error}"
        options = inject(point, what, also=ALSO_LOGGED)
        return [*options[:-1], options[-1] + "+" * forever]

    def __str__(self) -> str:
        return f"{self.call} {self.what or self.error}"


FAULTS = [
    *(Fault("write", error) for error in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "ESTALE")),
    *(Fault("fsync", error) for error in ("EIO", "ENOSPC", "EDQUOT")),
    *(Fault("close", error) for error in ("EIO", "EDQUOT", "ENOSPC")),
    *(Fault("linkat", error) for error in ("EIO", "EPERM", "ENOSPC", "EDQUOT", "ETIMEDOUT")),
    *(Fault("openat", error) for error in ("EMFILE", "ENFILE", "EACCES", "EROFS", "EIO")),
    *(Fault("rename", error) for error in ("EIO", "ENOSPC", "EACCES")),
    *(Fault("mkdir", error) for error in ("ENOSPC", "EROFS", "EACCES")),
    *(Fault("read", error) for error in ("EIO", "ESTALE")),
    *(Fault("newfstatat", error, harmless=True) for error in ("EIO", "EACCES")),
    *(Fault("unlink", error, harmless=True) for error in ("EIO", "EROFS")),
]
LIES = [
    Fault("write", what="retval=1000"),
    Fault("write", what="retval=1"),
    Fault("linkat", what="error=EEXIST"),
    Fault("linkat", what="retval=0"),
    Fault("unlink", what="retval=0", harmless=True),
]
INTERRUPTED = [
    *(Fault(call, "EINTR", harmless=True) for call in ("write", "fsync", "openat", "read")),
    *(Fault(call, "EINTR", harmless=True) for call in ("close", "linkat", "mkdir", "unlink")),
]


def in_turn(points: Sequence[Point]) -> Iterator[tuple[Point, Fault, bool]]:
    """Each call with one of its faults in turn, and whether every later call fails as well."""
    counts = Counter[str]()
    for point in points:
        faults = [fault for fault in (*FAULTS, *INTERRUPTED) if fault.call == point.name]
        if faults:
            turn, which = divmod(counts[point.name], len(faults))
            counts[point.name] += 1
            yield point, faults[which], faults[which].may_last and turn % 2 == 1


def fail(
    writers: Writers,
    job: Job,
    point: Point,
    fault: Fault,
    place: Path,
    *,
    forever: bool = False,
    kept: Path | None = None,
) -> None:
    """One run with a failure, and the run after it.

    Args:
        writers: who does it.
        job: what is done.
        point: the call that fails.
        fault: how.
        place: what the calls touch.
        forever: whether every later call of this name fails as well.
        kept: a dataset that has all parts, where the job goes on.
    """
    directory = Path(job.directory)
    scenario = Scenario(job.known, job.script)
    if kept is not None:
        shutil.copytree(kept, directory)
        scenario = Scenario(job.known, [], before=job.script)
    try:
        outcome = writers.run(job, fault.options(point, forever=forever))
        hit = [call for call in outcome.calls if call.injected]
        assert hit, "no call was injected into"
        assert hit[0].key(place) == point.key, "another call was hit"
        assert forever or len(hit) == 1
        check_outcome(job, outcome, fault, may_go_on=harmless(fault, point))
        check_what_is_there(scenario, directory, outcome)
        if fault.call == "fsync" and fault.error != "EINTR":
            check_not_used_again(outcome.calls)
        go_on(writers, job)
    except Exception as error:
        error.add_note(f"{job.kind}, {fault}{' for ever' * forever} at {point}")
        raise
    shutil.rmtree(directory)


def harmless(fault: Fault, point: Point) -> bool:
    """Whether the writer may go on: nothing is lost by this call."""
    folder_left = fault.call == "close" and is_folder(point.key.split()[-1])
    return fault.harmless or ADVICE in point.key or folder_left


def is_folder(path: str) -> bool:
    """All files of a dataset have a suffix."""
    return not Path(path).suffix


def check_outcome(job: Job, outcome: Outcome, fault: Fault, *, may_go_on: bool) -> None:
    """The error names the dataset and the errno; without one everything is committed."""
    assert outcome.status == 0, "not an error of GuideLoom"
    if outcome.error is None:
        assert may_go_on, "unnoticed"
        assert outcome.committed == lengths_of(parts_of(job.script))
        assert (outcome.version is not None) == job.consolidate
        return
    assert job.directory in outcome.error, outcome.error
    if fault.number is not None:
        assert outcome.number == fault.number, outcome.error
        assert f"errno {fault.number}" in outcome.error, outcome.error


def check_what_is_there(scenario: Scenario, directory: Path, outcome: Outcome) -> None:
    """Visible are the parts whose link was made, and their data is there and right."""
    garbage(directory)
    check_state(directory, scenario, outcome.linked(), outcome.committed)
    if (directory / "guideloom.json").exists():
        report = verify(directory)
        assert report.clean, report.faults


def check_not_used_again(calls: Sequence[Call]) -> None:
    """A file whose sync failed may have lost pages that the kernel takes for written."""
    at = next(k for k, call in enumerate(calls) if call.injected)
    path = calls[at].path
    if is_folder(path):
        return
    later = [call for call in calls[at + 1 :] if path in call.paths]
    assert later == [], f"used again after its sync failed: {later}"

"""The power fails at every point of a job; then the same command is run again.

What a power failure may leave is said in `write.power_states`. In every state that is looked at, a
reader finds nothing of the job unless it was decided, and whole parts of it then; the job is run
again and everything is there once. When the job returned, everything is there at once.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from guideloom_write._job import RunningNote, finish_job, read_job
from write.faulty_files import Crash, Watched
from write.known_content import Known
from write.power_look import put
from write.power_loss import memory_folder
from write.power_machine import Machine, MachineFiles
from write.power_states import choices, points, state

from .job_cases import (
    AFTER,
    BEFORE,
    JOB,
    KINDS,
    check_between,
    check_complete,
    header_of,
    prepare,
    run,
)

HOME = "/home"
DIRECTORY = Path(HOME, "set")
SEED = 5


class ForgetfulFiles(MachineFiles):
    """Does not sync one of the dataset's folders, from some time on."""

    forgets: str | None = None

    def sync_folder(self, path: str) -> None:
        if self.forgets is None or Path(path) != DIRECTORY / self.forgets:
            super().sync_folder(path)


@dataclass(frozen=True)
class Log:
    """A machine on which the job was run, and how many events it had when.

    Attributes:
        machine: of which the power fails.
        begun: before the job.
        prepared: when the tasks were done.
        returned: when the job was.
    """

    machine: Machine
    begun: int
    prepared: int
    returned: int


def log_of(known: Known[Any], forgets: str | None = None) -> Log:
    machine = Machine([HOME])
    files = ForgetfulFiles(machine)
    known.play(DIRECTORY, files, list(BEFORE.items()))
    files.forgets = forgets
    begun = len(machine.events)
    note = RunningNote(files, str(DIRECTORY), JOB)
    note.begin()
    records = prepare(known, DIRECTORY, files)
    prepared = len(machine.events)
    finish_job(files, str(DIRECTORY), header_of(DIRECTORY, files), JOB, records)
    returned = len(machine.events)
    note.end()
    return Log(machine, begun, prepared, returned)


def look_at(known: Known[Any], log: Log, first: int, samples: int) -> int:
    """How many different states were looked at, at the points from event `first` on."""
    with memory_folder() as folder:
        return _look_at(known, folder, log, first, samples)


def _look_at(known: Known[Any], folder: Path, log: Log, first: int, samples: int) -> int:
    seen = set()
    for point in points(log.machine, first):
        rng = random.Random(f"{SEED}/{point.number}")
        for choice in choices(point, rng, samples):
            found = state(point, choice)
            key = (found.digest(), point.number >= log.returned)
            if key in seen:
                continue
            seen.add(key)
            place = folder / "state"
            put(found, place)
            try:
                _check(known, place / DIRECTORY.relative_to("/"), done=point.number >= log.returned)
            except BaseException as error:
                error.add_note(f"at point {point.number}, with seed {SEED}: {choice}")
                raise
            finally:
                shutil.rmtree(place)
    return len(seen)


def _check(known: Known[Any], directory: Path, *, done: bool) -> None:
    check_between(known, directory)
    if done:
        assert known.visible(directory) == AFTER
    run(known, directory, Watched())
    check_complete(known, directory)


@pytest.mark.parametrize("kind", KINDS)
def test_the_power_fails_while_a_job_is_published(kind: str) -> None:
    log = log_of(KINDS[kind])
    assert look_at(KINDS[kind], log, log.prepared, samples=1) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_power_fails_during_a_job(kind: str) -> None:
    log = log_of(KINDS[kind])
    assert look_at(KINDS[kind], log, log.begun, samples=10) >= 500


@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_the_power_fails_after_a_driver_died(calls: int) -> None:
    """It died so many calls behind the decision; the run after it publishes what that one decided.

    What it did not sync may be lost until then, and must not be lost any more then.
    """
    known = KINDS["elements"]
    machine = Machine([HOME])
    files = MachineFiles(machine)
    known.play(DIRECTORY, files, list(BEFORE.items()))
    records = prepare(known, DIRECTORY, files)
    header = header_of(DIRECTORY, files)
    begun = len(machine.events)
    for n in range(1, 100):
        with pytest.raises(Crash):
            finish_job(MachineFiles(machine, n), str(DIRECTORY), header, JOB, records)
        if read_job(files, str(DIRECTORY), header, JOB) is not None:
            break
    if calls:
        with pytest.raises(Crash):
            finish_job(MachineFiles(machine, calls), str(DIRECTORY), header, JOB, [])
    finish_job(files, str(DIRECTORY), header, JOB, [])
    log = Log(machine, begun, begun, len(machine.events))
    assert look_at(known, log, begun, samples=1) >= 60


@pytest.mark.parametrize("folder", ["jobs", "commits", ""])
def test_a_sync_that_is_left_out_is_noticed(folder: str) -> None:
    """That these tests can fail."""
    known = KINDS["elements"]
    log = log_of(known, forgets=folder)
    with pytest.raises(AssertionError):
        look_at(known, log, log.prepared, samples=4)

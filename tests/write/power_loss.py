"""The power fails at every point of a run, and whatever was not synced may be lost.

At every point of the log of a run, and in every state that is looked at (`power_states` says what
a power failure may leave),

1. everything whose commit returned is there and right; of a commit that was under way each part is
   there as a whole or not at all; nothing else is there;
2. a manifest version that a consolidation returned opens, and `manifest.json` is not older;
3. a new writer goes on from `length(shard)` and ends with the content of an undisturbed run, the
   garbage can be removed, and `verify` finds no fault.

The campaign of the test suite is small. ``python -m write.power_campaign`` in `tests` looks at
50,000 states and more of each kind of data.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from write.known_content import Known
from write.power_look import Looker
from write.power_machine import Death, Event, Machine, MachineFiles
from write.power_processes import HOME, Process, Step, completed
from write.power_promises import Promises
from write.power_states import LOST, Choice, Point, choices, points, random_choice, state

SEED = int(os.environ.get("GUIDELOOM_POWER_SEED", "1"))


@dataclass(frozen=True)
class PowerScenario:
    """What processes do, one after the other, and when the power may fail.

    Attributes:
        name: for messages.
        runs: the power may fail at every point of these.
        before: these came before; what they did not sync may still be lost.
        again: what the job does that is started again, if not to complete each shard.
        most_open: shards with open files at once.
        buffer: bytes that a file holds back.
    """

    name: str
    runs: Sequence[Process]
    before: Sequence[Process] = ()
    again: Sequence[Step] = ()
    most_open: int = 128
    buffer: int = 4 * 65536

    @contextmanager
    def limits(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("guideloom_write._shard_writer.MOST_OPEN_PARTS", self.most_open)
            patch.setattr("guideloom_write._checked_file._BUFFER_BYTES", self.buffer)
            yield


@dataclass
class Tally:
    """Figures of a campaign.

    Attributes:
        points: moments at which the power failed.
        built: states that were made.
        states: those that differ, each looked at once.
        bad: what was wrong, as text that says how to see it again.
        seconds: of the processor.
    """

    points: int = 0
    built: int = 0
    states: int = 0
    bad: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.points} points, {self.built} states made, {self.states} differ, "
            f"{len(self.bad)} bad, {self.seconds:.1f} s"
        )

    def add(self, other: Tally) -> None:
        self.points += other.points
        self.built += other.built
        self.states += other.states
        self.bad += other.bad
        self.seconds += other.seconds


@dataclass
class Campaign:
    """Looks at states of runs with data of one kind.

    Attributes:
        known: the data.
        folder: where states become real files.
        seed: of the random states.
        samples: how many of them at each point that has more than a few pending operations.
        most_bad: bad states after which a run is given up.
        thorough: a new writer goes on in every state, see `Looker`.
        files_class: the file operations of the processes during which the power fails; for tests
            that leave out a sync.
    """

    known: Known[Any]
    folder: Path
    seed: int = SEED
    samples: int = 30
    most_bad: int = 3
    thorough: bool = False
    files_class: Callable[[Machine, Death | None], MachineFiles] = MachineFiles

    def run(self, scenario: PowerScenario, at: Callable[[Event], bool] | None = None) -> Tally:
        """Let it happen and look at the states at all points, or those behind such events."""
        machine, first = self._happened(scenario)
        with scenario.limits():
            return self.judge(scenario, machine, first, at)

    def run_twice(self, scenario: PowerScenario, times: int) -> Tally:
        """The power fails, the job is started again, the power fails again."""
        machine, first = self._happened(scenario)
        end = Promises.at(machine, len(machine.events)).lengths()
        again = Process(scenario.again or [completed(end, chunk=9)])
        rng = random.Random(f"{self.seed}/{scenario.name}/twice")
        numbers = set(rng.choices(range(first, len(machine.events) + 1), k=times))
        tally = Tally()
        for point in points(machine, first):
            if point.number in numbers:
                found = state(point, random_choice(point, rng))
                after = Machine(found.folders, found.files)
                with scenario.limits():
                    again.run(self.known, after, self.files_class)
                    tally.add(self.judge(scenario, after))
        return tally

    def _happened(self, scenario: PowerScenario) -> tuple[Machine, int]:
        """The machine afterwards, and the number of the first event that counts."""
        machine = Machine([HOME])
        with scenario.limits():
            for process in scenario.before:
                process.run(self.known, machine)
            first = len(machine.events)
            for process in scenario.runs:
                process.run(self.known, machine, self.files_class)
        return machine, first

    def judge(
        self,
        scenario: PowerScenario,
        machine: Machine,
        first: int = 0,
        at: Callable[[Event], bool] | None = None,
    ) -> Tally:
        """Look at the states of a log, from event `first` on."""
        started = time.process_time()
        tally = Tally()
        end = Promises.at(machine, len(machine.events))
        promises = Promises.at(machine, first)
        looker = Looker(
            self.known, self.folder, end.lengths(), scenario.again, thorough=self.thorough
        )
        for point in points(machine, first):
            if point.number > first:
                promises.follow(machine.events[point.number - 1])
            if at is None or (point.number and at(machine.events[point.number - 1])):
                self._judge_point(scenario.name, machine, point, promises, looker, tally)
            if len(tally.bad) >= self.most_bad:
                break
        tally.states = looker.states
        tally.seconds = time.process_time() - started
        return tally

    def _judge_point(
        self,
        name: str,
        machine: Machine,
        point: Point,
        promises: Promises,
        looker: Looker,
        tally: Tally,
    ) -> None:
        tally.points += 1
        rng = random.Random(f"{self.seed}/{name}/{point.number}")
        for number, choice in enumerate(choices(point, rng, self.samples)):
            tally.built += 1
            problem = promises.problem(looker.look(state(point, choice)))
            if problem:
                where = f"{type(self.known).__name__}, {name!r}, seed {self.seed}, state {number}"
                last = machine.events[point.number - 1] if point.number else "the beginning"
                tally.bad.append(
                    f"{where} of the point behind {last}: {problem}\n" + told(point, choice)
                )
                if len(tally.bad) >= self.most_bad:
                    return


def told(point: Point, choice: Choice) -> str:
    """What a state kept, and how to see it again."""
    kept = sum(outcome != LOST for outcome in choice)
    rows = [
        f"    {outcome if isinstance(outcome, str) else tuple(outcome)}: {op}"
        for op, outcome in zip(point.pending, choice, strict=True)
    ]
    return "\n".join(
        [
            f"  of {len(choice)} pending operations {kept} were kept, as a whole or in part:",
            *rows,
            f"  again with GUIDELOOM_POWER_SEED={SEED}; point {point.number} of the log",
        ]
    )


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A new folder, in memory where the system offers that."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    with tempfile.TemporaryDirectory(prefix="power-", dir=memory if usable else None) as name:
        yield Path(name)

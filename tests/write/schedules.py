"""All orders in which a few threads can do their file operations, one after the other.

`explore` runs the threads again and again. Exactly one runs at a time; each waits before every
operation until the schedule comes to it. Operations commute unless they concern the same name and
one of them changes it, or one lists a folder whose names the other changes. Orders that differ
only by operations that commute end in the same way, so one of each such class is run (dynamic
partial order reduction with sleep sets): the number of schedules that is reported stands for all
orders there are, and those are astronomically many.

What an operation did counts, not what it might have done: a folder that was there already, a name
that was taken and a file that was not there were only looked at.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

SECONDS = 60
LAST_STEPS = 80  # that a failure tells
STAY = 0.6  # how often an order that is drawn lets the same thread go on
_current = threading.local()


class Abandoned(BaseException):
    """The rest of this schedule is the same as one that was run before."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of one thread, and what it touched.

    Attributes:
        thread: who.
        what: for people.
        reads: names that it looked at.
        writes: names that it changed.
        lists: folders that it listed.
        enters: folders in which a name came or went by it.
    """

    thread: int
    what: str
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    enters: frozenset[str] = frozenset()

    def commutes(self, other: Step) -> bool:
        """Whether the two can change places and nobody sees it."""
        return not (
            self.writes & other.writes
            or self.writes & other.reads
            or self.reads & other.writes
            or self.lists & other.enters
            or self.enters & other.lists
        )

    def keys(self) -> frozenset[str]:
        """Names that decide which other steps can matter."""
        return self.reads | self.writes | self.lists | self.enters


@dataclass
class _Node:
    """A decision: who was chosen, who was tried before, and who need not be tried."""

    chosen: int
    sleep: dict[int, Step]
    step: Step | None = None
    done: dict[int, Step] = field(default_factory=dict)
    wanted: set[int] = field(default_factory=set)

    def sleep_behind(self) -> dict[int, Step]:
        assert self.step is not None
        return {
            thread: step
            for thread, step in {**self.sleep, **self.done}.items()
            if thread != self.chosen and step.commutes(self.step)
        }


class Schedule:
    """One run of all threads; they call `step` for each of their operations.

    Args:
        bodies: what the threads do.
        nodes: the decisions of an earlier run to repeat; new ones are added.
        draw: for new decisions by chance.

    Attributes:
        finished: whether all threads ran to their end.
        errors: what came out of the threads.
    """

    def __init__(
        self,
        bodies: Sequence[Callable[[], None]],
        nodes: list[_Node],
        draw: random.Random | None = None,
    ) -> None:
        self._bodies = bodies
        self._draw = draw
        self._nodes = nodes
        self._at = 0
        self._gates = [threading.Semaphore(0) for _ in bodies]
        self._over = threading.Semaphore(0)
        self._alive: set[int] = set()
        self._begun = False
        self._abandoned = False
        self._counts = [0] * len(bodies)
        self.errors: list[BaseException] = []

    @property
    def finished(self) -> bool:
        return not self._abandoned and not self.errors

    def run(self) -> None:
        """Let the threads do what `nodes` says, and after that go on freely."""
        threads = [
            threading.Thread(target=self._thread, args=(k,), daemon=True)
            for k in range(len(self._bodies))
        ]
        self._alive = set(range(len(threads)))
        for thread in threads:
            thread.start()
            self._wait(self._over)  # at its first step, or at its end
        self._begun = True
        if self._alive:
            self._go(self._choose(-1))
            self._wait(self._over)
        for thread in threads:
            thread.join(SECONDS)

    def step(self, do: Callable[[], Step]) -> None:
        """Called by a thread before an operation; `do` does it and tells what it touched."""
        me: int = _current.thread
        if not self._begun:
            self._over.release()
            self._wait(self._gates[me])
        else:
            other = self._choose(me)
            if other != me:
                self._go(other)
                self._wait(self._gates[me])
        if self._abandoned:
            raise Abandoned
        node = self._nodes[self._at]
        self._at += 1
        step = do()
        if node.step is not None:
            assert node.step.what == step.what, f"another run: {node.step.what}, now {step.what}"
        node.step = step

    def next_number(self) -> int:
        """Counts the calls of the thread that asks; the same in every run."""
        me: int = _current.thread
        self._counts[me] += 1
        return self._counts[me]

    def _thread(self, me: int) -> None:
        _current.thread = me
        _current.schedule = self
        try:
            self._bodies[me]()
        except Abandoned:
            pass
        except BaseException as error:  # noqa: BLE001  # told to the one who called run()
            self.errors.append(error)
            self._abandoned = True
        self._alive.discard(me)
        if not self._begun or not self._alive:
            self._over.release()
        else:
            self._go(min(self._alive) if self._abandoned else self._choose(-1))

    def _choose(self, running: int) -> int:
        """Who does the next step."""
        if self._abandoned:
            return running if running in self._alive else min(self._alive)
        if self._at < len(self._nodes):
            again = self._nodes[self._at].chosen
            assert again in self._alive, "another run: a thread has ended early"
            return again
        if self._draw is not None:
            stay = running in self._alive and self._draw.random() < STAY
            chosen = running if stay else self._draw.choice(sorted(self._alive))
            self._nodes.append(_Node(chosen, {}))
            return chosen
        sleep = self._nodes[-1].sleep_behind() if self._nodes else {}
        awake = self._alive - sleep.keys()
        if not awake:
            self._abandoned = True
            return running if running in self._alive else min(self._alive)
        chosen = running if running in awake else min(awake)
        self._nodes.append(_Node(chosen, sleep))
        return chosen

    def _go(self, thread: int) -> None:
        self._gates[thread].release()

    @staticmethod
    def _wait(gate: threading.Semaphore) -> None:
        if not gate.acquire(timeout=SECONDS):
            raise TimeoutError("a thread of the schedule did not come to its next step")


def scheduled_thread() -> int | None:
    """The number of the calling thread, if a schedule runs it."""
    return getattr(_current, "thread", None)


def current_schedule() -> Schedule:
    """The schedule that runs the calling thread."""
    schedule: Schedule = _current.schedule
    return schedule


@dataclass
class Explored:
    """What was run.

    Attributes:
        schedules: runs to the end, no two of them alike.
        cut: runs that were broken off because they would have repeated another.
        complete: whether every order there is has been run, or one like it.
    """

    schedules: int = 0
    cut: int = 0
    complete: bool = False


Start = Callable[[], tuple[Sequence[Callable[[], None]], Callable[[], None]]]
"""Makes everything anew: the threads' functions, and the check to be made behind them."""


def sample(start: Start, count: int, seed: int = 0) -> Explored:
    """Run so many orders that are drawn at random: for threads that have too many of them."""
    explored = Explored()
    for number in range(count):
        bodies, check = start()
        nodes: list[_Node] = []
        schedule = Schedule(bodies, nodes, random.Random(f"{seed}-{number}"))
        schedule.run()
        explored.schedules += 1
        _judge(schedule, check, nodes, f"seed {seed}, draw {number}")
    return explored


def explore(start: Start, limit: int | None = None) -> Explored:
    """Run all orders of the threads.

    Args:
        start: see `Start`.
        limit: the most schedules to run.

    Raises:
        AssertionError: a check or a thread failed; the schedule stands in the notes.
    """
    nodes: list[_Node] = []
    explored = Explored()
    while limit is None or explored.schedules < limit:
        bodies, check = start()
        schedule = Schedule(bodies, nodes)
        schedule.run()
        explored.schedules += schedule.finished
        _judge(schedule, check, nodes, f"schedule {explored.schedules}")
        explored.cut += not schedule.finished
        _find_races(nodes, len(bodies))
        if not _turn(nodes):
            explored.complete = True
            break
    return explored


def _judge(
    schedule: Schedule, check: Callable[[], None], nodes: Sequence[_Node], which: str
) -> None:
    """Raise what went wrong, with the last steps in the notes."""
    try:
        if schedule.errors:
            raise schedule.errors[0]
        if schedule.finished:
            check()
    except BaseException as error:
        error.add_note(f"{which}, which ends with")
        for step in [node.step for node in nodes if node.step is not None][-LAST_STEPS:]:
            error.add_note(f"  {step.thread}: {step.what}")
        raise


def _find_races(nodes: list[_Node], threads: int) -> None:
    """For each two steps that could have come in the other order: see that it is tried, too."""
    steps = [node.step for node in nodes if node.step is not None]
    order = _Order(threads)
    by_key: dict[str, list[int]] = {}
    for at, step in enumerate(steps):
        keys = step.keys()
        before = sorted({k for key in keys for k in by_key.get(key, ())}, reverse=True)
        clashing = [k for k in before if not steps[k].commutes(step)]
        for k in order.add(step.thread, clashing):
            first = order.could_be_first(k, at)
            node = nodes[k]
            if not first & (node.wanted | node.done.keys() | {node.chosen}):
                node.wanted.add(step.thread if step.thread in first else min(first))
        for key in keys:
            by_key.setdefault(key, []).append(at)


class _Order:
    """Which steps of a run had to come before which: by their threads, or as they clash."""

    def __init__(self, threads: int) -> None:
        self._clocks: list[list[int]] = []  # of each step: how many of each thread come before it
        self._threads: list[int] = []
        self._numbers: list[int] = []  # of each step in its own thread, from 1
        self._now = [[0] * threads for _ in range(threads)]

    def add(self, thread: int, clashing: Sequence[int]) -> list[int]:
        """One more step; which of the clashing ones, last first, are in a race with it."""
        clock = self._now[thread]
        racing = []
        for k in clashing:
            if clock[self._threads[k]] < self._numbers[k]:
                racing.append(k)
                clock = list(map(max, clock, self._clocks[k]))
        clock = list(clock)
        clock[thread] += 1
        self._clocks.append(clock)
        self._threads.append(thread)
        self._numbers.append(clock[thread])
        self._now[thread] = clock
        return racing

    def before(self, first: int, then: int) -> bool:
        """Whether the one step had to come before the other."""
        return self._clocks[then][self._threads[first]] >= self._numbers[first]

    def could_be_first(self, at: int, then: int) -> set[int]:
        """Threads that can begin a run in which step `then` comes before step `at`."""
        between = [k for k in range(at + 1, then) if not self.before(at, k)] + [then]
        begin: dict[int, int] = {}
        for k in between:
            begin.setdefault(self._threads[k], k)
        return {
            thread
            for thread, k in begin.items()
            if not any(self.before(other, k) for other in between if other < k)
        }


def _turn(nodes: list[_Node]) -> bool:
    """Go back to the last decision that has a choice left, and take it; False if there is none."""
    while nodes:
        node = nodes[-1]
        assert node.step is not None
        node.done[node.chosen] = node.step
        left = node.wanted - node.done.keys() - node.sleep.keys()
        if left:
            node.chosen = min(left)
            node.step = None
            return True
        nodes.pop()
    return False


def all_orders(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every order of so many steps of each thread, without any reduction."""
    if not any(counts):
        yield ()
    for thread, count in enumerate(counts):
        if count:
            rest = [n - (k == thread) for k, n in enumerate(counts)]
            for order in all_orders(rest):
                yield (thread, *order)

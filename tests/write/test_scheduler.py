"""The scheduler itself: the reduction loses no outcome, and a race is found."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from math import factorial, prod

import pytest

from write.schedules import Step, all_orders, current_schedule, explore, scheduled_thread

NAMES = ("a", "b", "c")
Program = Sequence[Sequence[tuple[str, str]]]
"""For each thread its operations: (kind, name)."""


class Memory:
    """Names with values, and what each thread saw."""

    def __init__(self, threads: int) -> None:
        self.values: dict[str, tuple[int, ...]] = {}
        self.seen: list[list[object]] = [[] for _ in range(threads)]

    def do(self, thread: int, number: int, kind: str, name: str) -> Step:
        """One operation: look, list, create exclusively, remove, or write."""
        there = name in self.values
        what = f"{kind} {name}"
        one, every = frozenset({name}), frozenset({"*"})
        if kind == "list":
            self.seen[thread].append(frozenset(self.values))
            return Step(thread, what, lists=every)
        if kind == "look":
            self.seen[thread].append(self.values.get(name))
            return Step(thread, what, reads=one)
        if kind == "create" and not there:
            self.values[name] = (thread, number)
            return Step(thread, what, writes=one, enters=every)
        if kind == "remove" and there:
            del self.values[name]
            return Step(thread, what, writes=one, enters=every)
        if kind == "append" and there:
            self.values[name] += (thread, number)
            return Step(thread, what, writes=one)
        self.seen[thread].append(there)
        return Step(thread, what, reads=one)

    def outcome(self) -> object:
        return (
            tuple(sorted(self.values.items())),
            tuple(tuple(map(repr, map(sorted_if_set, seen))) for seen in self.seen),
        )


def sorted_if_set(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else value


def outcomes_of_all_orders(program: Program) -> set[object]:
    found = set()
    for order in all_orders([len(steps) for steps in program]):
        memory, at = Memory(len(program)), [0] * len(program)
        for thread in order:
            memory.do(thread, at[thread], *program[thread][at[thread]])
            at[thread] += 1
        found.add(memory.outcome())
    return found


def outcomes_explored(program: Program) -> tuple[set[object], int]:
    found = set()

    def start() -> tuple[list[Callable[[], None]], Callable[[], None]]:
        memory = Memory(len(program))

        def body(thread: int) -> None:
            assert scheduled_thread() == thread
            for number, (kind, name) in enumerate(program[thread]):
                current_schedule().step(partial(memory.do, thread, number, kind, name))

        bodies: list[Callable[[], None]] = [partial(body, k) for k in range(len(program))]
        return bodies, lambda: found.add(memory.outcome())

    explored = explore(start)
    assert explored.complete
    return found, explored.schedules


@pytest.mark.parametrize(
    "sizes, programs", [((4, 4), 60), ((5, 3), 30), ((2, 3, 2), 40), ((2, 2, 2, 1), 10)]
)
def test_the_reduction_loses_no_outcome(sizes: tuple[int, ...], programs: int) -> None:
    """Small programs at random: what all orders without any reduction can end in is found."""
    fewer = 0
    for seed in range(programs):
        draw = random.Random(f"{sizes}-{seed}")
        program = [
            [
                (draw.choice(("look", "list", "create", "create", "remove", "append")), name)
                for name in draw.choices(NAMES, k=size)
            ]
            for size in sizes
        ]
        expected = outcomes_of_all_orders(program)
        found, schedules = outcomes_explored(program)
        assert found == expected, f"seed {seed}: {program}"
        every = factorial(sum(sizes)) // prod(map(factorial, sizes))
        assert len(expected) <= schedules <= every, f"seed {seed}: {program}"
        fewer += schedules < every
    assert fewer > programs // 2


def test_threads_that_touch_different_names_need_one_schedule() -> None:
    program = [[("create", "a"), ("append", "a")] * 4, [("look", "b")] * 8, [("look", "c")] * 8]
    assert outcomes_explored(program)[1] == 1
    looks = [[("look", "a"), ("list", "")] * 4, [("look", "a")] * 8]
    assert outcomes_explored(looks)[1] == 1


def test_a_failure_tells_its_schedule() -> None:
    """Check-then-act: each thread looks whether the name is free, then writes it."""

    def start() -> tuple[list[Callable[[], None]], Callable[[], None]]:
        memory: list[int] = []

        def body(thread: int) -> None:
            free: list[bool] = []

            def look() -> Step:
                free.append(not memory)
                return Step(thread, "look", reads=frozenset({"x"}))

            def take() -> Step:
                memory.append(thread)
                return Step(thread, "take", writes=frozenset({"x"}))

            current_schedule().step(look)
            if free[0]:
                current_schedule().step(take)

        def check() -> None:
            assert len(memory) == 1, "both took it"

        return [lambda: body(0), lambda: body(1)], check

    with pytest.raises(AssertionError, match="both took it") as raised:
        explore(start)
    notes = raised.value.__notes__
    assert re.fullmatch(r"schedule \d+, which ends with", notes[0])
    assert sorted(notes[1:]) == ["  0: look", "  0: take", "  1: look", "  1: take"]

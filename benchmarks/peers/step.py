"""A training step of a millisecond, as the loader sees it: NumPy work on one core.

It is a fixed amount of work, not a time to pass: what loading takes away from it shows. `hold`
multiplies 256 numbers again and again, for which NumPy keeps the interpreter: threads that load
get it only when the training loop waits, or every few milliseconds when Python makes it switch.
`release` multiplies 32,768 numbers at a time, for which NumPy lets others run, as torch does in
its operations and while it waits for a device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

SECONDS = 1e-3
NUMBERS = {"hold": 256, "release": 32_768}

Step = Callable[[], None]


def make_step(kind: str) -> Step:
    """A step of about a millisecond on this machine, now."""
    numbers = np.ones(NUMBERS[kind], dtype=np.float32)
    one = np.float32(1)

    def work(times: int) -> float:
        begin = time.perf_counter()
        for _ in range(times):
            np.multiply(numbers, one, out=numbers)
        return time.perf_counter() - begin

    work(2000)
    each = min(work(500) for _ in range(20)) / 500
    times = max(1, round(SECONDS / each))

    def step() -> None:
        work(times)

    return step


def alone(step: Step, count: int) -> float:
    """Seconds of so many steps without loading."""
    begin = time.perf_counter()
    for _ in range(count):
        step()
    return time.perf_counter() - begin


def beside(step: Step, batches: Iterator[object], count: int) -> tuple[float, list[float]]:
    """Seconds of so many steps with a batch before each, and of each wait for a batch."""
    waits = []
    begin = time.perf_counter()
    for _ in range(count):
        asked = time.perf_counter()
        batch = next(batches)
        waits.append(time.perf_counter() - asked)
        step()
        del batch
    return time.perf_counter() - begin, waits

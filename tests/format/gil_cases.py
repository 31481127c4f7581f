"""Whether other threads run while a compiled function works."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def ticks_meanwhile(call: Callable[[], object]) -> tuple[int, float]:
    """How often another thread ran in the middle half of a call, and the call's seconds.

    A call that keeps the interpreter's lock has no ticks there; one that gives it back has many.
    """
    ticks: list[float] = []
    running, done = threading.Event(), threading.Event()

    def tick() -> None:
        running.set()
        last = 0.0
        while not done.is_set():
            now = time.perf_counter()
            if now - last > 0.001:
                ticks.append(now)
                last = now

    thread = threading.Thread(target=tick)
    thread.start()
    running.wait()
    begin = time.perf_counter()
    call()
    end = time.perf_counter()
    done.set()
    thread.join()
    quarter = (end - begin) / 4
    return sum(begin + quarter < now < end - quarter for now in ticks), end - begin

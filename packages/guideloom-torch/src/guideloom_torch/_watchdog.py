"""A warning when the training loop has waited too long for a batch.

One thread of the process looks at a clock now and then. Loops only note when they begin to wait.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable

_logger = logging.getLogger("guideloom_torch")
_LOOKS = 8  # in the time after which a wait is a stall
_SHORTEST = 0.02


class Watchdog:
    """Says of each wait that is longer than `stall_after` what it waits for, once.

    Args:
        stall_after: seconds; None to say nothing.
        describe: what is waited for, in words; called in another thread, while it is waited for.
        who: this process, in words.
    """

    def __init__(self, stall_after: float | None, describe: Callable[[], str], who: str) -> None:
        self.stall_after = stall_after
        self._describe = describe
        self._who = who
        self._since = 0.0  # 0 where nothing is waited for
        self._said = 0.0
        self._process = 0  # whose thread looks at this

    def begin(self) -> None:
        """The loop waits from now on."""
        if self.stall_after is not None:
            self._since = time.monotonic()
            if self._process != os.getpid():
                self._process = os.getpid()
                _watch(self)

    def end(self) -> None:
        """It has what it waited for, or an error."""
        self._since = 0.0

    def look(self) -> None:
        """Warn if it is time."""
        since = self._since
        seconds = time.monotonic() - since
        if since and since != self._said and seconds >= (self.stall_after or 0.0):
            self._said = since
            try:
                what = self._describe()
            except Exception as error:  # noqa: BLE001  # what is described goes on meanwhile
                what = f"what for cannot be said ({error!r})"
            _logger.warning("%s has waited %.1f s for a batch: %s", self._who, seconds, what)


class _Watch:
    """The watchdogs of a process, and the thread that wakes them."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.dogs: weakref.WeakSet[Watchdog] = weakref.WeakSet()
        self.changed = threading.Event()
        threading.Thread(target=self._run, name="guideloom-loader-watchdog", daemon=True).start()

    def add(self, dog: Watchdog) -> None:
        with self.lock:
            self.dogs.add(dog)
        self.changed.set()

    def _run(self) -> None:
        while True:
            with self.lock:
                dogs = list(self.dogs)
            for dog in dogs:
                dog.look()
            pause = min((dog.stall_after or 1.0 for dog in dogs), default=None)
            dogs.clear()
            dog = None  # type: ignore[assignment]  # holds none of them while it sleeps
            self.changed.wait(None if pause is None else max(pause / _LOOKS, _SHORTEST))
            self.changed.clear()


_the_watch: list[_Watch] = []


def _watch(dog: Watchdog) -> None:
    if not _the_watch or _the_watch[0].process != os.getpid():
        _the_watch[:] = [_Watch()]
    _the_watch[0].add(dog)

"""A word when somebody has waited too long: the training loop for a batch, a worker for its reads.

One thread of the process looks at a clock now and then. Who waits only notes when that begins.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue

from guideloom_torch._threads import new_thread, start_thread

_logger = logging.getLogger("guideloom_torch")
_LOOKS = 8  # in the time after which a wait is a stall
_SHORTEST, _LONGEST = 0.02, 3600.0  # seconds between two looks, or for eight


class Watchdog:
    """Barks when a wait has become longer than `after`.

    Args:
        after: seconds; None never to bark.
        bark: is called with the seconds so far, in another thread, while it is waited.
        again: whether it barks again and again, or once in a wait.
    """

    def __init__(
        self, after: float | None, bark: Callable[[float], None], *, again: bool = False
    ) -> None:
        self.after = after
        self._bark = bark
        self._again = again
        self._since = 0.0  # 0 where nothing is waited for
        self._barked = (0.0, 0.0)  # in the wait that began then; when
        self._process = 0  # whose thread looks at this

    def begin(self) -> None:
        """The wait begins."""
        if self.after is not None:
            self._since = time.monotonic()
            if self._process != os.getpid():
                self._process = os.getpid()
                try:
                    _watch(self)
                except RuntimeError as error:
                    _logger.warning("stalls of the loader will not be noticed: %s", error)

    def end(self) -> None:
        """The wait is over."""
        self._since = 0.0

    def look(self) -> None:
        """Bark if it is time."""
        since, now = self._since, time.monotonic()
        wait, barked = self._barked
        if not since or (wait == since and not self._again):
            return
        if now - (barked if wait == since else since) >= (self.after or 0.0):
            self._barked = (since, now)
            self._bark(now - since)


def stall_warning(describe: Callable[[], str], who: str) -> Callable[[float], None]:
    """What a loop's watchdog does: warn of the wait.

    Args:
        describe: what is waited for, in words; called in another thread, while it is waited for.
        who: waits, in words.
    """

    def warn(seconds: float) -> None:
        try:
            what = describe()
        except Exception as error:  # noqa: BLE001  # what is described goes on meanwhile
            what = f"what for cannot be said ({error!r})"
        _logger.warning("%s has waited %.1f s for a batch: %s", who, seconds, what)

    return warn


class _Watch:
    """The watchdogs of a process, and the thread that wakes them."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.dogs: weakref.WeakSet[Watchdog] = weakref.WeakSet()
        # to put something in is one call in C, which an interrupt leaves whole, see `_promise`
        self.changed: SimpleQueue[None] = SimpleQueue()
        start_thread(new_thread(self._run, "guideloom-loader-watchdog"))

    def add(self, dog: Watchdog) -> None:
        with self.lock:
            self.dogs.add(dog)
        self.changed.put(None)

    def _run(self) -> None:
        while True:
            with self.lock:
                dogs = list(self.dogs)
            for dog in dogs:
                with contextlib.suppress(Exception):  # a handler of the user's, say, that raises
                    dog.look()
            pause = min((min(dog.after or 1.0, _LONGEST) for dog in dogs), default=None)
            dogs.clear()
            dog = None  # type: ignore[assignment]  # holds none of them while it sleeps
            with contextlib.suppress(Empty):
                self.changed.get(timeout=None if pause is None else max(pause / _LOOKS, _SHORTEST))


_the_watch: list[_Watch] = []


def _watch(dog: Watchdog) -> None:
    if not _the_watch or _the_watch[0].process != os.getpid():
        _the_watch[:] = [_Watch()]
    _the_watch[0].add(dog)

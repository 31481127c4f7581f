"""A result that another thread brings, safe from interrupts.

`concurrent.futures.Future` is made of conditions in Python code. An exception that a signal handler
raises in there, a Ctrl-C, can leave one locked for ever, and with it the thread that brings the
result, which for worker processes is the only one. Here each step that locks is one call in C.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any


class Promise:
    """The names are those of `concurrent.futures.Future`, as far as they are here."""

    def __init__(self) -> None:
        self._outcomes: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._outcome: tuple[Any, BaseException | None] | None = None  # once it was asked for
        self._turn = [True]  # of whoever takes it: to bring the result, or to cancel it
        self._cancelled = False

    def cancel(self, reason: Callable[[], BaseException] | None = None) -> bool:
        """Have nobody begin with it; False if somebody has. Whoever waits gets an error."""
        if not self.set_running_or_notify_cancel():
            return False
        self._cancelled = True
        self.set_exception(reason() if reason else RuntimeError("the loader needs it no more"))
        return True

    def cancelled(self) -> bool:
        """Whether nobody shall begin with it."""
        return self._cancelled

    def set_running_or_notify_cancel(self) -> bool:
        """Begin with it; False if it was cancelled, or somebody has begun."""
        try:
            self._turn.pop()
        except IndexError:
            return False
        return True

    def set_result(self, result: Any) -> None:
        """Bring it."""
        self._outcomes.put((result, None))

    def set_exception(self, error: BaseException) -> None:
        """Bring an error in its place."""
        self._outcomes.put((None, error))

    def done(self) -> bool:
        """Whether it is there, or an error is."""
        return self._outcome is not None or not self._outcomes.empty()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for it; one thread may do so.

        Raises:
            TimeoutError: it did not come in so many seconds.
            BaseException: the error that came in its place.
        """
        if self._outcome is None:
            try:
                self._outcome = self._outcomes.get(timeout=timeout)
            except Empty:
                raise TimeoutError from None
        result, error = self._outcome
        if error is None:
            return result
        try:
            raise error
        finally:
            del self, error  # which would keep each other

"""How far `write_shards` is, on stderr: a bar for a terminal, a line now and then for a file.

Progress is never a reason to fail: a stderr that takes nothing more is left alone.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, TextIO

from guideloom_write._task_report import parallel_package, readable_bytes

_LINE_EVERY = 30.0
_DRAW_EVERY = 0.2
_RATE_OVER = 60.0


class Progress:
    """Keeps count and shows nothing.

    Args:
        total: number of tasks.
        skipped: how many of them an earlier run finished.
    """

    def __init__(self, total: int, skipped: int) -> None:
        self._total = total
        self._skipped = skipped
        self._done = self._failed = self._items = self._nbytes = 0
        self._running: dict[int, tuple[int, int]] = {}
        self._began = time.monotonic()
        self._marks = deque([(self._began, 0)])

    def running(self, shard: int, items: int, nbytes: int) -> None:
        """So much has been appended to a shard by a task that goes on."""
        self._running[shard] = (items, nbytes)
        self.draw()

    def ended(self, shard: int, items: int, nbytes: int, *, failed: bool) -> None:
        """A task has ended; if it failed, with what it had appended."""
        before = self._running.pop(shard, (0, 0))
        self._items += max(items, before[0])
        self._nbytes += max(nbytes, before[1])
        self._done += 1
        self._failed += failed
        self.draw()

    def draw(self) -> None:
        """Show how far it is, if it is time."""

    def wait_seconds(self) -> float | None:
        """After how many seconds `draw` would like to be called in any case."""
        return None

    def close(self) -> None:
        """Show how far it came."""

    def _amounts(self) -> tuple[int, int]:
        """Items and bytes, also those of tasks that go on."""
        items = self._items + sum(items for items, _ in self._running.values())
        return items, self._nbytes + sum(nbytes for _, nbytes in self._running.values())

    def _rate(self, nbytes: int, *, overall: bool) -> float:
        """Bytes per second: of the last minute, or since the beginning."""
        now = time.monotonic()
        self._marks.append((now, nbytes))
        while len(self._marks) > 2 and now - self._marks[1][0] >= _RATE_OVER:
            self._marks.popleft()
        then, before = (self._began, 0) if overall else self._marks[0]
        return max(0.0, (nbytes - before) / max(now - then, 1e-9))

    def _text(self, *, overall: bool = False) -> str:
        items, nbytes = self._amounts()
        rate = readable_bytes(self._rate(nbytes, overall=overall))
        failed = f", {self._failed:,} failed" if self._failed else ""
        return f"{items:,} items, {readable_bytes(nbytes)}, {rate}/s{failed}"

    def _seconds_left(self) -> float | None:
        left = self._total - self._skipped - self._done
        taken = time.monotonic() - self._began
        return taken / self._done * left if self._done else (None if left else 0.0)


class Lines(Progress):
    """A line each 30 seconds, and one at the end."""

    def __init__(self, total: int, skipped: int, stream: TextIO) -> None:
        super().__init__(total, skipped)
        self._stream = stream
        self._next = self._began + _LINE_EVERY

    def draw(self) -> None:
        """Show how far it is, if it is time."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _LINE_EVERY
            seconds = self._seconds_left()
            left = "?" if seconds is None else clock(seconds)
            self._write(f"{self._text()}, {left} left")

    def wait_seconds(self) -> float | None:
        """Until the next line."""
        return max(0.0, self._next - time.monotonic())

    def close(self) -> None:
        """The last line."""
        taken = clock(time.monotonic() - self._began)
        self._write(f"{self._text(overall=True)}, took {taken}")

    def _write(self, text: str) -> None:
        done = self._skipped + self._done - self._failed
        with _unless_broken():
            self._stream.write(f"write_shards: {done:,} of {self._total:,} shards, {text}\n")
            self._stream.flush()


class Bar(Progress):
    """A bar over the shards, drawn by tqdm without threads and locks of its own."""

    def __init__(self, total: int, skipped: int, stream: TextIO) -> None:
        super().__init__(total, skipped)
        tqdm = parallel_package("tqdm").tqdm
        kind: Any = type("_Bar", (tqdm,), {"monitor_interval": 0})
        kind.set_lock(threading.RLock())
        self._next = self._began
        self._bar: Any = None
        with _unless_broken():
            self._bar = kind(
                total=total,
                initial=skipped,
                desc="write_shards",
                unit=" shards",
                file=stream,
                dynamic_ncols=_has_width(stream),
                ncols=80,
                bar_format="{desc}: {percentage:3.0f}%|{bar}| {n}/{total} [{elapsed}{postfix}]",
            )

    def draw(self) -> None:
        """Show how far it is, if it is time."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _DRAW_EVERY
            seconds = self._seconds_left()
            left = "?" if seconds is None else clock(seconds)
            self._show(f"{self._text()}, {left} left")

    def wait_seconds(self) -> float | None:
        """A second, so that the clock goes on."""
        return 1.0

    def close(self) -> None:
        """The bar as it is at the end; it stays."""
        self._show(self._text(overall=True))
        if self._bar is not None:
            with _unless_broken():
                self._bar.close()

    def _show(self, text: str) -> None:
        if self._bar is None:
            return
        with _unless_broken():
            self._bar.n = self._skipped + self._done - self._failed
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.refresh()


def _has_width(stream: TextIO) -> bool:
    """Whether the terminal knows how wide it is; tqdm draws nothing on one of 0 columns."""
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns > 0
    return False


def progress_for(enabled: bool, total: int, skipped: int) -> Progress:
    """Progress as stderr can show it.

    Raises:
        MissingPackageError: stderr is a terminal and tqdm is not installed.
    """
    stream = sys.stderr
    if not enabled or stream is None:
        return Progress(total, skipped)
    with contextlib.suppress(OSError, ValueError):
        if stream.isatty():
            return Bar(total, skipped, stream)
    return Lines(total, skipped, stream)


def clock(seconds: float) -> str:
    """Seconds as hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


@contextlib.contextmanager
def _unless_broken() -> Iterator[None]:
    """A stream that is closed, or whose reader is gone, is no reason to stop a job."""
    with contextlib.suppress(OSError, ValueError):
        yield

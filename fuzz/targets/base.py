"""What a fuzz target is, and what no input may do to the code behind it.

Whatever the bytes, a parser returns something that fits its own rules or raises one of its named
errors, with a text that a person can use, in little time and memory. Everything else is a finding:
other exceptions leave the target as they are, broken rules as `AssertionError`.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

SECONDS = 1.0
"""Processor time that an input may take."""

MEMORY = 256 << 20
"""Memory that a process may need beyond what it had before the first input."""

LONGEST_MESSAGE = 2000

Bytes2Bytes = Callable[[bytes], bytes]
Mutate = Callable[[bytes, random.Random, Bytes2Bytes], bytes]
"""(input, random numbers, a change of bytes without knowledge of their meaning) to another input"""


class SlowError(Exception):
    """An input took more processor time than it may."""


@dataclass(frozen=True)
class Target:
    """One parser or decoder, and how inputs for it are made.

    Attributes:
        name: of the module, and of the folder of its corpus.
        feed: takes an input; returns when all went as it should.
        mutate: changes an input with knowledge of its structure.
        seeds: inputs to begin with.
    """

    name: str
    feed: Callable[[bytes], None]
    mutate: Mutate
    seeds: Callable[[], list[bytes]]

    def check(self, data: bytes) -> None:
        """Feed an input, and see how long it takes.

        Raises:
            SlowError: longer than it may.
            BaseException: whatever a finding is.
        """
        before = time.thread_time()
        self.feed(data)
        spent = time.thread_time() - before
        if spent > SECONDS:
            raise SlowError(f"{len(data)} bytes took {spent:.2f} s")


def attempt(parse: Callable[[], T], *errors: type[Exception], names: str | None = None) -> T | None:
    """What `parse` returns; None if it refuses by one of these errors and says what is wrong.

    Args:
        parse: what is tried; must not return None.
        errors: that it may raise.
        names: what the message of an error has to name: the file, most often.
    """
    try:
        return parse()
    except errors as error:
        message = str(error)
        assert 20 <= len(message) <= LONGEST_MESSAGE, f"a message of {len(message)} characters"
        assert names is None or names in message, f"{names!r} is not named: {message}"
        return None


@contextmanager
def limited_memory(extra: int = MEMORY) -> Iterator[None]:
    """Whatever needs more than this beyond what there is gets a MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + extra
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

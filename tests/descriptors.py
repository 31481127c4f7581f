"""Running out of file descriptors."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def few_descriptors(left: int) -> Iterator[None]:
    """Within, this process can open so many files more, and not one beyond."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    fillers = []
    while (filler := os.dup(0)) <= highest:
        fillers.append(filler)
    os.close(filler)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)

"""How often loaders in this process, and those that pytest-xdist started, went on from a state."""

from __future__ import annotations

AT_LEAST = 10_000  # in a run of all tests


class Count:
    """A number that grows."""

    def __init__(self) -> None:
        self.number = 0


counted = Count()

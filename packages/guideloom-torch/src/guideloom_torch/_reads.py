"""What was read of a dataset, added up over processes."""

from __future__ import annotations

from typing import NamedTuple

from guideloom_read.io import Reading, ReadLog, ReadTotals


class Reads(NamedTuple):
    """Reads that have ended.

    Attributes:
        totals: of all.
        slowest: of them; None if there is none.
    """

    totals: ReadTotals
    slowest: Reading | None

    @classmethod
    def of(cls, log: ReadLog) -> Reads:
        """What a log has of this process, by now."""
        return cls(log.totals(), log.slowest())

    def plus(self, other: Reads) -> Reads:
        """Both together."""
        totals = ReadTotals._make(a + b for a, b in zip(self.totals, other.totals, strict=True))
        slowest = [one for one in (self.slowest, other.slowest) if one is not None]
        return Reads(totals, max(slowest, key=lambda read: read.seconds, default=None))


NO_READS = Reads(ReadTotals(0, 0, 0, 0.0, 0), None)

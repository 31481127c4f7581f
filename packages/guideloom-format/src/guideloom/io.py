"""I/O backends for readers: `PosixPreadIO` (the default), `MmapIO`, `SeekIO`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guideloom_format._storage import require

if TYPE_CHECKING:
    from guideloom_read.io import (
        MmapIO,
        ObservedIO,
        ObservedRead,
        PosixPreadIO,
        RangeFiles,
        Reading,
        ReadLog,
        ReadObserver,
        ReadTotals,
        SeekIO,
    )

__all__ = [
    "MmapIO",
    "ObservedIO",
    "ObservedRead",
    "PosixPreadIO",
    "RangeFiles",
    "ReadLog",
    "ReadObserver",
    "ReadTotals",
    "Reading",
    "SeekIO",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'guideloom.io' has no attribute {name!r}")
    require("guideloom_read", f"guideloom.io.{name}")
    value = getattr(require("guideloom_read.io", f"guideloom.io.{name}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

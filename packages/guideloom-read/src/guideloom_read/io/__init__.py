"""I/O backends: how the bytes of a dataset are read. See `guideloom.types.IOReader`."""

from guideloom_read.io._mmap import MmapIO
from guideloom_read.io._observed import ObservedIO, ObservedRead, ReadObserver
from guideloom_read.io._pread import PosixPreadIO
from guideloom_read.io._ranges import RangeFiles
from guideloom_read.io._read_log import Reading, ReadLog, ReadTotals
from guideloom_read.io._seek import SeekIO

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

"""Crash-safe writing of GuideLoom datasets."""

from guideloom_write._clean import CleanReport, clean
from guideloom_write._consolidate import Consolidation, consolidate
from guideloom_write._task_report import ShardOptions, TaskResult, WriteReport
from guideloom_write._write_shards import write_shards
from guideloom_write._writers import DocumentWriter, StreamWithMetaWriter, StreamWriter

__version__ = "0.1.0"

__all__ = [
    "CleanReport",
    "Consolidation",
    "DocumentWriter",
    "ShardOptions",
    "StreamWithMetaWriter",
    "StreamWriter",
    "TaskResult",
    "WriteReport",
    "clean",
    "consolidate",
    "write_shards",
]

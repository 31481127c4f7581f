"""Crash-safe writing of GuideLoom datasets."""

from guideloom_write._writers import DocumentWriter, StreamWithMetaWriter, StreamWriter

__version__ = "0.1.0"

__all__ = ["DocumentWriter", "StreamWithMetaWriter", "StreamWriter"]

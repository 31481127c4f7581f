"""Crash-safe writing of GuideLoom datasets."""

from guideloom_write._stream_writer import StreamWriter

__version__ = "0.1.0"

__all__ = ["StreamWriter"]

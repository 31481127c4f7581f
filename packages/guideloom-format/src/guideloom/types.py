"""Structural types that storage formats and I/O backends implement; nothing to inherit from."""

from guideloom_format import IOFiles, IOReader, IOSession, StreamStorageFormat

__all__ = ["IOFiles", "IOReader", "IOSession", "StreamStorageFormat"]

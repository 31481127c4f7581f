"""Structural types that storage formats and I/O backends implement; nothing to inherit from."""

from guideloom_format import (
    DocumentStorageFormat,
    IOFiles,
    IOReader,
    IOSession,
    StreamStorageFormat,
    StreamWithMetaStorageFormat,
)

__all__ = [
    "DocumentStorageFormat",
    "IOFiles",
    "IOReader",
    "IOSession",
    "StreamStorageFormat",
    "StreamWithMetaStorageFormat",
]

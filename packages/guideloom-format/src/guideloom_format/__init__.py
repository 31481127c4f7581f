"""The GuideLoom on-disk format, index, shuffle and plan. No I/O happens here."""

from guideloom_format._checksum import BLOCK_BYTES, FileIdentity, block_checksums, crc32c
from guideloom_format._errors import (
    DamagedFileError,
    DataError,
    DatasetError,
    DatasetNotFoundError,
    GuideLoomError,
    MismatchError,
    MissingFileError,
    MissingPackageError,
    ReadError,
    ShardConflictError,
    StateMismatchError,
    UnsupportedFormatError,
    WriteError,
    WriterStateError,
)
from guideloom_format._header import Header
from guideloom_format._index import StreamIndex
from guideloom_format._manifest import Manifest
from guideloom_format._parts import FileFacts, Part, PartTable
from guideloom_format._plan import Delivery, EpochPlan
from guideloom_format._record import CommitRecord, Owner
from guideloom_format._shuffle import FeistelShuffler
from guideloom_format._storage import StreamStorage
from guideloom_format._stream_numpy import StreamNumpyFormat
from guideloom_format._types import IOFiles, IOReader, IOSession, StreamStorageFormat

__version__ = "0.1.0"

__all__ = [
    "BLOCK_BYTES",
    "CommitRecord",
    "DamagedFileError",
    "DataError",
    "DatasetError",
    "DatasetNotFoundError",
    "Delivery",
    "EpochPlan",
    "FeistelShuffler",
    "FileFacts",
    "FileIdentity",
    "GuideLoomError",
    "Header",
    "IOFiles",
    "IOReader",
    "IOSession",
    "Manifest",
    "MismatchError",
    "MissingFileError",
    "MissingPackageError",
    "Owner",
    "Part",
    "PartTable",
    "ReadError",
    "ShardConflictError",
    "StateMismatchError",
    "StreamIndex",
    "StreamNumpyFormat",
    "StreamStorage",
    "StreamStorageFormat",
    "UnsupportedFormatError",
    "WriteError",
    "WriterStateError",
    "block_checksums",
    "crc32c",
]

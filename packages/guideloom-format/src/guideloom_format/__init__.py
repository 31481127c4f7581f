"""The GuideLoom on-disk format, index, shuffle and plan. No I/O happens here."""

from guideloom_format._checksum import BLOCK_BYTES, FileIdentity, block_checksums, crc32c
from guideloom_format._document_formats import (
    DocumentBytesFormat,
    DocumentJSONFormat,
    DocumentNumpyFormat,
)
from guideloom_format._document_pickle import DocumentPickleFormat
from guideloom_format._documents import DocumentIndex
from guideloom_format._errors import (
    DamagedFileError,
    DataError,
    DatasetError,
    DatasetNotFoundError,
    GuideLoomError,
    LoaderTimeoutError,
    MismatchError,
    MissingFileError,
    MissingPackageError,
    ReadError,
    ShardConflictError,
    StateMismatchError,
    TaskError,
    UnsupportedFormatError,
    WorkerError,
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
from guideloom_format._span_pieces import pieces
from guideloom_format._spans import SpanIndex, SpanSearch
from guideloom_format._storage import DocumentStorage, StreamStorage, StreamWithMetaStorage
from guideloom_format._stream_numpy import StreamNumpyFormat
from guideloom_format._stream_spans import SpanWindow, StreamSpansFormat
from guideloom_format._types import (
    DocumentStorageFormat,
    IOFiles,
    IOReader,
    IOSession,
    StreamStorageFormat,
    StreamWithMetaStorageFormat,
)

__version__ = "0.1.0"

__all__ = [
    "BLOCK_BYTES",
    "CommitRecord",
    "DamagedFileError",
    "DataError",
    "DatasetError",
    "DatasetNotFoundError",
    "Delivery",
    "DocumentBytesFormat",
    "DocumentIndex",
    "DocumentJSONFormat",
    "DocumentNumpyFormat",
    "DocumentPickleFormat",
    "DocumentStorage",
    "DocumentStorageFormat",
    "EpochPlan",
    "FeistelShuffler",
    "FileFacts",
    "FileIdentity",
    "GuideLoomError",
    "Header",
    "IOFiles",
    "IOReader",
    "IOSession",
    "LoaderTimeoutError",
    "Manifest",
    "MismatchError",
    "MissingFileError",
    "MissingPackageError",
    "Owner",
    "Part",
    "PartTable",
    "ReadError",
    "ShardConflictError",
    "SpanIndex",
    "SpanSearch",
    "SpanWindow",
    "StateMismatchError",
    "StreamIndex",
    "StreamNumpyFormat",
    "StreamSpansFormat",
    "StreamStorage",
    "StreamStorageFormat",
    "StreamWithMetaStorage",
    "StreamWithMetaStorageFormat",
    "TaskError",
    "UnsupportedFormatError",
    "WorkerError",
    "WriteError",
    "WriterStateError",
    "block_checksums",
    "crc32c",
    "pieces",
]

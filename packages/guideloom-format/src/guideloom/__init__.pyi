from guideloom import io as io
from guideloom import shuffle as shuffle
from guideloom import types as types
from guideloom_format import (
    DamagedFileError as DamagedFileError,
)
from guideloom_format import (
    DataError as DataError,
)
from guideloom_format import (
    DatasetError as DatasetError,
)
from guideloom_format import (
    DatasetNotFoundError as DatasetNotFoundError,
)
from guideloom_format import (
    Delivery as Delivery,
)
from guideloom_format import (
    DocumentBytesFormat as DocumentBytesFormat,
)
from guideloom_format import (
    DocumentJSONFormat as DocumentJSONFormat,
)
from guideloom_format import (
    DocumentNumpyFormat as DocumentNumpyFormat,
)
from guideloom_format import (
    DocumentPickleFormat as DocumentPickleFormat,
)
from guideloom_format import (
    DocumentStorage as DocumentStorage,
)
from guideloom_format import (
    EpochPlan as EpochPlan,
)
from guideloom_format import (
    GuideLoomError as GuideLoomError,
)
from guideloom_format import (
    LoaderTimeoutError as LoaderTimeoutError,
)
from guideloom_format import (
    MismatchError as MismatchError,
)
from guideloom_format import (
    MissingFileError as MissingFileError,
)
from guideloom_format import (
    MissingPackageError as MissingPackageError,
)
from guideloom_format import (
    ReadError as ReadError,
)
from guideloom_format import (
    ShardConflictError as ShardConflictError,
)
from guideloom_format import (
    SpanWindow as SpanWindow,
)
from guideloom_format import (
    StateMismatchError as StateMismatchError,
)
from guideloom_format import (
    StreamNumpyFormat as StreamNumpyFormat,
)
from guideloom_format import (
    StreamSpansFormat as StreamSpansFormat,
)
from guideloom_format import (
    StreamStorage as StreamStorage,
)
from guideloom_format import (
    StreamWithMetaStorage as StreamWithMetaStorage,
)
from guideloom_format import (
    TaskError as TaskError,
)
from guideloom_format import (
    UnsupportedFormatError as UnsupportedFormatError,
)
from guideloom_format import (
    WorkerError as WorkerError,
)
from guideloom_format import (
    WriteError as WriteError,
)
from guideloom_format import (
    WriterStateError as WriterStateError,
)
from guideloom_format import (
    __version__ as __version__,
)
from guideloom_read import DocumentDataset as DocumentDataset
from guideloom_read import Padded as Padded
from guideloom_read import Ragged as Ragged
from guideloom_read import SpanBatch as SpanBatch
from guideloom_read import StreamDataset as StreamDataset
from guideloom_read import open as open  # noqa: A004  # called as guideloom.open
from guideloom_read import verify as verify
from guideloom_torch import LoaderStats as LoaderStats
from guideloom_torch import Located as Located
from guideloom_torch import MaskedBatch as MaskedBatch
from guideloom_torch import StatefulDataLoader as StatefulDataLoader
from guideloom_write import ShardOptions as ShardOptions
from guideloom_write import write_shards as write_shards

__all__ = [
    "DamagedFileError",
    "DataError",
    "DatasetError",
    "DatasetNotFoundError",
    "Delivery",
    "DocumentBytesFormat",
    "DocumentDataset",
    "DocumentJSONFormat",
    "DocumentNumpyFormat",
    "DocumentPickleFormat",
    "DocumentStorage",
    "EpochPlan",
    "GuideLoomError",
    "LoaderStats",
    "LoaderTimeoutError",
    "Located",
    "MaskedBatch",
    "MismatchError",
    "MissingFileError",
    "MissingPackageError",
    "Padded",
    "Ragged",
    "ReadError",
    "ShardConflictError",
    "ShardOptions",
    "SpanBatch",
    "SpanWindow",
    "StateMismatchError",
    "StatefulDataLoader",
    "StreamDataset",
    "StreamNumpyFormat",
    "StreamSpansFormat",
    "StreamStorage",
    "StreamWithMetaStorage",
    "TaskError",
    "UnsupportedFormatError",
    "WorkerError",
    "WriteError",
    "WriterStateError",
    "__version__",
    "io",
    "open",
    "shuffle",
    "types",
    "verify",
    "write_shards",
]

def __dir__() -> list[str]: ...

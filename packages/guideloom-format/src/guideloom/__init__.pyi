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
    EpochPlan as EpochPlan,
)
from guideloom_format import (
    GuideLoomError as GuideLoomError,
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
    StateMismatchError as StateMismatchError,
)
from guideloom_format import (
    StreamNumpyFormat as StreamNumpyFormat,
)
from guideloom_format import (
    StreamStorage as StreamStorage,
)
from guideloom_format import (
    UnsupportedFormatError as UnsupportedFormatError,
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
from guideloom_read import StreamDataset as StreamDataset
from guideloom_torch import StatefulDataLoader as StatefulDataLoader

__all__ = [
    "DamagedFileError",
    "DataError",
    "DatasetError",
    "DatasetNotFoundError",
    "Delivery",
    "EpochPlan",
    "GuideLoomError",
    "MismatchError",
    "MissingFileError",
    "MissingPackageError",
    "ReadError",
    "ShardConflictError",
    "StateMismatchError",
    "StatefulDataLoader",
    "StreamDataset",
    "StreamNumpyFormat",
    "StreamStorage",
    "UnsupportedFormatError",
    "WriteError",
    "WriterStateError",
    "__version__",
    "io",
    "shuffle",
    "types",
]

def __dir__() -> list[str]: ...

from guideloom_format import (
    DamagedFileError as DamagedFileError,
    DataError as DataError,
    DatasetError as DatasetError,
    DatasetNotFoundError as DatasetNotFoundError,
    Delivery as Delivery,
    EpochPlan as EpochPlan,
    GuideLoomError as GuideLoomError,
    MismatchError as MismatchError,
    MissingFileError as MissingFileError,
    MissingPackageError as MissingPackageError,
    ReadError as ReadError,
    ShardConflictError as ShardConflictError,
    StateMismatchError as StateMismatchError,
    StreamNumpyFormat as StreamNumpyFormat,
    StreamStorage as StreamStorage,
    UnsupportedFormatError as UnsupportedFormatError,
    WriteError as WriteError,
    WriterStateError as WriterStateError,
    __version__ as __version__,
)
from guideloom_read import StreamDataset as StreamDataset
from guideloom_torch import StatefulDataLoader as StatefulDataLoader

from guideloom import io as io, shuffle as shuffle, types as types

__all__: list[str]

def __dir__() -> list[str]: ...

"""GuideLoom: randomly-addressable dataset storage and a resumable PyTorch DataLoader.

Every public name, found in whichever of the packages is installed, when it is first used. A
module that describes a dataset therefore imports on a machine that has only the writer and on one
that has only the reader.
"""

from __future__ import annotations

import importlib
from typing import Any

from guideloom_format import __version__ as __version__
from guideloom_format._storage import require

_FORMAT = (
    "DamagedFileError",
    "DataError",
    "DatasetError",
    "DatasetNotFoundError",
    "Delivery",
    "DocumentBytesFormat",
    "DocumentJSONFormat",
    "DocumentNumpyFormat",
    "DocumentPickleFormat",
    "DocumentStorage",
    "EpochPlan",
    "GuideLoomError",
    "LoaderTimeoutError",
    "MismatchError",
    "MissingFileError",
    "MissingPackageError",
    "ReadError",
    "ShardConflictError",
    "SpanWindow",
    "StateMismatchError",
    "StreamNumpyFormat",
    "StreamSpansFormat",
    "StreamStorage",
    "StreamWithMetaStorage",
    "TaskError",
    "UnsupportedFormatError",
    "WorkerError",
    "WriteError",
    "WriterStateError",
)
_READ = (
    "DocumentDataset",
    "Padded",
    "Ragged",
    "SpanBatch",
    "StreamDataset",
    "open",
    "verify",
)
_WRITE = (
    "ShardOptions",
    "write_shards",
)
_TORCH = (
    "LoaderStats",
    "Located",
    "MaskedBatch",
    "StatefulDataLoader",
)
_MODULE_OF = {
    **dict.fromkeys(_FORMAT, "guideloom_format"),
    **dict.fromkeys(_WRITE, "guideloom_write"),
    **dict.fromkeys(_READ, "guideloom_read"),
    **dict.fromkeys(_TORCH, "guideloom_torch"),
}
_SUBMODULES = ("io", "shuffle", "types")

__all__ = sorted([*_MODULE_OF, *_SUBMODULES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"guideloom.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'guideloom' has no attribute {name!r}")
    value = getattr(require(_MODULE_OF[name], f"guideloom.{name}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

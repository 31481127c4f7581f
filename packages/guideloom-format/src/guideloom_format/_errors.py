"""The error family. Each is also the built-in error that a caller would expect.

::

    GuideLoomError
    ├── DatasetError                 what is on disk
    │   ├── DatasetNotFoundError     (FileNotFoundError)  no dataset there
    │   ├── MissingFileError         (FileNotFoundError)  a committed file is gone
    │   ├── DamagedFileError         (ValueError)         a file is not what was committed
    │   ├── UnsupportedFormatError   (ValueError)         written by a newer version
    │   └── ReadError                (OSError)            the storage did not deliver
    ├── MismatchError                (ValueError)         two descriptions disagree
    │   └── StateMismatchError                            a loader state of something else
    ├── DataError                    (ValueError)         data that the format cannot hold
    ├── WriteError                   (OSError)            a write failed; its part is void
    │   └── ShardConflictError       (FileExistsError)    another writer committed first
    ├── WriterStateError             (RuntimeError)       this writer cannot go on
    ├── TaskError                    (RuntimeError)       a task of write_shards failed
    ├── WorkerError                  (RuntimeError)       a process of a loader is gone
    ├── LoaderTimeoutError           (TimeoutError)       a batch did not come in time
    └── MissingPackageError          (ImportError)        install something first

Every error takes one string, so that it survives pickling and crosses processes unchanged.
"""

from __future__ import annotations


class GuideLoomError(Exception):
    """Whatever GuideLoom raises by its own decision."""


class DatasetError(GuideLoomError):
    """What is on disk is absent, damaged or too new."""


class DatasetNotFoundError(DatasetError, FileNotFoundError):
    """There is no dataset at the given place."""


class MissingFileError(DatasetError, FileNotFoundError):
    """A file that a commit record or manifest names is not there."""


class DamagedFileError(DatasetError, ValueError):
    """A file's size, checksum, structure or identity is not what was committed."""


class UnsupportedFormatError(DatasetError, ValueError):
    """The dataset needs a format version or feature that this release does not know."""


class ReadError(DatasetError, OSError):
    """The operating system or the storage service reported an error for a read."""


class MismatchError(GuideLoomError, ValueError):
    """A dataset was opened as something that it is not."""


class StateMismatchError(MismatchError):
    """A loader state was loaded into a loader with other data or another order."""


class DataError(GuideLoomError, ValueError):
    """Data given to a writer that its storage format cannot hold. Nothing of it was written."""


class WriteError(GuideLoomError, OSError):
    """A write, sync or publication failed. What was not committed is void."""


class ShardConflictError(WriteError, FileExistsError):
    """Another writer committed the same part of the same shard first."""


class WriterStateError(GuideLoomError, RuntimeError):
    """The writer is closed, or failed earlier, and takes no more calls."""


class TaskError(GuideLoomError, RuntimeError):
    """A task of `write_shards` failed; the text has the task, its shard and the traceback."""


class WorkerError(GuideLoomError, RuntimeError):
    """A worker process could not be started, ended, or sent what cannot be received."""


class LoaderTimeoutError(GuideLoomError, TimeoutError):
    """A batch took longer than the loader's `timeout`."""


class MissingPackageError(GuideLoomError, ImportError):
    """A name needs a distribution that is not installed."""

"""What all backends for local file systems share: names, sizes and small files."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from guideloom_format import DamagedFileError, IOFiles, ReadError
from guideloom_format._sealed import check_end, read_whole

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

OpenMany = Callable[[str, Sequence[str], NDArray[np.int64]], IOFiles]


def open_regular(path: str, size: int | None = None) -> int:
    """A descriptor of a regular file, which is not a symbolic link.

    Raises:
        DamagedFileError: something else is there, or the file has not `size` bytes.
        OSError: as the operating system says.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise DamagedFileError(f"{path} is not a regular file; restore it from a copy")
        if size is not None and found.st_size != size:
            raise DamagedFileError(
                f"{path} has {found.st_size} bytes; {size} were committed. The file is truncated "
                "or damaged: restore it from a copy"
            )
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class LocalSession:
    """One dataset directory on a local file system."""

    def __init__(self, directory: str, open_many: OpenMany) -> None:
        self._directory = os.path.abspath(directory)  # the working folder may change
        self._open_many = open_many

    def list_names(self, folder: str) -> list[str] | None:
        """See `guideloom.types.IOSession`."""
        try:
            return os.listdir(os.path.join(self._directory, folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ReadError(
                f"{self._directory}: the folder {folder} cannot be listed: {error.strerror} "
                f"(errno {error.errno})"
            ) from error

    def read_file(self, name: str, limit: int) -> bytes:
        """See `guideloom.types.IOSession`."""
        path = os.path.join(self._directory, name)
        try:
            descriptor = open_regular(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ReadError(
                f"{path} cannot be opened: {error.strerror} (errno {error.errno})"
            ) from error
        try:
            size = os.fstat(descriptor).st_size
            if size > limit:
                raise DamagedFileError(
                    f"{path} has {size} bytes; a file of its kind has at most {limit}. Restore it "
                    "from a copy"
                )
            check_end(descriptor, size, path)
            return read_whole(descriptor, size)
        except OSError as error:
            raise ReadError(f"{path}: {error.strerror} (errno {error.errno})") from error
        finally:
            os.close(descriptor)

    def file_size(self, name: str) -> int:
        """See `guideloom.types.IOSession`."""
        path = os.path.join(self._directory, name)
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ReadError(f"{path}: {error.strerror} (errno {error.errno})") from error
        if not stat.S_ISREG(found.st_mode):
            raise DamagedFileError(f"{path} is not a regular file; restore it from a copy")
        return found.st_size

    def open_files(self, names: Sequence[str], sizes: NDArray[np.int64]) -> IOFiles:
        """See `guideloom.types.IOSession`."""
        return self._open_many(self._directory, names, sizes)

    def close(self) -> None:
        """Nothing is held between calls."""

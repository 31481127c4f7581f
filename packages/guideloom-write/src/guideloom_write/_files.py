"""Every file operation of the writer. Tests swap this module's class for ones that fail.

Each method is one step that can fail or be the last before a crash. Nothing else in the package
touches the file system.
"""

from __future__ import annotations

import contextlib
import os
import stat

import numpy as np
from numpy.typing import NDArray

from guideloom_format import DamagedFileError
from guideloom_format._sealed import check_end, read_whole


class PosixFiles:
    """File operations on a POSIX file system."""

    def make_folder(self, path: str) -> None:
        """Create a folder; fine if it is there. Its parent must exist."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)

    def folder_exists(self, path: str) -> bool:
        """Whether the folder is there."""
        return os.path.isdir(path)

    def create(self, path: str) -> int:
        """A descriptor of a new file, for writing. FileExistsError if the name is taken."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(path, flags, 0o644)

    def reopen(self, path: str) -> int:
        """A descriptor that writes to the end of a file that was created before."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)

    def write(self, descriptor: int, data: bytes | NDArray[np.uint8]) -> None:
        """Write all of it."""
        view = data if isinstance(data, bytes) else data.data
        while len(view):
            written = os.write(descriptor, view)
            if written == 0:
                raise OSError("the operating system wrote 0 bytes and gave no reason")
            view = view[written:]

    def size(self, path: str) -> int:
        """Size of the file that has this name."""
        return os.lstat(path).st_size

    def sync(self, descriptor: int) -> None:
        """Make the file's data durable."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close; an error of a delayed write may come out here."""
        os.close(descriptor)

    def sync_folder(self, path: str) -> None:
        """Make the entries of a folder durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name. FileExistsError if it is taken: the exclusive step."""
        os.link(source, target, follow_symlinks=False)

    def replace(self, source: str, target: str) -> None:
        """Give `source` the name `target`, whatever has that name now, in one step."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Remove a file name."""
        os.unlink(path)

    def touch(self, path: str) -> None:
        """Set the time of the file's last change to now, by the clock of the file system."""
        os.utime(path, follow_symlinks=False)

    def modified(self, path: str) -> float:
        """When the file was last changed: seconds since 1970, by the file system's clock."""
        return os.lstat(path).st_mtime

    def list_names(self, path: str) -> list[str]:
        """Names in a folder, those of folders in it with a slash behind; none if it is not there.

        A link is not a folder, wherever it leads.
        """
        try:
            with os.scandir(path) as entries:
                return [
                    f"{e.name}/" if e.is_dir(follow_symlinks=False) else e.name for e in entries
                ]
        except FileNotFoundError:
            return []

    def read(self, path: str, limit: int) -> bytes:
        """A whole small file. FileNotFoundError if it is not there.

        Raises:
            DamagedFileError: it has more than `limit` bytes, or is not a regular file.
        """
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise DamagedFileError(f"{path} is not a regular file; restore it from a copy")
            if found.st_size > limit:
                raise DamagedFileError(
                    f"{path} has {found.st_size} bytes; a file of its kind has at most {limit}. "
                    "Restore it from a copy"
                )
            check_end(descriptor, found.st_size, path)
            return read_whole(descriptor, found.st_size)
        finally:
            os.close(descriptor)

"""Publishing a file: durable under a name of its own first, then visible in one step.

`publish_once` never changes what is there, `replace_durably` takes its place.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from guideloom_format import WriteError
from guideloom_format._names import temporary_name
from guideloom_write._files import PosixFiles

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def durable_file(files: PosixFiles, path: str, data: bytes) -> Iterator[None]:
    """A new file with this content, durable; its name is removed at the end of the block."""
    descriptor = files.create(path)
    try:
        try:
            files.write(descriptor, data)
            files.sync(descriptor)
        finally:
            files.close(descriptor)
        found = files.size(path)
        if found != len(data):
            raise WriteError(
                f"{path} has {found} bytes after {len(data)} were written; something else writes "
                "to it, or the file system lost data"
            )
        yield
    finally:
        with contextlib.suppress(OSError):
            files.remove(path)


def link_exclusively(files: PosixFiles, source: str, target: str) -> None:
    """Give `source` the name `target` unless that exists.

    Whether it was this call that created it, the caller finds out by reading it: on network file
    systems the answer to a link can be lost, so an error is not believed where a file is there.

    Raises:
        WriteError: the file system has no hard links.
        OSError: another error, and nothing is there.
    """
    try:
        files.link(source, target)
    except FileExistsError:
        pass
    except OSError as error:
        with contextlib.suppress(FileNotFoundError):
            files.modified(target)
            return
        if error.errno not in _NO_LINKS:
            raise
        named = WriteError(
            f"{target} cannot be created: {error.strerror} (errno {error.errno}). A dataset is "
            "written to a file system with hard links; write elsewhere and copy it there"
        )
        named.errno = error.errno
        raise named from error


def publish_once(files: PosixFiles, path: str, data: bytes, token: str, limit: int) -> bytes:
    """Give a file this content unless it is there: durable, and what stands there afterwards.

    Args:
        files: the file operations.
        path: of the file, in a folder that is there.
        data: the content.
        token: of this session, for the name that the file has before.
        limit: the most bytes that such a file may have.
    """
    temporary = temporary_name(path, token)
    with durable_file(files, temporary, data):
        link_exclusively(files, temporary, path)
    files.sync_folder(os.path.dirname(path))
    return files.read(path, limit)


def replace_durably(files: PosixFiles, path: str, data: bytes, token: str) -> None:
    """Give a file this content, whatever it had: durable, and never a mixture."""
    temporary = temporary_name(path, token)
    with durable_file(files, temporary, data):
        files.replace(temporary, path)
    files.sync_folder(os.path.dirname(path))

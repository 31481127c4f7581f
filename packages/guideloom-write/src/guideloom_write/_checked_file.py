"""One data file and its checksum file, written together in bounded memory.

::

    write(bytes of any size) -> buffer of 4 blocks -> data file
                                       |
                                       +-> checksum per 64 KiB block -> buffer -> .crc file

Large data goes past the buffer. An error in any step is final: see `guideloom_write._part`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from guideloom_format import (
    BLOCK_BYTES,
    FileFacts,
    FileIdentity,
    WriteError,
    block_checksums,
    crc32c,
)
from guideloom_format._checksum import CRC_SUFFIX
from guideloom_write._files import PosixFiles

Bytes = bytes | bytearray | memoryview

_BUFFER_BLOCKS = 4
_BUFFER_BYTES = _BUFFER_BLOCKS * BLOCK_BYTES
_DIRECT_BYTES = 64 * BLOCK_BYTES


class PlainFile:
    """A new file that is only appended to; knows its size and the checksum of all of it."""

    def __init__(self, files: PosixFiles, path: str) -> None:
        self._files = files
        self.path = path
        self._descriptor = files.create(path)
        self.nbytes = 0
        self.crc = 0

    def write(self, data: NDArray[np.uint8], crc: int | None = None) -> None:
        """Write at the end of the file; `crc` is the checksum of all of it then, if known."""
        if self._descriptor < 0:
            self._descriptor = self._files.reopen(self.path)
        self._files.write(self._descriptor, data)
        self.nbytes += data.size
        self.crc = crc32c(data, self.crc) if crc is None else crc

    def finish(self) -> FileFacts:
        """Make the data durable, close, check the size of what has the name.

        Raises:
            WriteError: the file has not the size that was written.
            OSError: from the operating system.
        """
        if self._descriptor < 0:
            self._descriptor = self._files.reopen(self.path)
        self.release()
        found = self._files.size(self.path)
        if found != self.nbytes:
            raise WriteError(
                f"{self.path} has {found} bytes after {self.nbytes} were written; something else "
                "writes to it, or the file system lost data"
            )
        return FileFacts(self.nbytes, self.crc)

    def release(self) -> None:
        """Make the data durable and close the descriptor; `write` opens it again."""
        if self._descriptor >= 0:
            self._files.sync(self._descriptor)
            descriptor, self._descriptor = self._descriptor, -1
            self._files.close(descriptor)

    def abandon(self) -> None:
        """Close without a word, and remove the file."""
        descriptor, self._descriptor = self._descriptor, -1
        try:
            if descriptor >= 0:
                self._files.close(descriptor)
        finally:
            self._files.remove(self.path)


class CheckedFile:
    """A data file with a checksum per block in a file beside it."""

    def __init__(self, files: PosixFiles, path: str, identity: FileIdentity) -> None:
        self.role = identity.role
        self._data = PlainFile(files, path)
        try:
            self._checksums = PlainFile(files, path + CRC_SUFFIX)
        except BaseException:
            self._data.abandon()
            raise
        self._seed = identity.seed()
        self._buffer = np.empty(_BUFFER_BYTES, dtype=np.uint8)
        self._view = self._buffer.data
        self._filled = 0
        self._blocks = 0

    @property
    def nbytes(self) -> int:
        """Bytes appended so far."""
        return self._data.nbytes + self._filled

    def write(self, buffer: Bytes) -> None:
        """Append bytes; they may be changed by the caller afterwards."""
        size = len(buffer)
        filled = self._filled
        if filled + size < _BUFFER_BYTES:
            self._view[filled : filled + size] = buffer
            self._filled = filled + size
            return
        data = np.frombuffer(buffer, dtype=np.uint8)
        if filled:
            taken = _BUFFER_BYTES - filled
            self._buffer[filled:] = data[:taken]
            self._write_blocks(self._buffer)
            data = data[taken:]
        whole = data.size - data.size % BLOCK_BYTES
        for start in range(0, whole, _DIRECT_BYTES):
            self._write_blocks(data[start : min(start + _DIRECT_BYTES, whole)])
        rest = data[whole:]
        self._buffer[: rest.size] = rest
        self._filled = rest.size

    def finish(self) -> dict[str, FileFacts]:
        """Write what is buffered and finish both files: their facts by role."""
        if self._filled:
            self._write_blocks(self._buffer[: self._filled])
            self._filled = 0
        return {
            self.role: self._data.finish(),
            self.role + CRC_SUFFIX: self._checksums.finish(),
        }

    def release(self) -> None:
        """Give back the descriptors for a while."""
        self._data.release()
        self._checksums.release()

    def abandon(self) -> None:
        """Close and remove both files."""
        try:
            self._data.abandon()
        finally:
            self._checksums.abandon()

    def _write_blocks(self, data: NDArray[np.uint8]) -> None:
        checksums, crc = block_checksums(self._seed, self._blocks, data, self._data.crc)
        self._data.write(data, crc)
        self._checksums.write(checksums.view(np.uint8))
        self._blocks += checksums.size

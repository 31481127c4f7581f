"""Batches on their way from one process to another, through memory that has no name.

::

    worker   pickle, with every array and tensor beside it   ->  an anonymous file (memfd)
             its descriptor travels with the message
    parent   maps the file                                   ->  arrays and tensors in it

The mapping goes with the last array that lies in it, the file with the mapping: whatever is killed,
nothing is left. No descriptor stays open. Small batches travel in the message. Those up to `MAPPED`
are copied out of the file, as a process may have only some 65,000 mappings; together with one use
of the batch that takes as long as mapping it.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import pickle
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

_HEAD = struct.Struct("<QQQ")  # bytes of the note and of the pickle, number of buffers behind them
_ALIGNMENT = 64
LOST = -1
"""In place of a descriptor: one that could not be received."""
SMALL = 16384
"""Bytes that travel in a message; every message is far smaller than what a socket holds."""
MAPPED = 1 << 20
"""Bytes from which on the file is mapped."""


def pack(
    value: Any, or_else: Callable[[Any], bytes], note: bytes = b""
) -> tuple[bytes, int | None]:
    """A value as bytes, or as the descriptor of an anonymous file that has them.

    Args:
        value: to send.
        or_else: pickles what the plain pickler cannot, such as lambdas.
        note: beside the value, for who receives it without unpickling it.

    Returns:
        the bytes and None, or no bytes and the descriptor, which the caller closes.
    """
    buffers: list[memoryview] = []
    body = _pickled(value, or_else, buffers)
    head = _HEAD.pack(len(note), len(body), len(buffers)) + struct.pack(
        f"<{len(buffers)}Q", *(buffer.nbytes for buffer in buffers)
    )
    pieces = [memoryview(head), memoryview(note), memoryview(body), *buffers]
    starts, size = [], 0
    for piece in pieces:
        size += -size % _ALIGNMENT
        starts.append(size)
        size += piece.nbytes
    if size <= SMALL:
        small = bytearray(size)
        for start, piece in zip(starts, pieces, strict=True):
            small[start : start + piece.nbytes] = piece
        return bytes(small), None
    descriptor = os.memfd_create("guideloom-batch", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
        with mmap.mmap(descriptor, size) as whole:
            for start, piece in zip(starts, pieces, strict=True):
                whole[start : start + piece.nbytes] = piece
    except BaseException:
        os.close(descriptor)
        raise
    return b"", descriptor


class NotNowError(Exception):
    """A value cannot be unpickled in this thread without waiting for an import."""


class Parcel:
    """What was received: in memory, and not unpickled yet.

    Args:
        data: of `pack`.
        descriptor: of `pack`, or `LOST`; is closed.

    Attributes:
        note: that was sent beside the value.

    Raises:
        OSError, RuntimeError: it cannot be received.
    """

    def __init__(self, data: bytes, descriptor: int | None) -> None:
        whole = _in_memory(data, descriptor)
        note_bytes, body_bytes, count = _HEAD.unpack_from(whole)
        sizes = struct.unpack_from(f"<{count}Q", whole, _HEAD.size)
        at, pieces = 0, []
        for size in (_HEAD.size + 8 * count, note_bytes, body_bytes, *sizes):
            at += -at % _ALIGNMENT
            pieces.append(whole[at : at + size])
            at += size
        self.note = bytes(pieces[1])
        self._body, self._buffers = pieces[2], pieces[3:]

    def open(self, *, waits: bool = True) -> Any:
        """The value; arrays and tensors are writable, if they were.

        Args:
            waits: for imports that it needs, and that other threads have begun.

        Raises:
            NotNowError: it does not wait, and might have to.
        """
        if waits:
            return loads(self._body, self._buffers)
        return _Unpickler(io.BytesIO(self._body), buffers=self._buffers).load()


def unpack(data: bytes, descriptor: int | None) -> Any:
    """What `pack` was given; closes the descriptor."""
    return Parcel(data, descriptor).open()


def _in_memory(data: bytes, descriptor: int | None) -> memoryview:
    if descriptor == LOST:
        raise OSError(
            errno.EMFILE,
            "a batch could not be received, because this process has too many open files; close "
            "some, or raise the limit (ulimit -n)",
        )
    if descriptor is None:
        return memoryview(bytearray(data))
    try:
        size = os.fstat(descriptor).st_size
        if size < MAPPED:
            return _read(descriptor, size)
        try:
            return _mapped(descriptor, size)
        except RuntimeError as error:  # this process has as many mappings as it may have, say
            try:
                return _read(descriptor, size)
            except MemoryError:
                raise error from None
    finally:
        os.close(descriptor)


def _mapped(descriptor: int, size: int) -> memoryview:
    # Python's mmap would keep a descriptor open for every batch that someone keeps
    name = f"/proc/self/fd/{descriptor}"
    tensor = torch.from_file(name, True, size, dtype=torch.uint8, device="cpu")
    return memoryview(tensor.numpy().data)


def _read(descriptor: int, size: int) -> memoryview:
    whole = memoryview(np.empty(size, np.uint8).data)
    done = 0
    while done < size:
        done += os.preadv(descriptor, [whole[done:]], done)
    return whole


def dumps(value: Any) -> bytes:
    """A small message."""
    return pickle.dumps(value)


def loads(data: bytes | memoryview, buffers: Sequence[memoryview] = ()) -> Any:
    """What a process of this loader made, and sent through a socket that has no name."""
    return pickle.loads(data, buffers=buffers)  # noqa: S301  # see the docstring


def send(to: socket.socket, head: bytes, data: bytes, descriptor: int | None) -> None:
    """One message: a head of a fixed size above 0, data, perhaps a descriptor, which stays open."""
    if descriptor is None:
        to.sendall(head + data)
    else:
        socket.send_fds(to, [head + data], [descriptor])


def receive(source: socket.socket, head_size: int) -> tuple[bytes, bytes, int | None] | None:
    """The next message, parted into its head, its data and its descriptor; None at the end."""
    most = head_size + SMALL
    message, descriptors, flags, _ = socket.recv_fds(source, most, 1, socket.MSG_CMSG_CLOEXEC)
    if not message:
        return None
    descriptor = descriptors[0] if descriptors else None
    if flags & socket.MSG_CTRUNC:  # this process may not open one more
        descriptor = LOST
    return message[:head_size], message[head_size:], descriptor


class _Unpickler(pickle.Unpickler):
    """Imports nothing, and waits for no import."""

    def find_class(self, module: str, name: str) -> Any:
        there = sys.modules.get(module)
        spec = getattr(there, "__spec__", None)
        # what functions of dill import is not to be seen here
        if there is None or getattr(spec, "_initializing", False) or module.startswith("dill."):
            raise NotNowError(module)
        return super().find_class(module, name)


class _Pickler(pickle.Pickler):
    """Tensors beside the pickle, as arrays are; anything else as usual."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor and _is_plain(value):
            flat = value.detach().contiguous().view(-1)
            if flat.numel() < 2:  # contiguous with any stride, which `view` does not take
                flat = torch.empty(flat.shape, dtype=flat.dtype, device="cpu").copy_(flat)
            raw = flat.view(torch.uint8).numpy()
            parts = (np.ascontiguousarray(raw), value.dtype, tuple(value.shape))
            return _tensor, (*parts, value.requires_grad)
        if type(value) is torch.Tensor and value.is_mkldnn:  # torch has no pickle of it
            return torch.Tensor.to_mkldnn, (value.detach().to_dense(),)
        if type(value) is np.ndarray and not value.flags.forc and not value.dtype.hasobject:
            return value.copy(order="C").__reduce_ex__(5)  # NumPy would lose its byte order
        return NotImplemented


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.is_nested
        and tensor.is_leaf
        and not vars(tensor)  # attributes that someone gave it
    )


def _tensor(raw: np.ndarray, dtype: torch.dtype, shape: tuple[int, ...], grad: bool) -> Any:
    made = (
        torch.from_numpy(raw).view(dtype).view(shape)
        if raw.size
        else torch.empty(shape, dtype=dtype, device="cpu")
    )
    return made.requires_grad_() if grad else made


def _pickled(value: Any, or_else: Callable[[Any], bytes], buffers: list[memoryview]) -> bytes:
    def beside(buffer: pickle.PickleBuffer) -> None:
        buffers.append(buffer.raw())

    out = io.BytesIO()
    try:
        _Pickler(out, protocol=5, buffer_callback=beside).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        buffers.clear()
        return or_else(value)
    return out.getvalue()

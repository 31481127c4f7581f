"""What is sent between processes arrives as it was, in memory that goes when it is dropped."""

from __future__ import annotations

import collections
import dataclasses
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guideloom import SpanBatch
from guideloom_torch import _transfer
from guideloom_torch._span_tensors import TensorSpanBatch

from .process_cases import (
    descriptors,
    load,
    plain,
    write,
)

HEAD = b"12345678"


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Record:
    name: str
    value: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any


class Tagged(dict[str, Any]):
    """A subclass with a state of its own."""

    tag = "none"


def dumps(value: Any) -> bytes:
    from multiprocess.reduction import ForkingPickler

    return bytes(ForkingPickler.dumps(value))


def sent(value: Any) -> Any:
    """What arrives of a value through a socket; nothing stays open."""
    before = descriptors()
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        data, descriptor = _transfer.pack(value, dumps)
        _transfer.send(one, HEAD, data, descriptor)
        if descriptor is not None:
            os.close(descriptor)
        received = _transfer.receive(other, len(HEAD))
    assert received is not None
    head, data, descriptor = received
    assert head == HEAD
    value = _transfer.unpack(data, descriptor)
    assert descriptors() == before
    return value


TENSOR_TYPES = [
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32,
    torch.uint64, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e8m0fnu,
]  # fmt: skip
ARRAY_TYPES = [
    *"?bBhHiIqQefdFD", "g", "G", ">i4", ">f8", ">c8", "S3", "U2", ">U2", "V5", "M8[s]", "m8[ns]",
    [("a", "<u2"), ("b", ">f4", (2,))], [("packed", "u1"), ("number", "<u4")],
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4,
]  # fmt: skip
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    dtype = np.dtype(draw(st.sampled_from(ARRAY_TYPES)))
    shape = draw(SHAPES)
    count = int(np.prod(shape, dtype=int))
    raw = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 3, count * dtype.itemsize)
    array = np.frombuffer(raw.astype(np.uint8).tobytes(), dtype).reshape(shape).copy()
    how = draw(st.sampled_from(["", "fortran", "steps", "backwards", "read-only", "spread"]))
    if how == "fortran":
        array = np.asfortranarray(array)
    elif how == "steps" and array.ndim:
        array = np.repeat(array, 2, axis=0)[::2]
    elif how == "backwards" and array.ndim:
        array = array[::-1]
    elif how == "spread" and array.ndim:
        array = np.broadcast_to(array, (2, *array.shape))
    elif how == "read-only":
        array.flags.writeable = False
    return array


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(TENSOR_TYPES))
    shape = draw(SHAPES)
    count = int(np.prod(shape, dtype=int))
    size = torch.empty((), dtype=dtype).element_size()
    source = np.random.default_rng(draw(st.integers(0, 99)))
    raw = source.integers(0, 2 if dtype is torch.bool else 120, count * size, dtype=np.uint8)
    tensor = torch.from_numpy(raw).view(dtype) if count else torch.empty(0, dtype=dtype)
    tensor = tensor.view(shape)
    how = draw(st.sampled_from(["", "transposed", "steps", "expanded", "grad", "conj", "neg"]))
    if how == "transposed" and tensor.ndim > 1:
        tensor = tensor.transpose(0, -1)
    elif how == "steps" and tensor.ndim:
        tensor = tensor[::2]
    elif how == "expanded":
        tensor = tensor.expand(2, *tensor.shape)
    elif how == "grad" and (tensor.is_floating_point() or tensor.is_complex()):
        tensor.requires_grad_()
    elif how == "conj" and tensor.is_complex():
        tensor = tensor.conj()
    elif how == "neg" and tensor.is_complex():
        tensor = tensor.conj().imag
    return tensor


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
    | st.binary(max_size=40)
    | st.binary(min_size=20_000, max_size=20_001)
    | st.binary(max_size=9).map(bytearray)
    | arrays()
    | arrays()
    | tensors()
    | tensors()
)


def _wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2) | st.integers(0, 3), inner, max_size=3)
        | st.builds(Pair, inner, inner)
        | st.builds(Record, st.text(max_size=2), inner)
        | st.builds(Frozen, inner)
        | inner.map(lambda value: collections.OrderedDict(a=value, b=[value]))
        | inner.map(lambda value: Tagged(a=value))
        | inner.map(lambda value: [value, value])
    )


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.recursive(LEAVES, _wider, max_leaves=6))
def test_what_arrives_is_what_was_sent(value: Any) -> None:
    before, after = plain(value), sent(value)
    assert plain(after) == before
    check_types(value, after)
    assert plain(value) == before  # what was sent is as it was


def check_types(before: Any, after: Any) -> None:
    """Types, dtypes and flags, all the way down; and that what arrived can be written."""
    assert type(after) is type(before)
    if isinstance(before, torch.Tensor):
        assert (after.dtype, after.shape) == (before.dtype, before.shape)
        assert after.requires_grad == before.requires_grad
        if before.is_leaf:
            after.detach().zero_()
    elif isinstance(before, np.ndarray):
        assert (after.dtype, after.shape) == (before.dtype, before.shape)
        assert after.flags.aligned
        assert after.flags.writeable or not before.flags.writeable
        if after.flags.writeable:
            after[...] = np.zeros((), after.dtype)
    elif isinstance(before, dict):
        for key in before:
            check_types(before[key], after[key])
    elif isinstance(before, list | tuple):
        for old, new in zip(before, after, strict=True):
            check_types(old, new)
    elif dataclasses.is_dataclass(before):
        for field in dataclasses.fields(before):
            check_types(getattr(before, field.name), getattr(after, field.name))


UNUSUAL: dict[str, Callable[[], Any]] = {
    "object array": lambda: np.array([1, "two", None, [3]], dtype=object),
    "parameter": lambda: torch.nn.Parameter(torch.arange(3.0)),
    "zero bytes": lambda: np.zeros((0, 7), "<u2"),
    "array scalar": lambda: np.float32(2.5),
    "dtype": lambda: np.dtype([("a", "<u2")]),
    "torch dtype": lambda: torch.bfloat16,
    "set": lambda: {1, 2},
    "slice": lambda: slice(1, 2),
    "exception": lambda: ValueError("mine"),
    "generator of torch": lambda: torch.Generator().manual_seed(3).get_state(),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_values(name: str) -> None:
    before = UNUSUAL[name]()
    after = sent(before)
    assert type(after) is type(before)
    assert repr(after) == repr(before)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_lazy_views(dtype: torch.dtype, grad: bool) -> None:
    """Tensors whose memory is not what they hold, and such as are not leaves of a graph."""
    tensor = torch.tensor([1 + 2j, 3 - 4j], dtype=dtype)
    for lazy in (tensor.conj(), tensor.conj().imag, tensor.imag, torch.view_as_real(tensor).T):
        before = lazy.requires_grad_() if grad and lazy.is_leaf else lazy
        found = sent(before)
        assert torch.equal(found.resolve_conj().resolve_neg(), lazy.resolve_conj().resolve_neg())
        assert (found.dtype, found.shape) == (lazy.dtype, lazy.shape)
    of_a_graph = torch.ones(2, requires_grad=True) * 2
    found = sent(of_a_graph)
    assert torch.equal(found, of_a_graph)
    assert (found.requires_grad, found.grad_fn) == (True, None)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_masked_and_sparse() -> None:
    masked = np.ma.masked_array(np.arange(4), [False, True, False, True], fill_value=9)
    found = sent(masked)
    assert isinstance(found, np.ma.MaskedArray)
    assert (found.filled().tolist(), found.data.tolist()) == ([0, 9, 2, 9], [0, 1, 2, 3])
    sparse = torch.eye(3).to_sparse()
    found = sent(sparse)
    assert found.layout is torch.sparse_coo
    assert torch.equal(found.to_dense(), torch.eye(3))
    rows = torch.eye(3).to_sparse_csr()
    assert torch.equal(sent(rows).to_dense(), torch.eye(3))


@pytest.mark.filterwarnings("ignore:.*[Qq]uant.*:")
@pytest.mark.filterwarnings("ignore:.*TypedStorage.*:")
def test_quantized() -> None:
    quantized = torch.quantize_per_tensor(torch.arange(4.0), 0.5, 1, torch.quint8)
    found = sent(quantized)
    assert found.is_quantized
    assert torch.equal(found.dequantize(), quantized.dequantize())


@pytest.mark.parametrize("kind", [SpanBatch, TensorSpanBatch])
def test_batches_of_spans(tmp_path: Path, kind: type[SpanBatch]) -> None:
    directory = write("spans", tmp_path / "spans")
    loader = load("spans", directory)
    batch: Any = next(iter(loader))
    if kind is SpanBatch:
        batch = loader._pinned.reader().gather(np.arange(3))
    assert type(batch) is kind
    found = sent(batch)
    assert type(found) is kind
    assert plain(found) == plain(batch)
    assert type(found.document_ids()) is type(batch.document_ids())
    loader.close()


def test_what_occurs_twice_is_one_object() -> None:
    tensor, array, text = torch.arange(3), np.arange(3), "a text"
    one, two, three, four, five = sent([tensor, tensor, array, array, (text, text)])
    assert one is two
    assert three is four
    assert five[0] is five[1]
    one.zero_()
    assert two.sum() == 0


def test_lambdas_and_closures_travel_beside_tensors() -> None:
    number, data = 3, torch.arange(100_000)
    function, found = sent((lambda x: x + number, data))
    assert function(4) == 7
    assert torch.equal(found, data)


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, *range(16_000, 16_500, 7), 1 << 20, 64 << 20])
def test_every_size(nbytes: int) -> None:
    """Around the size from which on an anonymous file is used, and far from it."""
    array = np.arange(nbytes, dtype=np.uint8)
    found = sent({"array": array, "text": "x" * (nbytes % 100)})
    assert found["text"] == "x" * (nbytes % 100)
    assert np.array_equal(found["array"], array)
    assert found["array"].ctypes.data % 16 == 0 or not nbytes


@given(st.binary(max_size=300), st.integers(0, 40_000))
@settings(max_examples=60, deadline=None)
def test_the_head_of_a_message_is_free(head: bytes, size: int) -> None:
    if not head:
        head = b"h"
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        data, descriptor = _transfer.pack(b"x" * size, dumps)
        _transfer.send(one, head, data, descriptor)
        received = _transfer.receive(other, len(head))
        if descriptor is not None:
            os.close(descriptor)
    assert received is not None
    assert received[0] == head
    assert _transfer.unpack(*received[1:]) == b"x" * size


def test_the_end_of_a_connection_is_no_message() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with other:
        one.close()
        assert _transfer.receive(other, 8) is None

"""A device whose streams run late, batches of any structure, and what placing makes of them."""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from guideloom import SpanBatch
from guideloom_torch._devices import Streams
from guideloom_torch._placement import Placement
from guideloom_torch._span_tensors import TensorSpanBatch

POISON = 77  # what memory holds that no stream has written yet
UNSIGNED = {torch.uint16: torch.int32, torch.uint32: torch.int64}


class LateStreams(Streams):
    """A device in which a stream does nothing until someone waits for an event on it.

    What is read too early has the poison in it. Everything is noted in `log`: (what, tensor or
    event, stream).
    """

    asynchronous = True

    def __init__(self) -> None:
        super().__init__(torch.device("cuda", 0))
        self.side = "side"
        self.log: list[tuple[str, Any, str]] = []
        self._queues: dict[str, list[Any]] = collections.defaultdict(list)
        self._there: dict[int, torch.Tensor] = {}
        self._local = threading.local()
        self._lock = threading.Lock()

    def current(self) -> str:
        return getattr(self._local, "stream", f"home of {threading.get_ident()}")

    @contextmanager
    def on(self, stream: str) -> Iterator[None]:
        before = self.current()
        self._local.stream = stream
        try:
            yield
        finally:
            self._local.stream = before

    def holds(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._there

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that is on the device already, made by this thread's stream."""
        return self._queued(tensor, tensor.dtype)

    def pin(self, value: Any) -> Any:
        pinned = value.clone() if isinstance(value, torch.Tensor) else value.pin_memory()
        self._note("pin", pinned)
        return pinned

    def copy(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            copied = self._queued(value, value.dtype)
        else:
            copied = value.to(self.device, non_blocking=True)
        self._note("copy", copied)
        return copied

    def widen(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        assert self.holds(tensor)
        wide = self._queued(tensor, dtype)
        self._note("widen", wide)
        return wide

    def record(self) -> tuple[str, int]:
        with self._lock:
            event = (self.current(), len(self._queues[self.current()]))
        self._note("record", event)
        return event

    def wait(self, event: tuple[str, int]) -> None:
        self._note("wait", event)
        stream, until = event
        with self._lock:
            for k in range(until):
                self._queues[stream][k]()
                self._queues[stream][k] = lambda: None

    def keep(self, value: Any) -> None:
        self._note("keep", value)

    def noted(self, what: str) -> list[Any]:
        return [value for noted, value, _ in self.log if noted == what]

    def _queued(self, source: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        late = torch.full(source.shape, POISON).to(dtype)
        with self._lock:
            self._there[id(late)] = late
            self._queues[self.current()].append(lambda: late.copy_(source))
        return late

    def _note(self, what: str, value: Any) -> None:
        with self._lock:
            self.log.append((what, value, self.current()))


class LatePlacement(Placement):
    """A placement on such a device."""

    def __init__(self, pin_memory: bool = False, widen: torch.dtype | bool | None = None) -> None:
        super().__init__("cpu", pin_memory, widen)
        self.late = LateStreams()
        self.made = 0

    def _make_streams(self) -> Streams:
        self.made += 1
        return self.late


class Pair(NamedTuple):
    left: Any
    right: Any


class ListOfOwn(list[Any]):
    pass


class TupleOfOwn(tuple[Any, ...]):
    __slots__ = ()


@dataclass
class Plain:
    first: Any
    second: Any
    total: Any = field(init=False)

    def __post_init__(self) -> None:
        self.total = self.first
        self.note = "not a field"


@dataclass(frozen=True)
class Frozen:
    first: Any
    second: Any
    unset: Any = field(init=False)


@dataclass(frozen=True, slots=True)
class Slots:
    first: Any
    second: Any


class Inner(Mapping[str, Any]):
    """A mapping that cannot be built of a dict, nor copied and changed."""

    def __init__(self, first: Any, second: Any) -> None:
        self.parts = {"first": first, "second": second}

    def __getitem__(self, key: str) -> Any:
        return self.parts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)


class Shallow(collections.abc.MutableMapping[str, Any]):
    """A mapping whose copy writes into the original."""

    def __init__(self, first: Any, second: Any) -> None:
        self.parts = {"first": first, "second": second}

    def __getitem__(self, key: str) -> Any:
        return self.parts[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.parts[key] = value

    def __delitem__(self, key: str) -> None:
        del self.parts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)


AS_DICT = (Inner, Shallow)


class Other:
    """Something that nobody knows."""


def _default_dict(first: Any, second: Any) -> Any:
    made: collections.defaultdict[str, Any] = collections.defaultdict(list)
    made.update(first=first, second=second)
    return made


def _spans(kind: type[SpanBatch]) -> Any:
    return lambda first, second: kind(
        {"tokens": first, "more": second}, second, first, second, first, second, None, 5
    )


PAIRS = [
    Pair,
    Plain,
    Frozen,
    Slots,
    Inner,
    Shallow,
    _default_dict,
    _spans(SpanBatch),
    _spans(TensorSpanBatch),
    lambda first, second: {"first": first, 2: second},
    lambda first, second: collections.OrderedDict(b=first, a=second),
    lambda first, second: collections.UserDict(first=first, second=second),
    lambda first, second: MappingProxyType({"first": first, "second": second}),
    lambda first, second: [first, second],
    lambda first, second: (first, second),
    lambda first, second: ListOfOwn([first, second]),
    lambda first, second: TupleOfOwn((first, second)),
    lambda first, second: [first, [second, second]],
]

DTYPES = [
    *(torch.uint8, torch.uint16, torch.uint32, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
]


@st.composite
def tensors(draw: st.DrawFn, dtypes: list[torch.dtype]) -> torch.Tensor:
    """Of every type, any layout in memory; values at the borders of the type."""
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    count = int(np.prod(shape, dtype=int))
    raw = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    if dtype is torch.bool:
        raw = bytes(byte & 1 for byte in raw)
    if draw(st.booleans()):
        raw = b"\xff" * len(raw) if dtype in UNSIGNED else raw
    tensor = torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    tensor = tensor.reshape(shape)
    if tensor.ndim > 1 and draw(st.booleans()):
        return tensor.transpose(0, 1)
    if tensor.ndim and draw(st.booleans()):
        return tensor[::2]
    return tensor


@st.composite
def batches(draw: st.DrawFn, dtypes: list[torch.dtype] = DTYPES) -> Any:
    """Any structure; its leaves come from few, so that many occur twice."""
    pool: list[Any] = draw(st.lists(tensors(dtypes), max_size=3))
    pool += [torch.zeros(1), None, 3, "text", np.arange(3, dtype=np.uint16), Other(), len]
    if draw(st.booleans()):
        parts = [torch.arange(k, dtype=dtypes[0]) for k in (1, 3, 2)]
        pool.append(pack_sequence(parts, enforce_sorted=False))

    def wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.builds(lambda make, a, b: make(a, b), st.sampled_from(PAIRS), inner, inner)

    return draw(st.recursive(st.sampled_from(pool), wider, max_leaves=8))


def check(before: Any, after: Any, placement: Placement, *, copied: bool) -> list[torch.Tensor]:
    """Value by value the same, with the structure, the types and the sharing; all its tensors.

    Args:
        before: the batch as it was given.
        after: as it was delivered.
        placement: what placed it.
        copied: whether all tensors must be others than before.
    """
    pairs: list[tuple[Any, Any]] = []
    _walk(before, after, pairs)
    made: dict[int, Any] = {}
    for old, new in pairs:
        assert made.setdefault(id(old), new) is new  # what was shared still is
        if not isinstance(old, torch.Tensor):
            assert new is old
            continue
        wide = placement.widen if old.dtype in UNSIGNED else None
        assert new.dtype == (wide or old.dtype)
        assert new.shape == old.shape
        if wide is not None:
            assert new.tolist() == old.to(torch.int64).tolist()
        else:
            assert (new is old) is (not copied)
            assert _bytes(new) == _bytes(old)
    return [new for old, new in pairs if isinstance(old, torch.Tensor)]


def fingerprint(batch: Any) -> list[Any]:
    """Which objects it has, and what is in its tensors."""
    pairs: list[tuple[Any, Any]] = []
    _walk(batch, batch, pairs)
    leaves = [leaf for leaf, _ in pairs]
    return [(id(leaf), isinstance(leaf, torch.Tensor) and _bytes(leaf)) for leaf in leaves]


def _bytes(tensor: torch.Tensor) -> bytes:
    if not tensor.numel():
        return b""
    whole = tensor.clone(memory_format=torch.contiguous_format)
    return whole.reshape(-1).view(torch.uint8).numpy().tobytes()


def _walk(old: Any, new: Any, pairs: list[tuple[Any, Any]]) -> None:
    if isinstance(old, AS_DICT) and new is not old:
        assert type(new) is dict
    else:
        assert type(new) is type(old)
    if isinstance(old, PackedSequence):
        assert new.batch_sizes is old.batch_sizes
        names = ("data", "sorted_indices", "unsorted_indices")
        pairs.extend((getattr(old, name), getattr(new, name)) for name in names)
    elif isinstance(old, Mapping):
        assert list(new) == list(old)
        for key in old:
            _walk(old[key], new[key], pairs)
        if isinstance(old, collections.defaultdict):
            assert new.default_factory is old.default_factory
    elif isinstance(old, (list, tuple)):
        for one, other in zip(old, new, strict=True):
            _walk(one, other, pairs)
    elif is_dataclass(old):
        assert isinstance(old, Plain) is (getattr(new, "note", None) == "not a field")
        for name in [one.name for one in fields(old)]:
            assert hasattr(new, name) is hasattr(old, name)
            if hasattr(old, name):
                _walk(getattr(old, name), getattr(new, name), pairs)
    else:
        pairs.append((old, new))

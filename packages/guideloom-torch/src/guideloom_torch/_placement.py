"""Where batches go: pinned memory, a device, wide integers.

::

    loading thread     pin ── copy ── widen ── event           on a stream beside training's
                                                 ╎
    training thread                              wait ── record_stream ── step      Placed.ready()

The copies overlap with the step before, and yet no memory is used again too early:

* Pinned memory. `Tensor.pin_memory` takes it from torch's caching host allocator. Each non-blocking
  copy leaves an event there (``copy_kernel_cuda`` calls ``CachingHostAllocator_recordEvent``, see
  ``ATen/cuda/CachingHostAllocator.h``), and a block that was freed is handed out again only when
  its events have happened. So the pinned tensor may be dropped while its copy is under way. Memory
  that a collate_fn has pinned by other means is its own to keep. A copy from memory that is not
  pinned has read its source when the call returns.
* Device memory is allocated on the side stream, so that the allocator would use it for the next
  copies as soon as Python drops the tensor, whatever the training stream still has queued.
  `Tensor.record_stream` in `Placed.ready` makes it wait for that as well.
* A batch whose placing failed, or that is never asked for, has been used by the side stream alone,
  and that works in order.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from guideloom_format._integers import as_flag, shown
from guideloom_torch._devices import (
    PinningStreams,
    SideStreams,
    Streams,
    accelerator,
    checked_device,
    has_streams,
    numbered,
)
from guideloom_torch._nested import INSIDE, Where, moves_itself, name_of, rebuilt

_HELD_BY = {torch.int32: (torch.uint16,), torch.int64: (torch.uint16, torch.uint32)}
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)


class Placement:
    """Where batches go: device, pinned memory, wide integers.

    Tensors are found inside mappings, lists, tuples, named tuples and dataclasses, which are built
    anew around what changed, without calling ``__init__``; the batch given is not changed. Mappings
    keep their type where they can be copied, and become dicts where not. A tensor that occurs twice
    is copied once. A `PackedSequence`, and an object with methods ``to`` and ``pin_memory``, is
    moved by these; so is one with either whose parts are not known here. All else is the same
    object as before.

    A device without streams, such as a CPU, has the same code with copies that block.

    Args:
        device: a torch.device, its name, or the number of an accelerator; None leaves tensors
            where they are. A name without a number, such as "cuda", is the device that is current
            in the thread that calls `settle`.
        pin_memory: copy by way of pinned memory; with `device` None, deliver in pinned memory. It
            is for accelerators: without one, or with `device` "cpu", it has no effect, so that a
            script runs everywhere as it is.
        widen: True or torch.int64 makes int64 of uint16 and uint32, torch.int32 makes int32 of
            uint16; this is done on the device, so that the small type travels. All other types
            stay. With objects that move themselves, this is done for `PackedSequence` alone.

    Raises:
        TypeError, ValueError: an argument that is not one of these, or a device that is not there.
    """

    def __init__(
        self,
        device: torch.device | str | int | None = None,
        pin_memory: bool = False,
        widen: torch.dtype | bool | None = None,
    ) -> None:
        self.device = None if device is None else checked_device(device)
        self.pin_memory = as_flag("pin_memory", pin_memory)
        self.widen = _checked_widen(widen)
        self._settled: torch.device | None = None
        # By process: a stream does not survive a fork. Nothing is made before it is needed, as
        # CUDA that was initialised in a process cannot be used in those forked from it.
        self._streams: dict[int, Streams] = {}

    @property
    def does_nothing(self) -> bool:
        """Whether every batch comes out as it went in."""
        return self.device is None and not self.pin_memory and self.widen is None

    def settle(self) -> None:
        """Say which device "cuda" is: this thread's, now. Does not initialise it.

        To be called by the training thread before the first batch. Every thread has a current
        device of its own, and in a loading thread it is device 0, whatever training has set.
        """
        if self._settled is None:
            wanted = self.device
            if wanted is None and self.pin_memory:
                wanted = accelerator()
            self._settled = None if wanted is None else numbered(wanted)

    def place(self, batch: Any) -> Placed:
        """Start the copies of a batch, from any thread, any number of threads at once.

        Raises:
            TypeError: integers of a type that `widen` does not hold.
            ValueError: the batch contains itself.
        """
        if self.does_nothing:
            return Placed(batch)
        process = os.getpid()
        streams = self._streams.get(process)
        if streams is None:  # of two threads that come here at once, both get the same
            streams = self._streams.setdefault(process, self._make_streams())
        work = _Work(streams, self.pin_memory, self.widen)
        with streams.on(streams.side):
            batch = rebuilt(batch, work.change)
            events = [streams.record()] if work.kept else []
        if work.found:
            with streams.on(work.home):
                events.append(streams.record())
        return Placed(batch, streams, events, work.kept, work.later)

    def _make_streams(self) -> Streams:
        self.settle()
        settled = self._settled
        if self.device is None:
            return Streams(None) if settled is None else PinningStreams(settled)
        if settled is not None and has_streams(settled):
            return SideStreams(settled)
        return Streams(settled)

    def __getstate__(self) -> tuple[torch.device | None, bool, torch.dtype | None]:
        return self.device, self.pin_memory, self.widen

    def __setstate__(self, state: tuple[torch.device | None, bool, torch.dtype | None]) -> None:
        self.device, self.pin_memory, self.widen = state
        self._settled, self._streams = None, {}

    def __repr__(self) -> str:
        return f"Placement({self.device}, pin_memory={self.pin_memory}, widen={self.widen})"


class Placed:
    """A batch whose copies have been started."""

    __slots__ = ("_batch", "_events", "_kept", "_later", "_streams")

    def __init__(
        self,
        batch: Any,
        streams: Streams | None = None,
        events: list[Any] | None = None,
        kept: list[Any] | None = None,
        later: dict[int, Any] | None = None,
    ) -> None:
        self._batch = batch
        self._streams = streams
        self._events = events or []
        self._kept = kept or []
        self._later = later or {}

    @property
    def batch(self) -> Any:
        """The batch, for its types and sizes: its values may not be there yet."""
        return self._batch

    def ready(self) -> Any:
        """The batch, for the stream that is current in the calling thread.

        To be called once, by the training thread; it does not block, but for `to` of objects that
        move themselves.
        """
        streams, batch = self._streams, self._batch
        if streams is None or not streams.asynchronous:
            return batch
        for event in self._events:
            streams.wait(event)
        for value in self._kept:
            streams.keep(value)
        if self._later:
            batch = rebuilt(batch, self._moved_now)
        return batch

    def _moved_now(self, value: Any, where: Where) -> Any:  # noqa: ARG002
        if isinstance(value, torch.Tensor) or moves_itself(value):
            if self._streams is not None and id(value) in self._later:
                return self._streams.copy(value)
            return value
        return INSIDE


class _Work:
    """What is done to one batch, and what `Placed` must know of it."""

    def __init__(self, streams: Streams, pin: bool, widen: torch.dtype | None) -> None:
        self.home = streams.current()
        self.found = False  # tensors that were on the device before
        self.kept: list[Any] = []
        self.later: dict[int, Any] = {}
        self._streams = streams
        self._pin = pin
        self._widen = widen

    def change(self, value: Any, where: Where) -> Any:
        """The placed leaf; `INSIDE` if the value may have leaves inside."""
        if not isinstance(value, torch.Tensor) and not moves_itself(value):
            return INSIDE
        try:
            if isinstance(value, PackedSequence):
                return self._packed(value, where)
            if isinstance(value, torch.Tensor) and _is_plain(value):
                return self._tensor(value, where)
            return self._object(value)
        except Exception as error:
            kind = type(value).__name__
            if isinstance(value, torch.Tensor):
                kind += f" of {value.dtype}, {tuple(value.shape)}"
            error.add_note(f"while placing {name_of(where)}, a {kind}, on {self._streams.device}")
            raise

    def _tensor(self, tensor: torch.Tensor, where: Where) -> torch.Tensor:
        wide = self._wide(tensor, where)
        if self._streams.holds(tensor):
            return self._found(tensor, wide)
        if self._pin and tensor.device.type == "cpu":
            tensor = self._streams.pin(tensor)
        tensor = self._streams.copy(tensor)
        if wide is not None:
            tensor = self._streams.widen(tensor, wide)
        self.kept.append(tensor)
        return tensor

    def _found(self, tensor: torch.Tensor, wide: torch.dtype | None) -> torch.Tensor:
        """A tensor that need not be copied.

        If it is on the device, what made it is queued on this thread's stream. It is widened there,
        as the side stream would have to wait for all of that queue, and the copies with it.
        """
        if wide is not None:
            with self._streams.on(self.home):
                tensor = self._streams.widen(tensor, wide)
        if self._streams.device is None:
            pinned = self._pin and tensor.device.type == "cpu"
            return self._streams.pin(tensor) if pinned else tensor
        self.found = True
        self.kept.append(tensor)
        return tensor

    def _packed(self, packed: PackedSequence, where: Where) -> PackedSequence:
        """As its ``to`` does it: the lengths stay on the CPU."""
        changed = {}
        for name in ("data", "sorted_indices", "unsorted_indices"):
            tensor = getattr(packed, name)
            if tensor is not None:
                new = self._tensor(tensor, (*where, (".{}", name)))
                if new is not tensor:
                    changed[name] = new
        return packed._replace(**changed) if changed else packed

    def _object(self, value: Any) -> Any:
        """What has tensors that only its own methods know: also nested and sparse tensors."""
        if self._pin and _can(value, "pin_memory"):
            value = self._streams.pin(value)
        if self._streams.device is None or not _can(value, "to"):
            return value
        if not self._streams.asynchronous:
            return self._streams.copy(value)
        if _can(value, "record_stream") and not isinstance(value, torch.Tensor):
            value = self._streams.copy(value)
            self.kept.append(value)
            return value
        # The allocator cannot be told of its tensors: the training stream copies it, in `ready`.
        self.later[id(value)] = value
        return value

    def _wide(self, tensor: torch.Tensor, where: Where) -> torch.dtype | None:
        """The type to widen to; None for tensors that stay as they are."""
        wide = self._widen
        if wide is None or tensor.dtype not in _UNSIGNED:
            return None
        if tensor.dtype not in _HELD_BY[wide]:
            advice = "pass widen=torch.int64" if tensor.dtype == torch.uint32 else "leave widen out"
            raise TypeError(
                f"{name_of(where)} is {tensor.dtype}, and widen={wide} does not hold all of its "
                f"values; {advice}, or convert it in a collate_fn"
            )
        return wide


def _can(value: Any, method: str) -> bool:
    return callable(getattr(type(value), method, None))


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one piece of memory, and not a wrapper, nested or sparse."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_nested
        and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    )


def _checked_widen(widen: torch.dtype | bool | None) -> torch.dtype | None:
    if widen is None:
        return None
    if isinstance(widen, bool | np.bool_):
        return torch.int64 if widen else None
    if not isinstance(widen, torch.dtype):
        raise TypeError(
            f"widen is {shown(widen)}; expected torch.int64, torch.int32, True for torch.int64, or "
            "None"
        )
    if widen not in _HELD_BY:
        raise ValueError(
            f"widen is {widen}, which does not hold all uint16; expected torch.int64, torch.int32, "
            "True for torch.int64, or None"
        )
    return widen

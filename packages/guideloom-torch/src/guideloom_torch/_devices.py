"""Devices and their streams: what placement asks of torch, by kind of device.

Written against the modules that torch has for each kind of device (`torch.cuda`, `torch.xpu`), as
torch 2.4 has no common one.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from guideloom_format._integers import shown


class Streams:
    """What a placement asks of a device. Here a CPU: all is done when a call returns."""

    asynchronous = False

    def __init__(self, device: torch.device | None) -> None:
        self.device = device
        self.side: Any = None

    def current(self) -> Any:
        """This thread's stream."""
        return None

    def on(self, stream: Any) -> AbstractContextManager[Any]:  # noqa: ARG002
        """What follows goes on this stream."""
        return nullcontext()

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is where it should be."""
        return self.device is None or tensor.device == self.device

    def pin(self, value: Any) -> Any:
        """A tensor, or an object that can do it, in pinned memory."""
        return value

    def copy(self, value: Any) -> Any:
        """A tensor, or an object that can do it, on the device."""
        return value if self.device is None else _moved(value, self.device, False)

    def widen(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A tensor in another type."""
        return tensor.to(dtype)

    def record(self) -> Any:
        """An event that happens when this thread's stream has come here."""
        return None

    def wait(self, event: Any) -> None:
        """Have this thread's stream wait for an event."""

    def keep(self, value: Any) -> None:
        """Leave a tensor's memory alone until this thread's stream is done with it."""


class PinningStreams(Streams):
    """Batches stay on the host, in memory pinned for an accelerator."""

    def __init__(self, accelerator: torch.device) -> None:
        super().__init__(None)
        self._accelerator = accelerator
        self._module: Any = getattr(torch, accelerator.type)

    def on(self, stream: Any) -> AbstractContextManager[Any]:  # noqa: ARG002
        """Work for the accelerator; a thread's first call to it would set up device 0 otherwise."""
        guard: AbstractContextManager[Any] = self._module.device(self._accelerator)
        return guard

    def pin(self, value: Any) -> Any:
        """A tensor, or an object that can do it, in pinned memory."""
        return _pinned(value)


class SideStreams(Streams):
    """An accelerator with streams; one of them, shared by all threads, is for copies."""

    asynchronous = True

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._module: Any = getattr(torch, device.type)
        self.side = self._module.Stream(device=device)

    def current(self) -> Any:
        """This thread's stream."""
        return self._module.current_stream(self.device)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """What follows goes on this stream, and its device."""
        context: AbstractContextManager[Any] = self._module.stream(stream)
        return context

    def pin(self, value: Any) -> Any:
        """A tensor, or an object that can do it, in pinned memory."""
        return _pinned(value)

    def copy(self, value: Any) -> Any:
        """A tensor, or an object that can do it, on the device."""
        return _moved(value, self.device, True)

    def record(self) -> Any:
        """An event that happens when this thread's stream has come here."""
        event = self._module.Event()
        event.record(self.current())
        return event

    def wait(self, event: Any) -> None:
        """Have this thread's stream wait for an event."""
        self.current().wait_event(event)

    def keep(self, value: Any) -> None:
        """Leave a tensor's memory alone until this thread's stream is done with it."""
        value.record_stream(self.current())


def _moved(value: Any, device: torch.device | None, non_blocking: bool) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=non_blocking)
    try:
        return value.to(device, non_blocking=non_blocking)
    except TypeError:  # a method that takes a device alone
        return value.to(device)


def _pinned(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.is_contiguous() or value.is_pinned():
        return value.pin_memory()
    # A view with gaps would keep them, and be copied once more, to memory that is not pinned, on
    # its way. This has the strides that it gets on the device.
    return torch.empty_like(value, pin_memory=True).copy_(value)


def has_streams(device: torch.device) -> bool:
    """Whether copies to a kind of device can go on beside its work."""
    module: Any = getattr(torch, device.type, None)
    needed = ("Stream", "Event", "stream", "current_stream", "device", "current_device")
    return device.type != "cpu" and all(hasattr(module, name) for name in needed)


def accelerator() -> torch.device | None:
    """The accelerator that pinned memory is for; None on a machine without one."""
    module: Any = getattr(torch, "accelerator", None)  # torch 2.6 and later
    if module is None:
        found = torch.device("cuda")
    elif module.current_accelerator() is None:
        return None
    else:
        found = module.current_accelerator()
    return found if has_streams(found) and _count(found) else None


def _count(device: torch.device) -> int:
    # For CUDA this asks NVML, which leaves a later fork as it was; is_available() asks the driver.
    return int(getattr(torch, device.type).device_count())


def numbered(device: torch.device) -> torch.device:
    """The device as its tensors name it; without a number it is this thread's current one."""
    if device.type in ("cpu", "meta"):
        return torch.device(device.type)  # so tensors name it
    if str(device) != device.type or not has_streams(device):
        return device
    module: Any = getattr(torch, device.type)
    initialised = getattr(module, "is_initialized", None)
    if initialised is None or not initialised():  # then nobody has set another
        return torch.device(device.type, 0)
    return torch.device(device.type, module.current_device())


def checked_device(device: Any) -> torch.device:
    """A device that this machine has.

    Raises:
        TypeError, ValueError: it is none, or is not there; with what to do.
    """
    if isinstance(device, np.integer):
        device = int(device)
    if isinstance(device, bool) or not isinstance(device, (torch.device, str, int)):
        raise TypeError(
            f"device is {shown(device)}; expected a torch.device, a name such as 'cuda' or "
            "'cuda:1', the number of an accelerator, or None"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that torch gives up; what follows says more
            found = torch.device(device)
    except (RuntimeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"device is {shown(device)}, which is none in torch {torch.__version__}; expected for "
            "example 'cuda', 'cuda:1', 'cpu' or the number of an accelerator"
        ) from error
    given = device.rpartition(":")[2] if isinstance(device, str) else device
    wrapped = found.index is not None and str(found.index) != str(given)
    if wrapped and not isinstance(device, torch.device):  # torch has 8 bits for it
        raise ValueError(f"device is {shown(device)}; torch has no device numbers beyond 127")
    module = getattr(torch, found.type, None)
    if found.type in ("cpu", "meta"):
        return found
    if not hasattr(module, "device_count"):
        return _tried(found)
    count = _count(found)
    if not count:
        raise ValueError(_none_there(device, found.type))
    if found.index is not None and found.index >= count:
        raise ValueError(
            f"device is {device!r}, and this process sees {count} {found.type} devices, numbered "
            "from 0; pass one of these. CUDA_VISIBLE_DEVICES, if set, says which are seen"
        )
    return found


def _tried(device: torch.device) -> torch.device:
    """A device of a kind that torch cannot count, if it can have a tensor."""
    try:
        torch.empty(0, device=device)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"device is {str(device)!r}, where torch {torch.__version__} cannot make a tensor: "
            f"{shown(reason)}. Import the package that brings this kind of device, or pass "
            "'cuda', 'cpu' or None"
        ) from error
    return device


def _none_there(device: Any, kind: str) -> str:
    built = kind != "cuda" or any(getattr(torch.version, name, None) for name in ("cuda", "hip"))
    if not built:
        reason = "is built without CUDA; install a build of torch that has it"
    elif kind == "cuda":
        reason = (
            "finds no CUDA device; see that nvidia-smi shows it, and that CUDA_VISIBLE_DEVICES, if "
            "set, names it"
        )
    else:
        reason = f"finds no {kind} device"
    return (
        f"device is {device!r}, and torch {torch.__version__} {reason}. With device='cpu', or "
        "None, the same code runs without one"
    )

"""Which device is meant, and what is asked of torch there.

No machine of these tests has an accelerator: a stand-in for `torch.cuda` notes the calls.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from guideloom_torch import _devices
from guideloom_torch._placement import Placement

# Arguments


BEYOND = [2**63, 2**64, -(2**63) - 1, 10**5000]


@pytest.mark.parametrize(
    "device", ["gpu", "cuda:x", "cuda:-1", -1, "cuda:300", 300, *BEYOND], ids=type
)
def test_devices_that_are_none(device: Any) -> None:
    with pytest.raises(ValueError, match=r"device is .*(expected for example|beyond 127)"):
        Placement(device)


@pytest.mark.parametrize("device", [True, 1.0, ("cuda", 1), b"cuda"])
def test_devices_of_the_wrong_type(device: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a torch.device, a name such as 'cuda'"):
        Placement(device)


KINDS = ["hpu", "fpga", "mkldnn", "xla", "vulkan", "lazy", "ipu", "hip", "ve", "maia", "opengl"]
KINDS += ["opencl", "ideep", "privateuseone"]


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_devices_that_torch_only_knows_by_name(kind: str) -> None:
    """At once, and without a warning of torch's."""
    with pytest.raises(ValueError, match=f"device is .{kind}.*(cannot make a tensor|is none in)"):
        Placement(kind)
    assert Placement("meta").device == torch.device("meta")


@pytest.mark.parametrize("kind", ["mps", "xpu", "mtia"])
def test_kinds_of_devices_that_can_be_counted(kind: str) -> None:
    if getattr(torch, kind).device_count():
        assert Placement(kind).device == torch.device(kind)
    else:
        with pytest.raises(ValueError, match=f"device is '{kind}'.* finds no {kind} device"):
            Placement(kind)


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="there is one")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda"), 0])
def test_no_cuda_here(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.4")
    with pytest.raises(
        ValueError, match=r"finds no CUDA device; see that nvidia-smi.*device='cpu'"
    ):
        Placement(device)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(ValueError, match=r"is built without CUDA; install.*device='cpu'"):
        Placement(device)


# The streams of an accelerator


class StandIn:
    """In place of `torch.cuda`: what is called, in which order, with which stream current."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.stack: list[Any] = ["default"]
        self.initialised = False
        self.index = 0

    def module(self) -> SimpleNamespace:
        return SimpleNamespace(
            Stream=lambda device: self._noted("Stream", SimpleNamespace(device=device)),
            Event=self._event,
            stream=self._on,
            device=self._on,
            current_stream=lambda _: SimpleNamespace(
                name=self.stack[-1],
                wait_event=lambda _: self._noted(("wait", self.stack[-1]), None),
            ),
            current_device=lambda: self.index,
            device_count=lambda: 4,
            is_initialized=lambda: self.initialised,
        )

    def _noted(self, call: Any, result: Any) -> Any:
        self.calls.append(call)
        return result

    def _event(self) -> Any:
        return SimpleNamespace(record=lambda stream: self._noted(("record", stream.name), None))

    def _on(self, where: Any) -> Any:
        stand_in = self

        class On:
            def __enter__(self) -> None:
                stand_in.stack.append(getattr(where, "device", where))

            def __exit__(self, *_: object) -> None:
                stand_in.stack.pop()

        return On()


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """torch knows the name of a kind of device, "maia", and nobody has one."""
    made = StandIn()
    monkeypatch.setattr(torch, "maia", made.module(), raising=False)
    accelerator = SimpleNamespace(current_accelerator=lambda: torch.device("maia"))
    monkeypatch.setattr(torch, "accelerator", accelerator, raising=False)
    return made


def traced(stand_in: StandIn) -> torch.Tensor:
    """A tensor that notes what is called instead of doing it."""

    class Traced(torch.Tensor):
        def pin_memory(self, device: Any = None) -> Any:  # noqa: ARG002
            return stand_in._noted(("pin", stand_in.stack[-1]), self)

        def to(self, *args: Any, **options: Any) -> Any:
            return stand_in._noted(("to", *args, options, stand_in.stack[-1]), self)

        def record_stream(self, stream: Any) -> None:
            stand_in.calls.append(("record_stream", stream.name))

    return torch.zeros(2, dtype=torch.uint16).as_subclass(Traced)


def test_the_calls_to_torch(stand_in: StandIn) -> None:
    """The whole way, with the real streams' class over a stand-in for torch.cuda."""
    device = torch.device("maia:2")
    placement = Placement("maia:2", pin_memory=True, widen=True)
    assert stand_in.calls == []
    placed = placement.place([traced(stand_in)])
    assert stand_in.calls == [
        "Stream",
        ("pin", device),
        ("to", device, {"non_blocking": True}, device),
        ("to", torch.int64, {}, device),
        ("record", device),
    ]
    assert stand_in.stack == ["default"]
    stand_in.calls.clear()
    placed.ready()
    assert stand_in.calls == [("wait", "default"), ("record_stream", "default")]


def test_pinned_memory_for_a_batch_that_stays(stand_in: StandIn) -> None:
    """Widened, then pinned, with the right device current: the thread's own may be another."""
    stand_in.initialised, stand_in.index = True, 3
    placement = Placement(pin_memory=True, widen=True)
    placed = placement.place([traced(stand_in)])
    device = torch.device("maia:3")
    assert stand_in.calls == [("to", torch.int64, {}, device), ("pin", device)]
    placed.ready()
    assert len(stand_in.calls) == 2


def test_views_with_gaps_are_pinned_without(
    monkeypatch: pytest.MonkeyPatch, stand_in: StandIn
) -> None:
    """A copy from a view with gaps goes through memory that is not pinned, and so blocks."""
    made: list[torch.Tensor] = []

    def empty_like(tensor: torch.Tensor, *, pin_memory: bool) -> torch.Tensor:
        assert pin_memory
        made.append(torch.empty(tensor.shape, dtype=tensor.dtype))
        return made[-1]

    monkeypatch.setattr(torch, "empty_like", empty_like)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: False)
    whole = torch.arange(12, dtype=torch.int32).reshape(3, 4)
    after = Placement(pin_memory=True).place(whole[:, ::2]).ready()
    assert after is made[0]
    assert after.tolist() == [[0, 2], [4, 6], [8, 10]]
    assert stand_in.calls == []


def test_no_pinned_memory_for_a_cpu(stand_in: StandIn) -> None:
    Placement("cpu", pin_memory=True).place([traced(stand_in)]).ready()
    assert stand_in.calls == []


def test_which_device_a_name_means(stand_in: StandIn) -> None:
    """The one that is current where `settle` was called; device 0 if none was ever chosen."""
    stand_in.index = 3
    for initialised, index in ((False, 0), (True, 3)):
        stand_in.initialised = initialised
        placement = Placement("maia")
        placement.settle()
        stand_in.index = 1  # a loading thread's
        placement.place([])
        assert placement._settled == torch.device("maia", index)
        stand_in.index = 3


def test_a_number_that_is_not_there(stand_in: StandIn) -> None:
    assert Placement("maia:3").device == torch.device("maia:3")
    with pytest.raises(ValueError, match="sees 4 maia devices, numbered from 0"):
        Placement("maia:4")
    stand_in.calls.clear()


def test_without_streams_copies_block(monkeypatch: pytest.MonkeyPatch, stand_in: StandIn) -> None:
    """As on an accelerator that has none for Python."""
    monkeypatch.delattr(torch.maia, "Stream")  # type: ignore[attr-defined]
    Placement("maia:0", pin_memory=True).place([traced(stand_in)]).ready()
    assert stand_in.calls == [("to", torch.device("maia:0"), {"non_blocking": False}, "default")]


def test_pinned_memory_before_torch_2_6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "accelerator", raising=False)
    expected = torch.device("cuda") if torch.cuda.device_count() else None
    assert _devices.accelerator() == expected

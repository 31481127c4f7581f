"""Batches on a device: the same values and structure, in the right order, and memory kept in time.

No machine of these tests has an accelerator. A device whose streams run only when somebody waits
for them takes its place, so that a value read too early is a wrong value; another stands in for
`torch.cuda` itself. On a real one, `benchmarks/gpu_check.py` looks at the same.
"""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_sequence

from guideloom import StatefulDataLoader, StreamDataset, StreamNumpyFormat, StreamStorage
from guideloom_torch._placement import Placement

from .placement_cases import (
    DTYPES,
    POISON,
    Frozen,
    LatePlacement,
    LateStreams,
    Pair,
    batches,
    check,
    fingerprint,
    tensors,
)

WIDENED = [None, True, torch.int64]
NARROW = [dtype for dtype in DTYPES if dtype is not torch.uint32]


# Values and structure


@given(batches(), st.sampled_from(WIDENED), st.booleans())
@settings(deadline=None, max_examples=150)
def test_any_batch_on_a_cpu(batch: Any, widen: bool | torch.dtype | None, pin_memory: bool) -> None:
    """Where nothing is widened, the batch is the very same object."""
    for device in (None, "cpu"):
        placement = Placement(device, pin_memory, widen)
        after = placement.place(batch).ready()
        found = check(batch, after, placement, copied=False)
        unsigned = {torch.uint16, torch.uint32} & {tensor.dtype for tensor in found}
        if widen is None:
            assert after is batch
        else:
            assert not unsigned
        assert placement.place(after).ready() is after  # there is nothing left to do


@given(batches(), st.sampled_from(WIDENED), st.booleans())
@settings(deadline=None, max_examples=150)
def test_any_batch_on_a_device(
    batch: Any, widen: bool | torch.dtype | None, pin_memory: bool
) -> None:
    """Values are right once the stream of training has waited, and every tensor is kept for it."""
    placement = LatePlacement(pin_memory, widen)
    late = placement.late
    before = fingerprint(batch)
    placed = placement.place(batch)
    assert not late.noted("wait")
    after = placed.ready()
    found = check(batch, after, placement, copied=True)
    assert fingerprint(batch) == before  # what was given is unchanged
    different = {id(tensor) for tensor in found}
    assert {id(tensor) for tensor in late.noted("keep")} == different
    assert len(late.noted("copy")) == len(different)  # each once, however often it occurs
    check_order(late, pin_memory)


@given(batches(NARROW), st.booleans())
@settings(deadline=None, max_examples=50)
def test_widening_to_int32(batch: Any, pin_memory: bool) -> None:
    placement = LatePlacement(pin_memory, torch.int32)
    check(batch, placement.place(batch).ready(), placement, copied=True)


def check_order(late: LateStreams, pin_memory: bool) -> None:
    """Pin, copy, widen on the side stream, one event; then wait and keep on that of training."""
    steps = [(what, stream) for what, _, stream in late.log]
    copies = sum(what == "copy" for what, _ in steps)
    if not copies:
        assert not steps
        return
    recorded = steps.index(("record", "side"))
    here = late.current()
    assert {stream for _, stream in steps[:recorded]} == {"side"}
    names = [what for what, _ in steps[:recorded]]
    assert set(names) <= {"pin", "copy", "widen"}
    assert names.count("pin") == (copies if pin_memory else 0)
    for k, name in enumerate(names):
        before = names[k - 1] if k else None
        assert name != "copy" or (before == "pin") is pin_memory
        assert name != "widen" or before == "copy"
    assert steps[recorded + 1 :] == [("wait", here)] + [("keep", here)] * copies
    (event,) = late.noted("record")
    assert late.noted("wait") == [event]


@given(tensors([torch.uint16]))
@settings(deadline=None, max_examples=30)
def test_small_integers_travel(tensor: torch.Tensor) -> None:
    """What is pinned and copied is uint16; int64 exists on the device alone."""
    placement = LatePlacement(pin_memory=True, widen=True)
    placement.place([tensor]).ready()
    late = placement.late
    for what, dtype in (("pin", torch.uint16), ("copy", torch.uint16), ("widen", torch.int64)):
        (noted,) = late.noted(what)
        assert noted.dtype == dtype


def test_a_batch_read_before_it_is_ready_is_wrong() -> None:
    """The stand-in does its work: without waiting there is no value."""
    placement = LatePlacement()
    placed = placement.place(torch.arange(4))
    assert placed.batch.tolist() == [POISON] * 4
    assert placed.ready().tolist() == [0, 1, 2, 3]


def test_all_values_of_the_small_types() -> None:
    words = torch.from_numpy(np.arange(1 << 16, dtype=np.uint16))
    borders = torch.tensor([0, 1, 2**31 - 1, 2**31, 2**32 - 1], dtype=torch.uint32)
    for placement in (Placement(widen=True), Placement("cpu", widen=True)):
        wide_words, wide_borders = placement.place((words, borders)).ready()
        assert torch.equal(wide_words, torch.arange(1 << 16))
        assert wide_borders.tolist() == [0, 1, 2**31 - 1, 2**31, 2**32 - 1]


def test_types_that_cannot_be_widened() -> None:
    """A value is never changed in silence; the message says where."""
    many = {"a": [torch.zeros(1, dtype=torch.uint32)]}
    with pytest.raises(TypeError, match=r"batch\['a'\]\[0\] is torch.uint32.*pass widen=torch.in"):
        Placement(widen=torch.int32).place(many)
    pair = Pair(1, Frozen(torch.zeros(1, dtype=torch.uint64), 2))
    for widen in (torch.int32, torch.int64):
        with pytest.raises(TypeError, match=r"batch\.right\.first is torch\.uint64.*leave widen"):
            Placement(widen=widen).place(pair)
    assert Placement("cpu").place(pair).ready() is pair


# Tensors that are there already


def test_a_tensor_that_is_on_the_device() -> None:
    """It is widened by the stream that made it, which training's stream waits for as well."""
    placement = LatePlacement(pin_memory=True, widen=True)
    late = placement.late
    there = late.put(torch.tensor([5, 6], dtype=torch.uint16))
    same = late.put(torch.tensor([7]))
    home = late.current()
    placed = placement.place([there, torch.tensor([8], dtype=torch.uint16), same])
    assert [stream for what, value, stream in late.log if what == "widen"] == [home, "side"]
    assert [stream for stream, _ in late.noted("record")] == ["side", home]
    after = placed.ready()
    assert [tensor.tolist() for tensor in after] == [[5, 6], [8], [7]]
    assert after[2] is same
    assert {id(tensor) for tensor in late.noted("keep")} == {id(tensor) for tensor in after}
    assert len(late.noted("pin")) == len(late.noted("copy")) == 1


# Threads, processes, errors


def test_many_threads_at_once() -> None:
    """One set of streams for all; each batch has its own event and its own values."""
    placement = LatePlacement(pin_memory=True, widen=True)
    start = threading.Barrier(4)

    def place(k: int) -> Any:
        if k < 4:
            start.wait()
        return placement.place({"k": torch.full((50,), k, dtype=torch.uint16)})

    with ThreadPoolExecutor(4) as pool:
        placed = list(pool.map(place, range(100)))
    for k, one in enumerate(placed):
        assert one.ready()["k"].tolist() == [k] * 50
    here = placement.late.current()
    assert {stream for what, _, stream in placement.late.log if what in ("wait", "keep")} == {here}
    assert {s for what, _, s in placement.late.log if what not in ("wait", "keep")} == {"side"}


def test_an_error_leaves_nothing_behind() -> None:
    """The stream is the thread's own again, the memory is free, and the next batch is right."""
    placement = LatePlacement(pin_memory=True, widen=True)
    before = placement.late.current()
    copied: list[Any] = []
    plain = placement.late.copy

    def fail(value: Any) -> Any:
        if value.numel() == 3:
            raise RuntimeError("out of memory")
        made = plain(value)
        copied.append(weakref.ref(made))
        return made

    placement.late.copy = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        placement.place({"a": torch.zeros(2), "b": (torch.zeros(3),)})
    notes = "while placing batch['b'][0], a Tensor of torch.float32, (3,), on cuda:0"
    assert caught.value.__notes__ == [notes]
    del caught
    assert placement.late.current() == before
    placement.late._there.clear()  # the stand-in's own
    placement.late._queues.clear()
    placement.late.log.clear()
    gc.collect()
    assert [reference() for reference in copied] == [None]
    assert placement.place([torch.ones(2)]).ready()[0].tolist() == [1, 1]


def test_a_batch_that_is_dropped_is_freed() -> None:
    placement = Placement("cpu", widen=True)
    placed = placement.place([torch.zeros(4, dtype=torch.uint16)])
    tensor = weakref.ref(placed.batch[0])
    del placed
    assert tensor() is None


def test_streams_are_made_once_in_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = LatePlacement()
    assert placement.made == 0
    for _ in range(3):
        placement.place(torch.zeros(1))
    assert placement.made == 1
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as after a fork
    placement.place(torch.zeros(1))
    placement.place(torch.zeros(1))
    assert placement.made == 2


def test_a_placement_is_copied_and_pickled_without_its_streams() -> None:
    placement = Placement("cpu", True, torch.int32)
    placement.place(torch.zeros(1))
    for other in (pickle.loads(pickle.dumps(placement)), copy.copy(placement)):
        assert repr(other) == repr(placement)
        assert (other.device, other.pin_memory, other.widen) == (
            placement.device,
            placement.pin_memory,
            placement.widen,
        )
        assert not other._streams
        after = other.place(torch.zeros(1, dtype=torch.uint16)).ready()
        assert after.dtype == torch.int32


QUIET = """
import pickle, torch
from guideloom_torch._placement import Placement
for arguments in [(None, True, True), ("cpu", True), (None, True)]:
    placement = pickle.loads(pickle.dumps(Placement(*arguments)))
    placement.settle()
    placement.place([torch.zeros(2)]).ready()
try:
    Placement("cuda")
except ValueError:
    pass
assert not torch.cuda.is_initialized()
"""


def test_cuda_is_not_initialised_before_it_is_used() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", QUIET], check=True, timeout=60)


# Arguments


def test_nothing_to_do() -> None:
    batch = [torch.zeros(1, dtype=torch.uint16)]
    for placement in (Placement(), Placement(None, False, None), Placement(widen=False)):
        assert placement.does_nothing
        assert placement.place(batch).ready() is batch
    for placement in (Placement("cpu"), Placement(pin_memory=True), Placement(widen=True)):
        assert not placement.does_nothing


@pytest.mark.parametrize("widen", [torch.int16, torch.uint8, torch.float32, torch.uint32])
def test_types_to_widen_to(widen: torch.dtype) -> None:
    with pytest.raises(ValueError, match=f"widen is {widen}, which does not hold all uint16"):
        Placement(widen=widen)


@pytest.mark.parametrize("widen", ["int64", 64, int, 1])
def test_widen_of_the_wrong_type(widen: Any) -> None:
    with pytest.raises(TypeError, match=r"widen is .*; expected torch.int64"):
        Placement(widen=widen)


# Through the loader

WINDOWS, LENGTH = 24, 5
AHEAD: list[dict[str, Any]] = [
    {},
    {"prefetch": 3},
    {"num_workers": 2, "prefetch": 2},
    {"num_workers": 1, "parallel_method": "process"},
]


def stream(folder: Path) -> StreamDataset:
    """Tokens of 16 bits, all of the upper half."""
    storage = StreamStorage(folder, StreamNumpyFormat(np.dtype([("tokens", "<u2")])))
    with storage.sync_writer() as writer:
        tokens = np.arange(65535, 65535 - WINDOWS * LENGTH, -1, dtype=np.uint16)
        writer.append(0, {"tokens": tokens})
    return StreamDataset(storage, LENGTH)


@pytest.mark.parametrize("ahead", AHEAD, ids=["none", "thread", "threads", "process"])
def test_batches_of_the_loader(ahead: dict[str, Any], tmp_path: Path) -> None:
    """Copied where they are loaded, ready where they are used, all of them right."""
    options: dict[str, Any] = {"shuffle": True, "local_batch_size": 5, "drop_last": False}
    dataset = stream(tmp_path / "stream")
    with StatefulDataLoader(dataset, pad="mask", **options) as loader:
        expected = [(one.batch["tokens"].to(torch.int64), one.valid) for one in loader]
    placement = LatePlacement(pin_memory=True, widen=True)
    with StatefulDataLoader(dataset, pad="mask", **options, **ahead) as loader:
        loader._placement = placement
        for one, (tokens, valid) in zip(loader, expected, strict=True):
            assert torch.equal(one.batch["tokens"], tokens)
            assert torch.equal(one.valid, valid)
        assert (loader.epoch, loader.position) == (1, 0)
    log = placement.late.log
    here = placement.late.current()
    assert {stream for what, _, stream in log if what in ("wait", "keep")} == {here}
    assert {stream for what, _, stream in log if what in ("pin", "copy", "widen")} == {"side"}
    assert len(placement.late.noted("keep")) == 2 * len(expected)


def test_options_of_the_loader(tmp_path: Path) -> None:
    dataset = stream(tmp_path / "stream")
    with StatefulDataLoader(dataset, device="cpu", pin_memory=True, widen=torch.int32) as loader:
        assert next(iter(loader))["tokens"].dtype == torch.int32
    with pytest.raises(ValueError, match=r"widen is torch\.int8"):
        StatefulDataLoader(dataset, widen=torch.int8)


def test_an_error_of_placing_skips_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It arrives in its turn, and the loader goes on with the batch that it belongs to."""
    dataset = stream(tmp_path / "stream")
    for ahead in AHEAD[:3]:
        with StatefulDataLoader(dataset, **ahead) as loader:
            placement = LatePlacement(widen=True)
            loader._placement = placement
            batches_of_loader = iter(loader)
            for _ in range(3):
                next(batches_of_loader)
            with monkeypatch.context() as patch:
                patch.setattr(placement.late, "copy", _fail)
                with pytest.raises(RuntimeError, match="no memory"):
                    list(batches_of_loader)  # those that were placed before come first
            position = loader.position
            assert position < WINDOWS
            first = next(iter(loader))["tokens"][0, 0]
            assert int(first) == 65535 - position * LENGTH


def _fail(_: Any) -> Any:
    raise RuntimeError("no memory")


def test_packed_sequences_keep_their_lengths_on_the_cpu() -> None:
    parts = [torch.arange(k).to(torch.uint16) for k in (1, 3, 2)]
    packed = pack_sequence(parts, enforce_sorted=False)
    placement = LatePlacement(pin_memory=True, widen=True)
    after = placement.place(packed).ready()
    assert after.batch_sizes is packed.batch_sizes
    assert after.data.dtype == torch.int64
    assert after.data.tolist() == packed.data.tolist()
    assert len(placement.late.noted("keep")) == 3

"""What worker processes send arrives, of every size and kind, whatever happens meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from guideloom import WorkerError
from guideloom_torch import _transfer

from .batch_cases import Raises, RaisesThere, UnsendableError, found_in_an_import, odd
from .process_cases import (
    batch_maps,
    by_processes,
    in_fork,
    load,
    plain,
    steps_of,
    tour,
    workers_of,
    write,
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("stream", tmp_path_factory.mktemp("batches") / "stream")


@pytest.mark.parametrize("fails, lazy", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("placement", [{}, {"device": "cpu"}, {"widen": True}])
@pytest.mark.parametrize("workers", [1, 3])
def test_loading_while_a_module_is_imported(
    tmp_path: Path,
    directory: Path,
    fails: bool,
    lazy: bool,
    placement: dict[str, Any],
    workers: int,
) -> None:
    """Its types are found there by the thread that imports it, and by no other."""
    if lazy and placement:
        return  # then it is unpickled ahead, and what functions import is not to be seen
    options = {**by_processes("fork", workers, prefetch=2), **placement}
    found = in_fork(lambda: found_in_an_import(tmp_path, directory, fails, lazy, options))
    wanted = [[plain(sample) for sample in batch] for batch in load("stream", directory)]
    assert len(found) == (1 if fails else len(wanted))


def test_an_unpickler_that_does_not_wait() -> None:
    """It leaves what is not imported, or not to the end, to those who may wait."""
    import email.mime.text as module

    parcel = _transfer.Parcel(*_transfer.pack([module.MIMEText, np.arange(3)], _transfer.dumps))
    kind, array = parcel.open(waits=False)
    assert kind is module.MIMEText
    spec: Any = module.__spec__
    spec._initializing = True
    try:
        with pytest.raises(_transfer.NotNowError, match=r"email\.mime\.text"):
            parcel.open(waits=False)
    finally:
        spec._initializing = False
    assert parcel.open()[1].tolist() == array.tolist() == [0, 1, 2]


EDGES = (0, _transfer.SMALL, _transfer.MAPPED)


@pytest.mark.parametrize("nbytes", [edge + more for edge in EDGES for more in (-900, 0, 900)])
@pytest.mark.parametrize("mapped", [True, False])
def test_every_size(nbytes: int, mapped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept batches below a size take no mapping; where none can be had, larger ones are copied."""

    def none_left(*_: object) -> memoryview:
        raise RuntimeError("unable to mmap: Cannot allocate memory (12)")

    if not mapped:
        monkeypatch.setattr(_transfer, "_mapped", none_left)
    array = np.random.default_rng(0).integers(0, 256, max(nbytes, 0), np.uint8)
    before = batch_maps()
    packed = _transfer.pack({"a": array, "b": torch.from_numpy(array)}, _transfer.dumps)
    kept = _transfer.unpack(*packed)
    assert batch_maps() - before == (mapped and 2 * nbytes >= _transfer.MAPPED)
    assert np.array_equal(kept["a"], array)
    assert np.array_equal(kept["b"].numpy(), array)
    kept["a"][:] = kept["b"][:] = 0
    assert array.size < 2 or array.any()


def test_what_is_kept_takes_no_mapping(directory: Path) -> None:
    """A process may have some 65,000: batches of up to a megabyte do without."""

    def collate(samples: list[Any]) -> Any:
        number = int(samples[0]["tokens"][0]) // 4
        return np.full(1_000_000 if number % 2 else 20_000, len(samples), np.uint8)

    with load("stream", directory, collate, **by_processes("fork", local_batch_size=1)) as loader:
        before = batch_maps()
        kept = list(loader)
        assert {batch.size for batch in kept} == {20_000, 1_000_000}
        assert batch_maps() == before


@pytest.mark.parametrize("most", [150, 1000])
def test_messages_of_any_size(directory: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also plans and steps travel in memory without a name, where a message holds so few bytes."""
    wanted = tour(load("stream", directory))
    monkeypatch.setattr(_transfer, "SMALL", most)
    with load("stream", directory, **by_processes("fork", 2, prefetch=3)) as loader:
        assert tour(loader) == wanted


def test_a_plan_for_which_no_descriptor_is_left(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is raised where the batch is awaited; nothing waits for ever."""
    monkeypatch.setattr(_transfer, "SMALL", 150)
    with load("stream", directory, **by_processes("fork", 2), timeout=20) as loader:
        next(iter(loader))
        refused: list[Any] = []

        def refuse(*given: Any) -> int:
            refused.append(given)
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(os, "memfd_create", refuse)
            with pytest.raises(OSError, match="Too many open files"):
                next(iter(loader))
        assert refused
        assert len(steps_of(loader)) == 7


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_tensors_that_are_not_plain(directory: Path) -> None:
    def collate(_: list[Any]) -> Any:
        parts = [torch.arange(3.0), torch.arange(5.0)]
        named = torch.arange(3)
        named.origin = "mine"  # type: ignore[attr-defined]
        return {
            "strided": torch.nested.nested_tensor(parts, layout=torch.strided),
            "jagged": torch.nested.nested_tensor(parts, layout=torch.jagged),
            "mkldnn": torch.arange(6.0).view(2, 3).to_mkldnn(),
            "attribute": named,
        }

    wanted = collate([])
    with load("stream", directory, collate, **by_processes("fork")) as loader:
        found = next(iter(loader))
    for name in ("strided", "jagged"):
        assert found[name].is_nested
        assert found[name].layout == wanted[name].layout
        for one, other in zip(found[name].unbind(), wanted[name].unbind(), strict=True):
            assert torch.equal(one, other)
    assert found["mkldnn"].is_mkldnn
    assert torch.equal(found["mkldnn"].to_dense(), wanted["mkldnn"].to_dense())
    assert torch.equal(found["attribute"], wanted["attribute"])
    assert found["attribute"].origin == "mine"


def test_where_another_device_is_the_default(directory: Path) -> None:
    """Batches are on the CPU, where their memory is."""
    torch.set_default_device("meta")
    try:

        def collate(samples: list[Any]) -> Any:
            return [
                torch.from_numpy(np.full(n, len(samples), np.uint8)) for n in (0, 1, 2, 2 << 20)
            ]

        with load("stream", directory, collate, **by_processes("fork")) as loader:
            found = next(iter(loader))
    finally:
        torch.set_default_device(None)
    assert [(one.device.type, one.numel(), bool((one == 3).all())) for one in found] == [
        ("cpu", n, True) for n in (0, 1, 2, 2 << 20)
    ]


KINDS = [ValueError, TypeError, StopIteration, KeyboardInterrupt, SystemExit, MemoryError]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("notes", ["none", "odd"])
def test_an_error_of_pickling(directory: Path, kind: type[BaseException], notes: str) -> None:
    """It says for which samples, and the worker lives on."""
    error = kind("mine") if notes == "none" else odd(kind("mine"))
    options = by_processes("fork", shuffle=False)
    with load("stream", directory, lambda _: Raises(error), **options) as loader:
        iterator = iter(loader)
        pids = workers_of(loader)
        with pytest.raises(RuntimeError if kind is StopIteration else kind) as caught:
            next(iterator)
        assert workers_of(loader) == pids
    first = caught.value.__cause__ if kind is StopIteration else caught.value
    assert type(first) is kind
    if notes == "none":
        assert "while sending the batch of samples 0, 1, 2 (epoch 0" in first.__notes__[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("placement", [{}, {"device": "cpu"}])
def test_an_error_of_unpickling(
    directory: Path, kind: type[BaseException], placement: dict[str, Any]
) -> None:
    options = by_processes("fork", shuffle=False, **placement)
    with load("stream", directory, lambda _: RaisesThere(kind), **options) as loader:
        iterator = iter(loader)
        with pytest.raises(RuntimeError if kind is StopIteration else kind) as caught:
            next(iterator)
    first = caught.value.__cause__ if kind is StopIteration else caught.value
    assert type(first) is kind
    assert "while receiving samples 0, 1, 2 (epoch 0" in first.__notes__[0]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_that_cannot_be_sent(directory: Path, kind: type[BaseException]) -> None:
    """Its text is, and the worker lives on."""

    def collate(samples: list[Any]) -> Any:
        del samples
        raise UnsendableError(kind)

    with load("stream", directory, collate, **by_processes("fork", shuffle=False)) as loader:
        iterator = iter(loader)
        pids = workers_of(loader)
        with pytest.raises(WorkerError, match=r"(?s)in guideloom-loader-0.*what went wrong"):
            next(iterator)
        assert workers_of(loader) == pids

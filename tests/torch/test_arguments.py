"""Every argument of a loader with every kind of wrong value; numbers of any type are plain ints."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from guideloom import (
    DocumentDataset,
    DocumentNumpyFormat,
    DocumentStorage,
    StatefulDataLoader,
    StreamDataset,
    StreamNumpyFormat,
    StreamStorage,
)
from guideloom_format._processes import StartMethod
from guideloom_torch._options import Loading, Order

from .loader_cases import LENGTH, TOKENS, Trainer, ids_of, make_loader, write_stream

SAMPLES = 24


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stream(tmp_path_factory.mktemp("arguments") / "stream", SAMPLES)


# Wrong values


class Hostile:
    """Whatever is asked of it fails."""

    def _fail(self, *_: object) -> NoReturn:
        raise RuntimeError("no")

    __repr__ = __str__ = __eq__ = __bool__ = __index__ = __float__ = _fail
    __hash__ = object.__hash__


WRONG: dict[str, Any] = {
    "text": "no",
    "bytes": b"no",
    "empty list": [],
    "dict": {"a": 1},
    "nan": float("nan"),
    "half": 0.5,
    "minus": -1,
    "minus infinity": float("-inf"),
    "very large": 10**5000,
    "array": np.array([1, 2]),
    "array of texts": np.array(["mask", "thread"]),
    "empty array": np.zeros(0),
    "tensor": torch.tensor([1, 2]),
    "bool tensor": torch.tensor(True),
    "bool array": np.array([True]),
    "meta tensor": torch.ones((), device="meta"),
    "complex": 1j,
    "class": StreamStorage,
    "object": object(),
    "hostile": Hostile(),
}
ARGUMENTS = sorted(set(StatefulDataLoader.__init__.__annotations__) - {"return"})
FINE = {  # what is not wrong there
    ("collate_fn", "class"),
    ("prefetch_bytes", "very large"),
    ("stall_after", "half"),
    ("timeout", "half"),
}


def a_dataset(directory: Path) -> StreamDataset:
    return StreamDataset(StreamStorage(directory, StreamNumpyFormat(TOKENS)), LENGTH)


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_wrong_value_is_refused_by_its_name(name: str, what: str, directory: Path) -> None:
    """Whatever its own methods do."""
    options: dict[str, Any] = {"dataset": a_dataset(directory), "prefetch": 1, name: WRONG[what]}
    if name == "rank":
        options["world_size"] = 1
    if (name, what) in FINE:
        StatefulDataLoader(**options)
        return
    with pytest.raises((TypeError, ValueError), match=rf"^{name} is ") as caught:
        StatefulDataLoader(**options)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("name", ["pad_to", "pad_value"])
def test_wrong_padding_of_documents(name: str, what: str, tmp_path: Path) -> None:
    dataset = DocumentDataset(DocumentStorage(tmp_path, DocumentNumpyFormat(np.dtype(np.int64))))
    options: dict[str, Any] = {"pad_to": 4, name: WRONG[what]}
    if name == "pad_value" and what in ("minus", "bool tensor"):
        StatefulDataLoader(dataset, **options)
        return
    with pytest.raises((TypeError, ValueError), match=rf"^{name} is "):
        StatefulDataLoader(dataset, **options)


def test_padding_is_of_plain_numbers(tmp_path: Path) -> None:
    dataset = DocumentDataset(DocumentStorage(tmp_path, DocumentNumpyFormat(np.dtype(np.int64))))
    width, value = torch.tensor(4), torch.tensor(7)
    options: dict[str, Any] = {"pad_to": width, "pad_value": value}
    loader = StatefulDataLoader(dataset, **options)
    width += 1
    value += 1
    assert "pad_to=4, pad_value=7" in repr(loader)


@pytest.mark.parametrize("name", ["shuffle", "drop_last", "pin_memory"])
def test_flags(name: str, directory: Path) -> None:
    values: list[Any] = [True, False, np.True_, np.False_, 1, 0, np.int8(1), np.uint64(0)]
    for value in values:
        options: dict[str, Any] = {name: value}
        loader = StatefulDataLoader(a_dataset(directory), **options)
        assert name != "shuffle" or loader.state_dict()["shuffle"] is bool(value)
        loader.close()
    with pytest.raises(ValueError, match=f"^{name} is 2; expected True or False$"):
        StatefulDataLoader(a_dataset(directory), **(options | {name: 2}))


def test_a_class_in_place_of_its_object() -> None:
    for make in (
        lambda: StatefulDataLoader(StreamDataset),  # type: ignore[arg-type]
        lambda: StatefulDataLoader.from_storage(StreamStorage),  # type: ignore[arg-type]
        lambda: StreamDataset(StreamStorage, 4),  # type: ignore[arg-type]
        lambda: DocumentDataset(DocumentStorage),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError, match=r"the class .* in place of an object of it; expected"):
            make()


# Numbers of any type

NUMPY = [np.dtype(kind).type for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")]


def of_any_type(low: int, high: int) -> st.SearchStrategy[tuple[Any, int]]:
    """An integer, and the same one as a plain int."""

    def as_types(number: int) -> list[Any]:
        fits = [kind for kind in NUMPY if number <= np.iinfo(kind).max]
        return [number, *(kind(number) for kind in fits), np.array(number), torch.tensor(number)]

    return st.integers(low, high).flatmap(
        lambda number: st.sampled_from(as_types(number)).map(lambda value: (value, number))
    )


def fields(**numbers: tuple[int, int]) -> st.SearchStrategy[dict[str, tuple[Any, int]]]:
    return st.fixed_dictionaries({name: of_any_type(*at) for name, at in numbers.items()})


def plain(values: dict[str, tuple[Any, int]]) -> dict[str, Any]:
    return {name: number for name, (_, number) in values.items()}


def given_as(values: dict[str, tuple[Any, int]]) -> dict[str, Any]:
    return {name: value for name, (value, _) in values.items()}


@settings(max_examples=300, deadline=None)
@given(fields(seed=(0, 300), world_size=(100, 300), local_batch_size=(1, 300), rank=(0, 99)))
def test_the_order_is_of_plain_integers(values: dict[str, tuple[Any, int]]) -> None:
    """So that no product overflows, and no tensor can be changed later."""
    order = Order(shuffle=True, drop_last=False, **given_as(values))
    same = Order(shuffle=True, drop_last=False, **plain(values))
    assert order == same
    assert {type(value) for value in vars(order).values()} == {int, bool}
    expected = values["local_batch_size"][1] * values["world_size"][1]
    assert order.global_batch_size == same.global_batch_size == expected


LOADING: dict[str, Any] = {
    "parallel_method": "thread", "start_method": "fork", "stall_after": None, "timeout": None,
}  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(fields(num_workers=(0, 300), prefetch=(0, 300), lookahead=(0, 300), prefetch_bytes=(1, 300)))
def test_loading_has_plain_integers(values: dict[str, tuple[Any, int]]) -> None:
    loading = Loading(**LOADING, **given_as(values))
    assert loading == Loading(**LOADING, **plain(values))
    assert all(type(getattr(loading, name)) is int for name in values)
    assert loading.ahead == values["num_workers"][1] + values["prefetch"][1]


def test_numbers_of_tensors_and_small_types_in_a_loader(directory: Path) -> None:
    size = torch.tensor(4)
    loader = make_loader(directory, local_batch_size=size, world_size=np.uint8(2), rank=0)
    size += 2
    assert loader.global_batch_size == 8
    assert ids_of(next(iter(loader))) == [0, 2, 4, 6]
    assert "local_batch_size=4" in repr(loader)
    large = make_loader(
        directory, local_batch_size=np.uint8(200), world_size=np.int8(100), rank=np.int8(99)
    )
    assert large.global_batch_size == 20_000


# Seconds


@pytest.mark.parametrize("name", ["stall_after", "timeout"])
def test_seconds(name: str) -> None:
    plain: dict[str, Any] = {"num_workers": 1, "prefetch": 0, "prefetch_bytes": None}

    def seconds(value: Any) -> Any:
        loading = Loading(**(LOADING | plain | {"lookahead": 0, name: value}))
        return getattr(loading, name)

    assert seconds(None) is None
    assert seconds(threading.TIMEOUT_MAX) == threading.TIMEOUT_MAX
    good: list[Any] = [5, 0.25, 1e-9, Fraction(1, 3)]
    good += [kind(5) for kind in (np.int64, np.uint8, np.float16, np.float32, np.float64)]
    for value in good:
        found = seconds(value)
        assert (type(found), found) == (float, float(value))
    texts: list[Any] = [True, False, np.True_, "5", 5j, [5], np.array([5.0]), torch.tensor(5.0)]
    for value in texts:
        with pytest.raises(TypeError, match=rf"^{name} is .*; expected seconds, a number, or None"):
            seconds(value)
    beyond: list[Any] = [0, -1, 0.0, 1e10, 2**63, 1e300, 10**400, Fraction(10**400)]
    beyond += [kind(x) for kind in (float, np.float16, np.float64) for x in ("nan", "inf", "-inf")]
    for value in beyond:
        with pytest.raises(ValueError, match=rf"^{name} is .*; expected seconds above 0, at most"):
            seconds(value)


@pytest.mark.parametrize(
    "options",
    [{"prefetch": 1}, {"num_workers": 2}, {"num_workers": 1, "parallel_method": "process"}],
)
def test_the_longest_times_work(options: dict[str, Any], directory: Path) -> None:
    most = threading.TIMEOUT_MAX
    with make_loader(
        directory, start_method="fork", timeout=most, stall_after=most, **options
    ) as loader:
        assert ids_of(next(iter(loader))) == [0]


# Copies


@pytest.mark.parametrize(
    "duplicate",
    [
        copy.copy,
        copy.deepcopy,
        *(lambda loader, k=k: pickle.dumps(loader, k) for k in range(pickle.HIGHEST_PROTOCOL + 1)),
    ],
)
def test_a_loader_is_not_copied(duplicate: Callable[[Any], Any], directory: Path) -> None:
    """A copy would share position and workers, or have none; what to do is said."""
    with make_loader(directory) as loader:
        next(iter(loader))
        with pytest.raises(TypeError, match=r"cannot be copied or pickled; .*state_dict\(\)"):
            duplicate({"loader": [loader]} if duplicate is not copy.copy else loader)
        again = StatefulDataLoader(copy.deepcopy(loader.dataset))
        again.load_state_dict(loader.state_dict())
        assert ids_of(next(iter(again))) == ids_of(next(iter(loader))) == [1]


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_the_object_of_a_collate_fn_may_have_the_loader(
    start_method: StartMethod, directory: Path
) -> None:
    """As a class that trains has it. Processes that begin anew get the object, and all it has."""
    trainer = Trainer(directory, start_method)
    with trainer.loader as loader:
        assert [*loader] == list(range(SAMPLES))
        loader.close()  # the next processes get it when it has run
        assert [*loader] == list(range(SAMPLES))
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            copy.copy(loader)


# Epochs

LAST = 2**63 - 1


@pytest.mark.parametrize("epoch", [LAST + 1, 2**64, 10**400, 10**5000], ids=int.bit_length)
def test_an_epoch_beyond_the_last(epoch: int, directory: Path) -> None:
    loader = make_loader(directory, seed=1)
    loader.set_epoch(LAST)
    sample = loader.locate(LAST, 3).samples[0, 0]
    at = loader.when(int(sample))
    assert at is not None
    assert (at.epoch, at.step) == (LAST, 3)
    before = loader.state_dict()
    for call in (loader.set_epoch, lambda e: loader.locate(e, 0), lambda e: loader.when(0, e)):
        with pytest.raises(ValueError, match=rf"^epoch is .*; expected between 0 and {LAST}$"):
            call(epoch)
    with pytest.raises(ValueError, match=f"beyond epoch {LAST}, the last one"):
        loader.skip(epoch)
    with pytest.raises(ValueError, match=f"beyond epoch {LAST}, the last one"):
        loader.seek(len(loader))
    assert loader.state_dict() == before
    loader.skip(SAMPLES - 1)
    assert (loader.epoch, loader.position) == (LAST, SAMPLES - 1)


def test_a_seed_is_printable(directory: Path) -> None:
    largest = make_loader(directory, seed=2**8192 - 1)
    assert str(2**8192 - 1) in repr(largest)
    assert len(repr(largest.state_dict())) < 4096
    for seed in (2**8192, 10**5000):
        text = r"^shuffle_seed is an integer of \d+ bits; expected at most 8192 bits$"
        with pytest.raises(ValueError, match=text):
            make_loader(directory, seed=seed)

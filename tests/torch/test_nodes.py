"""A loader at the head of a pipeline of torchdata nodes: the pipeline's state is exact."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torchdata.nodes import BaseNode, Batcher, Loader, Mapper, ParallelMapper, Prefetcher

from guideloom import StatefulDataLoader, StateMismatchError
from guideloom_torch.nodes import LoaderNode

from .loader_cases import ids_of, make_loader, write_stream

SAMPLES = 26
EPOCHS = 2


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stream(tmp_path_factory.mktemp("nodes") / "stream", SAMPLES)


def plus_nothing(batch: dict[str, torch.Tensor]) -> list[int]:
    return ids_of(batch)


PIPELINES: dict[str, Callable[[LoaderNode], BaseNode[Any]]] = {
    "map": lambda node: Mapper(node, plus_nothing),
    "threads": lambda node: ParallelMapper(node, plus_nothing, num_workers=3, method="thread"),
    "threads and prefetch": lambda node: Prefetcher(
        ParallelMapper(node, plus_nothing, num_workers=2, method="thread"), prefetch_factor=4
    ),
    "prefetch, rare snapshots": lambda node: Prefetcher(
        Mapper(node, plus_nothing), prefetch_factor=3, snapshot_frequency=4
    ),
    "batches of batches": lambda node: Batcher(Mapper(node, plus_nothing), 2, drop_last=False),
}


def pipeline(directory: Path, name: str, **options: Any) -> Loader[Any]:
    loader = make_loader(directory, seed=4, local_batch_size=3, drop_last=False, **options)
    return Loader(PIPELINES[name](LoaderNode(loader)))


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "prefetch": 3}], ids=["plain", "ahead"])
def test_every_state_goes_on_with_the_rest(
    name: str, options: dict[str, Any], directory: Path
) -> None:
    """Also over the border of epochs, through JSON, in fresh objects."""
    run: list[Any] = []
    states: list[tuple[int, str]] = []
    whole = pipeline(directory, name, **options)
    for _ in range(EPOCHS):
        for item in whole:
            run.append(item)
            states.append((len(run), json.dumps(whole.state_dict())))
    assert len(run) > EPOCHS
    for count, state in states:
        resumed = pipeline(directory, name, **options)
        resumed.load_state_dict(json.loads(state))
        rest: list[Any] = []
        while len(rest) < len(run) - count:
            rest.extend(resumed)
        assert rest == run[count:], count


def test_epochs_differ_and_hold_every_sample_once(directory: Path) -> None:
    loader = pipeline(directory, "threads")
    epochs = [[k for ids in loader for k in ids] for _ in range(EPOCHS)]
    assert all(sorted(ids) == list(range(SAMPLES)) for ids in epochs)
    assert epochs[0] != epochs[1]


def test_a_state_of_other_data_is_refused(directory: Path, tmp_path: Path) -> None:
    other = pipeline(write_stream(tmp_path / "other", SAMPLES + 1), "map")
    next(iter(other))
    loader = pipeline(directory, "map")
    loader.load_state_dict(other.state_dict())
    with pytest.raises(StateMismatchError, match=r"has (samples|dataset) "):
        next(iter(loader))


def test_the_error_of_a_load_comes_out(directory: Path) -> None:
    def fails(rows: list[Any]) -> Any:
        raise LookupError(f"{len(rows)} rows, nothing to see")

    node = Prefetcher(LoaderNode(make_loader(directory, fails)), prefetch_factor=2)
    with pytest.raises(LookupError, match="nothing to see"):
        next(iter(Loader(node)))


@pytest.mark.parametrize("loader", [None, "loader", [1], StatefulDataLoader, 10**5000], ids=type)
def test_what_is_no_loader_is_refused(loader: Any) -> None:
    with pytest.raises(TypeError, match=r"^loader is .*; expected a StatefulDataLoader$"):
        LoaderNode(loader)


@pytest.mark.parametrize(
    "state", [{}, {"x": 1}, {5: 5}, {"load": {}}, "loader", ["loader"]], ids=str
)
def test_what_is_no_state_of_a_node_is_refused(state: Any, directory: Path) -> None:
    """The node stays as it was."""
    node = LoaderNode(make_loader(directory))
    node.reset()
    assert ids_of(next(node)) == [0]
    text = r"lacks the field 'loader'|expected the mapping"
    with pytest.raises(StateMismatchError, match=text):
        node.reset(state)
    assert ids_of(next(node)) == [1]
    for inner in (None, {}, {"epoch": 0}):
        with pytest.raises(StateMismatchError):
            node.reset({"loader": inner})

"""Rank and world size: given, from `torch.distributed`, or from a mesh."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from guideloom_torch._distributed import rank_and_world_size

from .loader_cases import deal, deliver, make_loader, write_stream

SAMPLES = 24


@contextmanager
def process(rank: int, world_size: int) -> Iterator[None]:
    """One process of many; the others need not be there."""
    dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stream(tmp_path_factory.mktemp("ranks") / "stream", SAMPLES)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_all_ranks_of_a_job(world_size: int, directory: Path) -> None:
    steps = deal(range(SAMPLES), world_size=world_size, local_batch_size=2, drop_last=True)
    for rank in range(world_size):
        with process(rank, world_size):
            loader = make_loader(directory, local_batch_size=2)
        assert [ids for _, ids in deliver(loader, until_epoch=1)] == [s[rank] for s in steps]


@pytest.mark.parametrize("shape", [(6,), (2, 3), (3, 2), (1, 6), (2, 1, 3)])
def test_a_mesh_of_any_shape(shape: tuple[int, ...]) -> None:
    """Whole, its ranks are those of the job; a dimension of it counts for itself."""
    names = tuple("abc"[: len(shape)])
    for rank in range(6):
        at = np.unravel_index(rank, shape)
        with process(rank, 6):
            mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
            assert rank_and_world_size(None, None, mesh) == (rank, 6)
            for k, name in enumerate(names):
                assert rank_and_world_size(None, None, mesh[name]) == (int(at[k]), shape[k])


def test_samples_of_a_mesh(directory: Path) -> None:
    """Ranks that share a model part read the same."""
    steps = deal(range(SAMPLES), world_size=2, local_batch_size=3, drop_last=True)
    for rank in range(6):
        with process(rank, 6):
            mesh = init_device_mesh("cpu", (2, 3), mesh_dim_names=("dp", "tp"))
            loader = make_loader(directory, local_batch_size=3, mesh=mesh["dp"])
        assert loader.global_batch_size == 6
        expected = [step[rank // 3] for step in steps]
        assert [ids for _, ids in deliver(loader, until_epoch=1)] == expected


def test_a_process_outside_of_the_mesh() -> None:
    with process(5, 6):
        mesh = DeviceMesh("cpu", [0, 1, 2])
        with pytest.raises(ValueError, match=r"not in the mesh .* mesh\['dp'\]"):
            rank_and_world_size(None, None, mesh)


@pytest.mark.parametrize("given", [{"rank": 0}, {"world_size": 6}, {"rank": 0, "world_size": 6}])
def test_a_mesh_beside_a_rank(given: dict[str, Any], directory: Path) -> None:
    with process(0, 6):
        mesh = init_device_mesh("cpu", (6,))
        with pytest.raises(TypeError, match="give the mesh alone"):
            make_loader(directory, mesh=mesh, **given)


def test_what_is_given_counts() -> None:
    with process(3, 6):
        assert rank_and_world_size(None, None, None) == (3, 6)
        assert rank_and_world_size(1, 2, None) == (1, 2)
        assert rank_and_world_size(None, 4, None) == (3, 4)
        assert rank_and_world_size(2, None, None) == (2, 6)


@pytest.mark.parametrize("mesh", ["dp", 0, [0, 1], DeviceMesh, np.arange(4)], ids=type)
def test_what_is_no_mesh(mesh: Any, directory: Path) -> None:
    with pytest.raises(TypeError, match=r"^mesh is .*; expected a DeviceMesh of torch.distributed"):
        make_loader(directory, mesh=mesh)

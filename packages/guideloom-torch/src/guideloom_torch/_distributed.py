"""Rank and world size of this process: from what is given, or from `torch.distributed`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

from guideloom_format._integers import as_index, shown
from guideloom_format._plan import MAX_WORLD_SIZE

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def rank_and_world_size(
    rank: int | None, world_size: int | None, mesh: DeviceMesh | None
) -> tuple[int, int]:
    """What is given; what is not comes from the mesh, else from `torch.distributed`.

    Raises:
        TypeError: a mesh beside a rank or world size; what is no mesh.
        ValueError: this process is not in the mesh; or there are several processes, as a launcher
            or `world_size` says, and which one this is is not known.
    """
    if mesh is not None:
        if rank is not None or world_size is not None:
            raise TypeError("mesh is given, and rank or world_size; give the mesh alone, or both")
        return _of_mesh(mesh)
    if rank is not None and world_size is not None:
        return rank, world_size
    found_rank, found_world_size = _of_process_group() or _alone(world_size)
    return (
        found_rank if rank is None else rank,
        found_world_size if world_size is None else world_size,
    )


def _of_mesh(mesh: DeviceMesh) -> tuple[int, int]:
    """Number of this process among those of the mesh, counted row by row, and their number."""
    if not _is_mesh(mesh):
        raise TypeError(
            f"mesh is {shown(mesh)} ({type(mesh).__name__}); expected a DeviceMesh of "
            "torch.distributed, for example mesh['dp']"
        )
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise ValueError(
            f"this process is not in the mesh {mesh}; give the mesh of the ranks that read "
            "different samples, for example mesh['dp']"
        )
    number = 0
    for at, size in zip(coordinate, mesh.mesh.shape, strict=True):
        number = number * size + at
    return number, mesh.size()


def _is_mesh(mesh: Any) -> bool:
    if not torch.distributed.is_available():
        return False
    from torch.distributed.device_mesh import DeviceMesh

    return isinstance(mesh, DeviceMesh)


def _of_process_group() -> tuple[int, int] | None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return None


def _alone(world_size: int | None) -> tuple[int, int]:
    """Rank and world size of a process that has no process group, in a job of one process."""
    launched = os.environ.get("WORLD_SIZE", "").strip() or "1"
    if launched != "1":
        raise ValueError(
            f"the environment has WORLD_SIZE={launched}, torch.distributed is not initialized, and "
            "rank and world_size were not both given: every process would read the same samples. "
            "Call torch.distributed.init_process_group() first, or pass rank= and world_size="
        )
    if world_size is not None and as_index("world_size", world_size, 1, MAX_WORLD_SIZE) > 1:
        raise ValueError(
            f"world_size is {shown(world_size)}, rank is not given, and torch.distributed is not "
            "initialized: every process would be rank 0 and read the same samples. Pass rank= as "
            "well, or call torch.distributed.init_process_group() first and leave both out"
        )
    return 0, 1

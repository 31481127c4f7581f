"""Counts what a process says to the other ranks: by torch's functions, and by gloo's own number.

Two independent ways, since neither sees all: the functions of `torch.distributed` and the methods
of its groups and stores are replaced, in this process and in those that it forks; and the number
that a group gives to each operation tells of those that do not go by way of Python.
"""

from __future__ import annotations

import functools
import mmap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, ProcessGroup, Store, TCPStore
from torch.distributed import distributed_c10d

SILENT = {
    "GroupName",
    "get_",
    "is_",
    "supports_",
    "register_",
    "unregister_",
    "set_timeout",
    "destroy_process_group",
    "record_comm",
    "size",
    "rank",
    "name",
    "group_name",
    "group_desc",
    "bound_device_id",
    "boxed",
    "unbox",
}
"""What says nothing to others, by its name or how that begins."""
ROOM = 1 << 16


class Calls:
    """The names of calls, from all processes that were forked since."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, ROOM)

    def add(self, name: str) -> None:
        """Note one; names of processes at the same time may be lost, but never all of them."""
        end = self._memory.find(b"\0")
        self._memory[end : end + len(name) + 1] = name.encode() + b" "

    def names(self) -> list[str]:
        """All that was called."""
        return self._memory[: self._memory.find(b"\0")].decode().split()


@contextmanager
def counted() -> Iterator[Calls]:
    """The calls of this process to others, while in the block; read them behind it."""
    calls = Calls()
    groups: list[Any] = [*distributed_c10d._world.pg_map]
    before = [group._get_sequence_number_for_group() for group in groups]
    with ExitStack() as stack:
        for owner, name in speaking():
            spy = _spy(getattr(owner, name), f"{owner.__name__}.{name}", calls)
            stack.enter_context(patch.object(owner, name, spy))
        yield calls
    after = [group._get_sequence_number_for_group() for group in groups]
    if after != before:
        calls.add(f"gloo:{before}->{after}".replace(" ", ""))


def speaking() -> list[tuple[Any, str]]:
    """Every function and method by which a process speaks to others, and where it is found."""
    found: list[tuple[Any, str]] = []
    for module in (distributed_c10d, dist):
        names = [name for name in distributed_c10d.__all__ if hasattr(module, name)]
        found += [(module, name) for name in names if _speaks(getattr(module, name), name)]
    for one in (ProcessGroup, Store, FileStore, PrefixStore, TCPStore):
        found += [(one, name) for name in dir(one) if _speaks(getattr(one, name), name)]
    return found


def _speaks(value: Any, name: str) -> bool:
    quiet = name.startswith("_") or any(
        name == word or (word.endswith("_") and name.startswith(word)) for word in SILENT
    )
    return callable(value) and not isinstance(value, type) and not quiet


def _spy(call: Callable[..., Any], name: str, calls: Calls) -> Callable[..., Any]:
    @functools.wraps(call)
    def spy(*args: Any, **kwargs: Any) -> Any:
        calls.add(name)
        return call(*args, **kwargs)

    return spy

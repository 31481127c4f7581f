"""A loader as the source of a `torchdata.nodes` pipeline, with its exact state.

::

    from torchdata.nodes import Loader, ParallelMapper, Prefetcher
    from guideloom_torch.nodes import LoaderNode

    node = LoaderNode(StatefulDataLoader.from_storage(storage, sequence_length=1024, …))
    node = Prefetcher(ParallelMapper(node, augment, num_workers=4, method="thread"), 8)
    loader = Loader(node)            # loader.state_dict(), loader.load_state_dict(state)

The state of such a pipeline counts what came out at its end: torchdata keeps the state of the
source beside each item on its way. Here that is the loader's position right after the item.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchdata.nodes import BaseNode

from guideloom_format import StateMismatchError
from guideloom_format._integers import shown
from guideloom_torch._loader import StatefulDataLoader
from guideloom_torch._state import fields_of

LOADER = "loader"


class LoaderNode(BaseNode[Any]):  # type: ignore[misc]
    """The batches of a loader; one pass is the rest of an epoch.

    Args:
        loader: a `StatefulDataLoader`, with its own workers and prefetching, if it has any. Only
            the node may use it, but for `state_dict`, which may be ahead of what came out of the
            pipeline.

    Raises:
        TypeError: no such loader.
    """

    def __init__(self, loader: StatefulDataLoader) -> None:
        if not isinstance(loader, StatefulDataLoader):
            raise TypeError(f"loader is {shown(loader)}; expected a StatefulDataLoader")
        super().__init__()
        self._loader = loader
        self._batches: Iterator[Any] = iter(())

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Go to a state, or on with the rest of the epoch, or the next one.

        Raises:
            StateMismatchError: the state is not one of such a node; or see the loader's
                `load_state_dict`, as for DatasetNotFoundError.
        """
        if initial_state is not None:
            state = _state_of_loader(initial_state)
        super().reset(initial_state)
        if initial_state is not None:
            self._loader.load_state_dict(state)
        self._batches = iter(self._loader)

    def next(self) -> Any:
        """The next batch."""
        return next(self._batches)

    def get_state(self) -> dict[str, Any]:
        """The loader's."""
        return {LOADER: self._loader.state_dict()}


def _state_of_loader(state: Any) -> Any:
    fields, others = fields_of(state)
    if LOADER not in fields:
        raise StateMismatchError(
            f"the state of a LoaderNode lacks the field {LOADER!r} and has "
            f"{shown(sorted(fields) + others)}; expected what its state_dict() returned"
        )
    return fields[LOADER]

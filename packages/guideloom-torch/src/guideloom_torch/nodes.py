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

from guideloom_torch._loader import StatefulDataLoader

LOADER = "loader"


class LoaderNode(BaseNode[Any]):  # type: ignore[misc]
    """The batches of a loader; one pass is the rest of an epoch.

    Args:
        loader: with its own workers and prefetching, if it has any. Only the node may use it, but
            for `state_dict`, which may be ahead of what came out of the pipeline.
    """

    def __init__(self, loader: StatefulDataLoader) -> None:
        super().__init__()
        self._loader = loader
        self._batches: Iterator[Any] = iter(())

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Go to a state, or on with the rest of the epoch, or the next one.

        Raises:
            StateMismatchError, DatasetNotFoundError: see the loader's `load_state_dict`.
        """
        super().reset(initial_state)
        if initial_state is not None:
            self._loader.load_state_dict(initial_state[LOADER])
        self._batches = iter(self._loader)

    def next(self) -> Any:
        """The next batch."""
        return next(self._batches)

    def get_state(self) -> dict[str, Any]:
        """The loader's."""
        return {LOADER: self._loader.state_dict()}

"""torch's DataLoader over a memmap of the tokens.

`usual`, what most scripts do: a window per sample, and torch's default collation. `batched`:
`__getitems__` gives the DataLoader a whole batch, copied by one NumPy index, several times as fast.
Tokens stay uint16. Tried for the one worker: prefetch factors of 2, 4 and 8, without a difference
that could be told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from peers.harness import Loader, Peer, Setting, serve
from peers.tokens import BATCH, SEED, STRIDE, WINDOW, TokenSet


class Windows(Dataset[Any]):
    """Windows of a memmap, one at a time."""

    def __init__(self, tokens: TokenSet) -> None:
        self._stream = tokens.stream()
        self._windows = tokens.windows

    def __len__(self) -> int:
        return self._windows

    def __getitem__(self, index: int) -> torch.Tensor:
        start = index * STRIDE
        return torch.from_numpy(np.array(self._stream[start : start + WINDOW]))


class WindowBatches(Dataset[Any]):
    """Windows of a memmap, a batch at a time."""

    def __init__(self, tokens: TokenSet) -> None:
        self._rows = np.asarray(tokens.rows())

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, indexes: list[int]) -> torch.Tensor:
        return torch.from_numpy(self._rows[indexes])

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.array(self._rows[index]))


def same(batch: Any) -> Any:
    """A batch that is one already."""
    return batch


def options(tokens: TokenSet, setting: str) -> dict[str, Any]:
    """Arguments of a DataLoader."""
    batched = "batched" in setting
    worker = "worker" in setting
    return {
        "dataset": WindowBatches(tokens) if batched else Windows(tokens),
        "collate_fn": same if batched else None,
        "batch_size": BATCH,
        "shuffle": True,
        "drop_last": True,
        "generator": torch.Generator().manual_seed(SEED),
        "num_workers": int(worker),
        "prefetch_factor": 4 if worker else None,
        "persistent_workers": worker,
    }


class TorchLoader(Loader):
    def __init__(self, tokens: TokenSet, setting: str) -> None:
        self._loader = DataLoader(**options(tokens, setting))

    def epoch(self) -> Iterator[Any]:
        return iter(self._loader)


class Torch(Peer):
    packages = ("torch",)
    settings: ClassVar[dict[str, Setting]] = {
        "usual": Setting(False, "memmap, a window per sample, default collation"),
        "batched": Setting(False, "memmap, __getitems__ with one NumPy index", True),
        "batched, worker": Setting(True, "the same, 1 worker, prefetch_factor=4", True),
    }

    def open(self, tokens: TokenSet, setting: str) -> Loader:
        return TorchLoader(tokens, setting)


if __name__ == "__main__":
    serve(Torch())

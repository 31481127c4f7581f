"""Megatron-Core's IndexedDataset under torch's DataLoader: the stream as one document.

`usual`: a window per sample with torch's default collation. `batched`: `__getitems__`, which makes
one array of a batch, half as fast again. Tried: reads of the file instead of its memory map (less
than half as fast).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from megatron.core.datasets.indexed_dataset import (  # type: ignore[import-not-found]
    IndexedDataset,
    IndexedDatasetBuilder,
    get_bin_path,
    get_idx_path,
)
from torch.utils.data import DataLoader, Dataset

from peers.harness import Loader, Peer, Setting, serve
from peers.tokens import BATCH, STRIDE, WINDOW, TokenSet
from peers.torch_loader import same


class Windows(Dataset[Any]):
    """Windows of the first document."""

    def __init__(self, tokens: TokenSet) -> None:
        self._indexed = IndexedDataset(str(tokens.of_peer("Megatron")), mmap=True)
        self._windows = tokens.windows

    def __len__(self) -> int:
        return self._windows

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.array(self._indexed.get(0, index * STRIDE, WINDOW)))


class WindowBatches(Windows):
    """The same, a batch at a time."""

    def __getitems__(self, indexes: list[int]) -> torch.Tensor:
        get = self._indexed.get
        return torch.from_numpy(np.stack([get(0, index * STRIDE, WINDOW) for index in indexes]))


class MegatronLoader(Loader):
    def __init__(self, tokens: TokenSet, setting: str) -> None:
        worker = "worker" in setting
        usual = setting == "usual"
        self._loader = DataLoader(
            Windows(tokens) if usual else WindowBatches(tokens),
            BATCH,
            shuffle=True,
            drop_last=True,
            collate_fn=None if usual else same,
            num_workers=int(worker),
            prefetch_factor=4 if worker else None,
            persistent_workers=worker,
        )

    def epoch(self) -> Iterator[Any]:
        return iter(self._loader)


class Megatron(Peer):
    packages = ("megatron-core",)
    settings: ClassVar[dict[str, Setting]] = {
        "usual": Setting(False, "IndexedDataset.get, mmap=True, default collation"),
        "batched": Setting(False, "the same, np.stack in __getitems__", True),
        "batched, worker": Setting(True, "the same, 1 worker, prefetch_factor=4", True),
    }

    def convert(self, tokens: TokenSet) -> None:
        prefix = str(tokens.of_peer("Megatron"))
        builder = IndexedDatasetBuilder(get_bin_path(prefix), dtype=np.uint16)
        builder.add_document(tokens.stream(), [tokens.windows * STRIDE + 1])
        builder.finalize(get_idx_path(prefix))

    def open(self, tokens: TokenSet, setting: str) -> Loader:
        return MegatronLoader(tokens, setting)


if __name__ == "__main__":
    serve(Megatron())

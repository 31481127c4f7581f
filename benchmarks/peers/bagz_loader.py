"""bagz: a record per window in 8 shards, without compression.

bagz has readers and no loader. `usual`: a window per sample under torch's DataLoader. `loop`, the
fastest found: the order is a NumPy permutation, and a batch one `read_indices`, joined and viewed
as tokens. Tried besides: `max_parallelism` 1, and its default (slower by a factor of 40 for so few
bytes); `read_indices_iter` (half as fast); limits in memory and on disk (no difference). Ahead:
torch's DataLoader with 1 worker, whole batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import bagz  # type: ignore[import-not-found]
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from peers.harness import Loader, Peer, Setting, serve
from peers.tokens import BATCH, SEED, WINDOW, TokenSet
from peers.torch_loader import same

SHARDS = 8


def open_reader(tokens: TokenSet) -> Any:
    """A reader of all shards, one after the other."""
    options = bagz.Reader.Options(
        sharding_layout=bagz.ShardingLayout.CONCATENATED,
        compression=bagz.CompressionNone(),
        limits_storage=bagz.LimitsStorage.IN_MEMORY,
        max_parallelism=1,
    )
    return bagz.Reader(f"{tokens.of_peer('Bagz')}/tokens@{SHARDS}.bagz", options)


def batch_of(reader: Any, indexes: Any) -> torch.Tensor:
    """Windows as a tensor."""
    data = bytearray().join(reader.read_indices(indexes))
    return torch.from_numpy(np.frombuffer(data, dtype=np.uint16).reshape(-1, WINDOW))


class Windows(Dataset[Any]):
    """For torch's DataLoader: a window at a time."""

    def __init__(self, tokens: TokenSet) -> None:
        self._reader = open_reader(tokens)

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.frombuffer(bytearray(self._reader[index]), dtype=np.uint16))


class WindowBatches(Dataset[Any]):
    """For torch's DataLoader: a batch at a time."""

    def __init__(self, tokens: TokenSet) -> None:
        self._reader = open_reader(tokens)

    def __len__(self) -> int:
        return len(self._reader)

    def __getitems__(self, indexes: list[int]) -> torch.Tensor:
        return batch_of(self._reader, indexes)

    def __getitem__(self, index: int) -> torch.Tensor:
        return batch_of(self._reader, [index])[0]


class OwnLoop(Loader):
    def __init__(self, tokens: TokenSet) -> None:
        self._reader = open_reader(tokens)
        self._rng = np.random.default_rng(SEED)

    def epoch(self) -> Iterator[Any]:
        order = self._rng.permutation(len(self._reader))
        for start in range(0, order.size - BATCH + 1, BATCH):
            yield batch_of(self._reader, order[start : start + BATCH])


class UnderTorch(Loader):
    def __init__(self, tokens: TokenSet, usual: bool, worker: bool) -> None:
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


class Bagz(Peer):
    packages = ("bagz",)
    settings: ClassVar[dict[str, Setting]] = {
        "usual": Setting(False, "reader[i] under torch's DataLoader, default collation"),
        "loop": Setting(False, "read_indices in a loop of one's own", True),
        "batched, worker": Setting(
            True, "read_indices in __getitems__, 1 worker, prefetch_factor=4", True
        ),
    }

    def convert(self, tokens: TokenSet) -> None:
        folder = tokens.of_peer("Bagz")
        folder.mkdir(exist_ok=True)
        options = bagz.Writer.Options(compression=bagz.CompressionNone())
        for shard, rows in enumerate(tokens.parts(SHARDS)):
            name = f"{folder}/tokens-{shard:05d}-of-{SHARDS:05d}.bagz"
            with bagz.Writer(name, options) as writer:
                for row in rows:
                    writer.write(row.tobytes())

    def open(self, tokens: TokenSet, setting: str) -> Loader:
        if setting == "loop":
            return OwnLoop(tokens)
        return UnderTorch(tokens, setting == "usual", "worker" in setting)


if __name__ == "__main__":
    serve(Bagz())

"""LitData: a chunk of tokens per shard, 8 of 16 MiB, read in place through TokensLoader.

LitData shuffles the chunks, and the samples within each: its order is not global. Tried: tokens as
tensors and as NumPy arrays; samples shuffled in all of a chunk, which is used, and in windows of
256 (neither makes a difference in speed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from litdata import (  # type: ignore[import-not-found]
    StreamingDataLoader,
    StreamingDataset,
    TokensLoader,
)
from litdata.streaming import Cache  # type: ignore[import-not-found]

from peers.harness import Loader, Peer, Setting, serve
from peers.tokens import BATCH, SEED, WINDOW, TokenSet

SHARDS = 8
LENGTH = 8


def open_dataset(folder: Path, window: int, shuffle: bool) -> Any:
    """The samples of a folder."""
    return StreamingDataset(
        str(folder),
        item_loader=TokensLoader(window),
        shuffle=shuffle,
        drop_last=True,
        seed=SEED,
        item_shuffle_window="full",
    )


class LitDataLoader(Loader):
    def __init__(self, tokens: TokenSet, setting: str) -> None:
        worker = "worker" in setting
        self._loader = StreamingDataLoader(
            open_dataset(tokens.of_peer("LitData"), WINDOW, True),
            batch_size=BATCH,
            drop_last=True,
            num_workers=int(worker),
            prefetch_factor=4 if worker else None,
            persistent_workers=worker,
        )

    def epoch(self) -> Iterator[Any]:
        batches: Iterator[Any] = iter(self._loader)
        return batches

    def state(self) -> Any:
        return self._loader.state_dict()

    def load(self, state: Any) -> None:
        self._loader.load_state_dict(state)


def write_chunks(folder: Path, samples: Iterator[Any], per_chunk: int) -> None:
    """Samples as chunks of so many tokens each."""
    folder.mkdir(parents=True, exist_ok=True)
    cache = Cache(str(folder), chunk_size=per_chunk, item_loader=TokensLoader())
    for index, sample in enumerate(samples):
        cache[index] = torch.from_numpy(sample)
    cache.done()
    cache.merge()


class LitData(Peer):
    packages = ("litdata",)
    settings: ClassVar[dict[str, Setting]] = {
        "TokensLoader": Setting(False, "TokensLoader, chunks and samples in chunks shuffled"),
        "TokensLoader, worker": Setting(True, "the same, 1 worker, prefetch_factor=4"),
    }
    resumes = "TokensLoader"
    opens_shards = True

    def convert(self, tokens: TokenSet) -> None:
        rows = (row for part in tokens.parts(SHARDS) for row in part)
        write_chunks(tokens.of_peer("LitData"), rows, -(-tokens.windows // SHARDS) * WINDOW)

    def open(self, tokens: TokenSet, setting: str) -> Loader:
        return LitDataLoader(tokens, setting)

    def write_shards(self, folder: Path, count: int) -> None:
        samples = (np.full(LENGTH, k % 60_000, dtype=np.uint16) for k in range(count))
        write_chunks(folder, samples, LENGTH)

    def open_shards(self, folder: Path) -> Callable[[], object]:
        dataset = open_dataset(folder, LENGTH, False)
        length = len(dataset)
        return lambda: dataset[length - 1]


if __name__ == "__main__":
    serve(LitData())

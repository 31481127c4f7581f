"""Grain: MapDataset over a memmap of the tokens.

`usual`: a source that gives a window, batched by Grain. `batched`: the shuffled ids are batched,
and a map copies the windows by one NumPy index, faster by half. Tried: ArrayRecord files with a
window per record (a third as fast as `usual`); ahead, one reading thread,
`ThreadPrefetchIterDataset` around none (the same), and a worker process by `mp_prefetch` (slower
than no worker).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, ClassVar

import grain  # type: ignore[import-not-found]
import numpy as np
import torch

from peers.harness import Loader, Peer, Setting, serve
from peers.tokens import BATCH, SEED, STRIDE, WINDOW, Tokens, TokenSet


class Windows:
    """A random access source."""

    def __init__(self, tokens: TokenSet) -> None:
        self._stream = tokens.stream()
        self._windows = tokens.windows

    def __len__(self) -> int:
        return self._windows

    def __getitem__(self, index: Any) -> Tokens:
        start = int(index) * STRIDE
        return np.asarray(self._stream[start : start + WINDOW])


class GrainLoader(Loader):
    def __init__(self, tokens: TokenSet, setting: str) -> None:
        dataset = self._dataset(tokens, setting).map(torch.from_numpy)
        ahead = "thread" in setting
        options = grain.ReadOptions(num_threads=int(ahead), prefetch_buffer_size=4 * ahead)
        self._iterator = iter(dataset.to_iter_dataset(options))
        self._steps = tokens.steps

    def _dataset(self, tokens: TokenSet, setting: str) -> Any:
        if "batched" in setting:
            rows = np.asarray(tokens.rows())
            ids = grain.MapDataset.range(tokens.windows).seed(SEED).shuffle().repeat(1 << 20)
            return ids.batch(BATCH, drop_remainder=True).map(lambda some: rows[some])
        dataset = grain.MapDataset.source(Windows(tokens))
        return dataset.seed(SEED).shuffle().repeat(1 << 20).batch(BATCH, drop_remainder=True)

    def epoch(self) -> Iterator[Any]:
        return itertools.islice(self._iterator, self._steps)

    def state(self) -> Any:
        return self._iterator.get_state()

    def load(self, state: Any) -> None:
        self._iterator.set_state(state)


class Grain(Peer):
    packages = ("grain",)
    settings: ClassVar[dict[str, Setting]] = {
        "usual": Setting(False, "memmap, a window per sample, num_threads=0"),
        "batched": Setting(False, "ids batched, one NumPy index, num_threads=0", True),
        "batched, thread": Setting(True, "the same, num_threads=1, prefetch_buffer_size=4", True),
    }
    resumes = "batched"

    def open(self, tokens: TokenSet, setting: str) -> Loader:
        return GrainLoader(tokens, setting)


if __name__ == "__main__":
    serve(Grain())

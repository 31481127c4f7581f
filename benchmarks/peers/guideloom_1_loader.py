"""The published guideloom 1.1.0, by its documentation.

Its windows do not overlap, so the stream holds every window in full. Collation is `np.stack` of the
samples. Tried: its three I/O backends (`SeekIO` is half as fast as the two shown); one thread with
and without prefetch, and two (all a sixth as fast as no thread).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch

from guideloom import StatefulDataLoader, StreamNumpyFormat, StreamStorage
from guideloom.io import MmapIO, PosixPreadIO
from peers.harness import Loader, Peer, Setting, serve
from peers.tokens import BATCH, SEED, WINDOW, TokenSet

FORMAT = StreamNumpyFormat(np.dtype([("tokens", "<u2")]))
SHARDS = 8


def stacked(samples: Any) -> torch.Tensor:
    """A batch of samples."""
    return torch.from_numpy(np.stack([sample["tokens"] for sample in samples]))


class OneLoader(Loader):
    def __init__(self, tokens: TokenSet, setting: str) -> None:
        backend = MmapIO() if "mmap" in setting else PosixPreadIO()
        storage = StreamStorage(tokens.of_peer("GuideLoom1"), FORMAT, backend)
        thread = "thread" in setting
        self._loader = StatefulDataLoader.from_storage(
            storage,
            stacked,
            sequence_length=WINDOW,
            local_batch_size=BATCH,
            shuffle=True,
            shuffle_seed=SEED,
            num_workers=int(thread),
            prefetch=4 if thread else 0,
        )
        self._opened = self._loader.__enter__()

    def epoch(self) -> Iterator[Any]:
        return iter(self._opened)

    def state(self) -> Any:
        return dict(self._opened.state_dict())

    def load(self, state: Any) -> None:
        self._opened.load_state_dict(state)


class GuideLoom1(Peer):
    packages = ("guideloom",)
    settings: ClassVar[dict[str, Setting]] = {
        "pread": Setting(False, "PosixPreadIO, np.stack"),
        "mmap": Setting(False, "MmapIO, np.stack"),
        "pread, thread": Setting(True, "PosixPreadIO, np.stack, 1 thread, prefetch=4"),
    }
    resumes = "pread"

    def convert(self, tokens: TokenSet) -> None:
        folder = tokens.of_peer("GuideLoom1")
        with StreamStorage(folder, FORMAT).sync_writer() as writer:
            for shard, rows in enumerate(tokens.parts(SHARDS)):
                writer.append(shard, {"tokens": rows.reshape(-1)})

    def open(self, tokens: TokenSet, setting: str) -> Loader:
        return OneLoader(tokens, setting)


if __name__ == "__main__":
    serve(GuideLoom1())

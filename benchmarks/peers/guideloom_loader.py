"""This project's StatefulDataLoader, with its two I/O backends and one thread ahead."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from guideloom import StatefulDataLoader, StreamNumpyFormat, StreamStorage
from guideloom.io import MmapIO, PosixPreadIO
from part_set import LENGTH, prepare_parts
from peers.harness import Loader, Peer, Setting, serve
from peers.tokens import BATCH, SEED, STRIDE, WINDOW, TokenSet

FORMAT = StreamNumpyFormat(np.dtype([("tokens", "<u2")]))
SHARDS = 8


class GuideLoomLoader(Loader):
    def __init__(self, tokens: TokenSet, setting: str) -> None:
        backend = MmapIO() if "mmap" in setting else PosixPreadIO()
        storage = StreamStorage(tokens.of_peer("GuideLoom"), FORMAT, backend)
        thread = "thread" in setting
        self._loader = StatefulDataLoader.from_storage(
            storage,
            sequence_length=WINDOW,
            stride=STRIDE,
            local_batch_size=BATCH,
            shuffle=True,
            shuffle_seed=SEED,
            num_workers=int(thread),
            prefetch=4 if thread else 0,
        )

    def epoch(self) -> Iterator[Any]:
        return (batch["tokens"] for batch in self._loader)

    def state(self) -> Any:
        return self._loader.state_dict()

    def load(self, state: Any) -> None:
        self._loader.load_state_dict(state)


class GuideLoom(Peer):
    packages = ("guideloom-torch",)
    settings: ClassVar[dict[str, Setting]] = {
        "pread": Setting(False, "PosixPreadIO"),
        "mmap": Setting(False, "MmapIO"),
        "pread, thread": Setting(True, "PosixPreadIO, 1 thread, prefetch=4"),
        "mmap, thread": Setting(True, "MmapIO, 1 thread, prefetch=4"),
    }
    resumes = "pread"
    opens_shards = True

    def convert(self, tokens: TokenSet) -> None:
        folder = tokens.of_peer("GuideLoom")
        shutil.rmtree(folder, ignore_errors=True)
        storage = StreamStorage(folder, FORMAT)
        with storage.sync_writer() as writer:
            for shard, part in enumerate(np.array_split(tokens.stream(), SHARDS)):
                writer.append(shard, {"tokens": part})
        storage.consolidate()

    def open(self, tokens: TokenSet, setting: str) -> Loader:
        return GuideLoomLoader(tokens, setting)

    def write_shards(self, folder: Path, count: int) -> None:
        storage = prepare_parts(folder, count, 1)
        storage.consolidate()

    def open_shards(self, folder: Path) -> Callable[[], object]:
        (directory,) = folder.iterdir()
        reader = StreamStorage(directory, FORMAT).sync_reader().open()
        length = len(reader)
        return lambda: reader.read(length - LENGTH, LENGTH)


if __name__ == "__main__":
    serve(GuideLoom())

"""MosaicML Streaming: MDS shards of 16 MiB on the local disk, no remote, no compression.

Tried: the shuffles py1e, the default, and naive, a global permutation (as fast, and used);
`predownload` of 512 and 64 samples (the former); columns of bytes with a collation of one's own, a
quarter faster than `ndarray:uint16:1025` with torch's, and with the same place among the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from streaming import (  # type: ignore[import-not-found]
    MDSWriter,
    StreamingDataLoader,
    StreamingDataset,
)

from peers.harness import Loader, Peer, Setting, serve
from peers.tokens import BATCH, SEED, WINDOW, TokenSet

SHARD_BYTES = 1 << 24
PREFIXES: list[str] = []  # of the shared memory that this process has named


class StreamingLoader(Loader):
    def __init__(self, tokens: TokenSet, setting: str) -> None:
        worker = "worker" in setting
        dataset = StreamingDataset(
            local=str(tokens.of_peer("Streaming")),
            batch_size=BATCH,
            shuffle=True,
            shuffle_algo="naive",
            shuffle_seed=SEED,
            num_canonical_nodes=1,
        )
        PREFIXES.append(f"{dataset._shm_prefix_int:06}")
        self._loader = StreamingDataLoader(
            dataset,
            batch_size=BATCH,
            drop_last=True,
            num_workers=int(worker),
            prefetch_factor=4 if worker else None,
            persistent_workers=worker,
        )

    def epoch(self) -> Iterator[Any]:
        return (batch["tokens"] for batch in self._loader)

    def state(self) -> Any:
        return self._loader.state_dict()

    def load(self, state: Any) -> None:
        self._loader.load_state_dict(state)


class Streaming(Peer):
    packages = ("mosaicml-streaming",)
    settings: ClassVar[dict[str, Setting]] = {
        "MDS": Setting(False, "ndarray:uint16:1025, shuffle_algo=naive"),
        "MDS, worker": Setting(True, "the same, 1 worker, prefetch_factor=4"),
    }
    resumes = "MDS"

    def convert(self, tokens: TokenSet) -> None:
        columns = {"tokens": f"ndarray:uint16:{WINDOW}"}
        folder = str(tokens.of_peer("Streaming"))
        with MDSWriter(
            out=folder, columns=columns, size_limit=SHARD_BYTES, exist_ok=True
        ) as writer:
            for part in tokens.parts(8):
                for row in part:
                    writer.write({"tokens": row})

    def clean(self) -> None:
        for name in PREFIXES:
            for path in Path("/dev/shm").glob(f"{name}_*"):
                path.unlink(missing_ok=True)

    def open(self, tokens: TokenSet, setting: str) -> Loader:
        return StreamingLoader(tokens, setting)


if __name__ == "__main__":
    serve(Streaming())

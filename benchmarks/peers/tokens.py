"""The tokens that all peers serve: a stream of random uint16, and the same cut into windows.

Window k is tokens 1024 k to 1024 k + 1024 inclusive: inputs and shifted labels. Peers that read
stretches of a stream take it as it is. Peers that store samples get every window as a sample of
its own, which repeats one token in 1,025; what they deliver is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WINDOW = 1025
STRIDE = 1024
BATCH = 64
SEED = 17

Tokens = NDArray[np.uint16]


@dataclass(frozen=True)
class TokenSet:
    """A folder with the tokens, and with a folder for each peer's own format."""

    folder: Path
    windows: int

    @classmethod
    def load(cls, folder: Path) -> TokenSet:
        """The set that is there."""
        return cls(folder, json.loads((folder / "tokens.json").read_text())["windows"])

    @property
    def path(self) -> Path:
        """The raw stream."""
        return self.folder / "tokens.bin"

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return self.windows // BATCH

    def of_peer(self, name: str) -> Path:
        """Where a peer keeps the tokens in its format."""
        return self.folder / name

    def stream(self) -> Tokens:
        """All tokens, mapped."""
        return np.memmap(self.path, dtype=np.uint16, mode="r")

    def rows(self) -> Tokens:
        """All windows, (windows, WINDOW), without a copy."""
        return np.lib.stride_tricks.sliding_window_view(self.stream(), WINDOW)[::STRIDE]

    def parts(self, count: int) -> Iterator[Tokens]:
        """The windows in so many stretches, copied."""
        for ids in np.array_split(np.arange(self.windows), count):
            yield np.ascontiguousarray(self.rows()[ids[0] : ids[-1] + 1])

    def read_once(self) -> None:
        """Put the stream into the page cache."""
        with self.path.open("rb", buffering=0) as file:
            while file.read(1 << 22):
                pass


def prepare_tokens(work: Path, windows: int) -> TokenSet:
    """Write the set unless it is there."""
    tokens = TokenSet(work / f"peers-{windows}", windows)
    if not (tokens.folder / "tokens.json").exists():
        tokens.folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(SEED)
        rng.integers(0, 1 << 16, windows * STRIDE + 1, dtype=np.uint16).tofile(tokens.path)
        (tokens.folder / "tokens.json").write_text(json.dumps({"windows": windows}))
    tokens.read_once()
    return tokens


class Known:
    """Tells which windows a batch holds, and that they hold the right tokens."""

    def __init__(self, tokens: TokenSet) -> None:
        self._rows = tokens.rows()
        keys = np.ascontiguousarray(self._rows[:, :4]).view(np.uint64).reshape(-1)
        self._order = np.argsort(keys)
        self._keys = keys[self._order]

    def ids(self, batch: Tokens) -> NDArray[np.int64]:
        """The window of each row.

        Raises:
            ValueError: a row is none of the windows.
        """
        keys = np.ascontiguousarray(batch[:, :4]).view(np.uint64).reshape(-1)
        found = self._order[np.minimum(np.searchsorted(self._keys, keys), self._keys.size - 1)]
        if not np.array_equal(self._rows[found], batch):
            raise ValueError("a batch has rows that are no windows of the stream")
        return found

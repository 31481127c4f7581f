"""What the distributed examples share: a dataset, checkpoints, and a log of rows. Without torch.

The log has a checksum of every row that a rank was given. It is how one sees that a run which was
killed and went on, perhaps on another number of ranks, was given exactly what an undisturbed run is
given.
"""

import json
import os
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from guideloom import StreamNumpyFormat, StreamStorage

CONTEXT = 32
VOCABULARY = 256
GLOBAL_BATCH = 12  # can be dealt to 1, 2, 3, 4, 6 or 12 ranks
SEED = 7


def storage(directory: Path) -> StreamStorage:
    """A stream of bytes."""
    return StreamStorage(directory, StreamNumpyFormat(np.dtype([("tokens", "u1")])))


def write(directory: Path) -> None:
    """A dataset of some words, if there is none: an epoch of 58 steps, and four windows left."""
    if (directory / "guideloom.json").exists():
        return
    words = np.frombuffer(b"the quick brown fox jumps over a lazy dog and runs away ", np.uint8)
    rng = np.random.default_rng(SEED)
    with storage(directory).sync_writer() as writer:
        for shard in range(2):
            text = np.concatenate([np.roll(words, k) for k in rng.integers(0, 50, 200)])
            writer.append(shard, {"tokens": text})
    storage(directory).consolidate()


class RowLog:
    """Appends a line for each step of a rank.

    Args:
        folder: of the log.
        rank: of this process.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"rank-{rank}.jsonl").open("a")

    def add(self, step: int, loss: float, windows: NDArray[np.integer]) -> None:
        """Note what the step was given."""
        rows = [zlib.crc32(row.tobytes()) for row in windows.astype(np.uint8)]
        self._file.write(json.dumps({"step": step, "loss": loss, "rows": rows}) + "\n")
        self._file.flush()


def newest(run: Path) -> Path | None:
    """The newest whole checkpoint of a run."""
    pointer = run / "latest"
    return run / pointer.read_text() if pointer.exists() else None


def switch_to(run: Path, name: str) -> None:
    """Make a checkpoint, which is whole, the newest one."""
    temporary = run / "latest.new"
    temporary.write_text(name)
    os.replace(temporary, run / "latest")

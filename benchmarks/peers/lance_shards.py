"""Lance, for opening a dataset of many fragments: one version, whose manifest lists all files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance  # type: ignore[import-not-found]
import pyarrow as pa

from peers.harness import Peer, serve

LENGTH = 8


class Lance(Peer):
    packages = ("pylance", "pyarrow")
    opens_shards = True

    def write_shards(self, folder: Path, count: int) -> None:
        column = pa.array([k % 60_000 for k in range(count * LENGTH)], pa.uint16())
        table = pa.table({"tokens": column})
        lance.write_dataset(table, str(folder), mode="overwrite", max_rows_per_file=LENGTH)

    def open_shards(self, folder: Path) -> Callable[[], object]:
        dataset = lance.dataset(str(folder))
        rows = dataset.count_rows()
        return lambda: dataset.take([rows - 1])


if __name__ == "__main__":
    serve(Lance())

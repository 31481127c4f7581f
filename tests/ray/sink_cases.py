"""What Ray does with a `GuideLoomDatasink`, without Ray's processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from ray import cloudpickle
from ray.data.block import Block

from guideloom import DocumentBytesFormat, DocumentStorage
from guideloom_write.ray import GuideLoomDatasink


def storage(directory: Path) -> DocumentStorage:
    return DocumentStorage(directory, DocumentBytesFormat())


def block(*documents: bytes) -> Block:
    return pa.table({"document": list(documents)})


def shipped(sink: GuideLoomDatasink) -> GuideLoomDatasink:
    """As a task gets it."""
    copy: GuideLoomDatasink = cloudpickle.loads(
        cloudpickle.dumps(sink)  # type: ignore[no-untyped-call]
    )
    return copy


def run_task(sink: GuideLoomDatasink, number: int, *blocks: Block) -> Any:
    return shipped(sink).write(iter(blocks), SimpleNamespace(task_idx=number))


def complete(sink: GuideLoomDatasink, returned: Iterable[Any]) -> None:
    sink.on_write_complete(SimpleNamespace(write_returns=list(returned)))


def run(sink: GuideLoomDatasink, tasks: Mapping[int, list[Block]]) -> None:
    """A whole job."""
    sink.on_write_start()
    complete(sink, [run_task(sink, number, *blocks) for number, blocks in tasks.items()])


def read(directory: Path) -> list[bytes]:
    with storage(directory).sync_reader() as reader:
        return list(reader)


def shards(directory: Path) -> list[str]:
    return sorted(path.stem for path in (directory / "commits").glob("*.json"))


def files_of(directory: Path, folder: str) -> list[str]:
    return sorted(path.name for path in (directory / folder).rglob("*") if path.is_file())

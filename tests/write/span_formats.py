"""Storage formats of streams with metadata as users write them, in both forms of `pack`."""

from __future__ import annotations

import json
from collections.abc import Generator, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_format import StreamWithMetaStorage, StreamWithMetaStorageFormat
from guideloom_read import StreamWithMetaReader
from guideloom_write import StreamWithMetaWriter
from write.faulty_files import Watched

Span = tuple[int, bytes]
"""Number of elements, payload."""

Spans = Sequence[Span]
Window = tuple[NDArray[Any], list[int], NDArray[np.int64], list[bytes]]


class Runs:
    """`pack` returns what it is given: (elements, run_lengths, payloads), or something wrong."""

    def __init__(self, dtype: Any = "<u2") -> None:
        self.stream_dtype = np.dtype(dtype)

    def pack(self, data: Any) -> Any:
        return data

    def unpack(
        self,
        stream: NDArray[Any],
        document_shard: Sequence[int],
        document_index: NDArray[np.int64],
        document_data: Sequence[bytes],
    ) -> Window:
        return stream, list(document_shard), document_index, list(document_data)


class Pairs(Runs):
    """`pack` yields the pairs it is given, and returns the elements: (size, pairs, elements)."""

    def size(self, data: Any) -> Any:
        return data[0]

    def pack(self, data: Any) -> Generator[tuple[Hashable, Any], None, Any]:
        yield from data[1]
        return data[2]


def is_spans_format(form: StreamWithMetaStorageFormat) -> StreamWithMetaStorageFormat:
    """Checked by mypy: what is above fits the protocol without inheriting from it."""
    return form


def as_runs(elements: NDArray[Any], spans: Spans) -> Any:
    """What `Runs` takes."""
    return elements, [count for count, _ in spans], [payload for _, payload in spans]


def as_pairs(elements: NDArray[Any], spans: Spans, keys: Iterable[Hashable] | None = None) -> Any:
    """What `Pairs` takes; each span must have an element."""
    pairs: list[tuple[Hashable, Any]] = []
    for key, (count, payload) in zip(keys or range(len(spans)), spans, strict=False):
        pairs += [(key, payload), *[(key, None)] * (count - 1)]
    return len(pairs), pairs, elements


def storage(directory: Path, form: Any) -> StreamWithMetaStorage:
    return StreamWithMetaStorage(directory, form)


def writer_of(directory: Path, form: Any) -> StreamWithMetaWriter:
    return StreamWithMetaWriter(storage(directory, form), files=Watched())


THREE = np.arange(3, dtype=np.uint16)
GOOD = as_runs(np.array([7, 8], dtype=np.uint16), [(2, b"good")])
GOOD_PAIRS = as_pairs(np.array([7, 8], dtype=np.uint16), [(2, b"good")])


def read_back(directory: Path, dtype: Any = "<u2") -> tuple[list[Any], list[list[Any]]]:
    """All elements, and for each span that has any: elements, payload, shard."""
    with StreamWithMetaReader(storage(directory, Runs(dtype))) as reader:
        stream, shards, index, payloads = reader.read(0, len(reader))
    counts = np.bincount(index, minlength=len(payloads)).tolist()
    assert index.tolist() == np.repeat(np.arange(len(payloads)), counts).tolist()
    return stream.tolist(), [list(row) for row in zip(counts, payloads, shards, strict=True)]


def data_files(directory: Path) -> dict[str, bytes]:
    """The content of all data files, by shard, part and role, without those of checksums."""
    return {
        f"{path.name[:12]}.{path.suffix[1:]}": path.read_bytes()
        for path in sorted((directory / "data").rglob("*"))
        if path.is_file() and path.suffix != ".crc"
    }


def committed_facts(directory: Path) -> dict[str, Any]:
    """For each commit record its length, and sizes and checksums of the data files."""
    facts = {}
    for path in sorted((directory / "commits").glob("*.json")):
        record = json.loads(path.read_text(encoding="ascii"))
        files = {name: row for name, row in record["files"].items() if not name.endswith(".crc")}
        facts[path.name] = (record["length"], files)
    return facts

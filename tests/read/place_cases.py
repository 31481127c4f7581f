"""What lies in the files where places point to, and a dataset too big to be written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from guideloom import StreamNumpyFormat, StreamStorage
from guideloom_format import Manifest, PartTable
from guideloom_read._places import Piece
from read.stream_cases import PLAIN


def bytes_at(directory: Path, pieces: Sequence[Piece]) -> bytes:
    """What the files have there."""
    found = []
    for piece in pieces:
        content = (directory / piece.file).read_bytes()
        assert 0 <= piece.byte_start <= piece.byte_stop <= len(content)
        found.append(content[piece.byte_start : piece.byte_stop])
    return b"".join(found)


def huge_stream(directory: Path, parts: int, elements: int) -> StreamStorage:
    """A dataset that is a manifest alone, of so many parts in a tenth as many shards."""
    storage = StreamStorage(directory, StreamNumpyFormat(PLAIN))
    storage.sync_writer().open().close()
    number = np.arange(parts, dtype=np.int64)
    length = np.full(parts, elements // parts, dtype=np.int64)
    nbytes = length * storage.element_type.itemsize
    table = PartTable(
        shard=number // 10,
        part=number % 10,
        token=np.ones(parts, dtype=np.uint64),
        length=length,
        stem=np.array([f"{k // 10}-{k % 10}" for k in range(parts)], dtype=np.bytes_),
        nbytes={"elements": nbytes, "elements.crc": 4 * -(-nbytes // 65536)},
        crc32c=dict.fromkeys(("elements", "elements.crc"), np.zeros(parts, dtype=np.uint32)),
    )
    identity = json.loads((directory / "guideloom.json").read_text())["dataset_id"]
    (directory / "manifest.json").write_bytes(Manifest(identity, 1, table).encode())
    return storage

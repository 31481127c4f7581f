"""Streams for tests of the format: random elements, written in a given order of commits."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom import StreamNumpyFormat, StreamStorage
from guideloom_format import CommitRecord, Header, Manifest, Part, PartTable

ROLES = ("elements", "elements.crc")

Array = NDArray[Any]
Appends = Sequence[tuple[int, int]]  # (shard, elements)

ELEMENT_TYPES = {
    "one-field": np.dtype([("token", "<u2")]),
    "one-byte": np.dtype([("byte", "u1")]),
    "big-endian": np.dtype([("token", ">u4"), ("weight", ">f8")]),
    "all-letters": np.dtype(
        [
            ("flag", "?"),
            ("small", "i1"),
            ("half", "<f2"),
            ("wave", "<c16"),
            ("word", "<U3"),
            ("code", "S5"),
            ("raw", "V7"),
            ("größe", "<u8"),
        ]
    ),
    "sub-arrays": np.dtype([("grid", "<i2", (2, 3)), ("one", "<f4", (1,)), ("id", "<u4")]),
    "nested": np.dtype(
        [("span", [("from", "<u4"), ("to", "<u4")]), ("pairs", [("x", "u1"), ("y", "<i2")], (2,))]
    ),
    "padded": np.dtype([("a", "u1"), ("b", "<u8"), ("c", [("d", "u1"), ("e", "<f4")])], align=True),
}


def storage(directory: Path, dtype: np.dtype[Any]) -> StreamStorage:
    return StreamStorage(directory, StreamNumpyFormat(dtype))


def random_elements(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> Array:
    """`count` elements with values of all sizes and no NaN."""
    elements = np.zeros(count, dtype=dtype)
    _fill(rng, elements)
    return elements


def _fill(rng: np.random.Generator, elements: Array) -> None:
    if elements.dtype.names is not None:
        for name in elements.dtype.names:
            _fill(rng, elements[name])
        return
    shape, kind = elements.shape, elements.dtype.kind
    if kind in "fc":
        elements[...] = rng.standard_normal(shape)
    elif kind == "U":
        letters = rng.integers(1, 0xD800, (*shape, elements.dtype.itemsize // 4)).astype("<u4")
        elements[...] = letters.view(f"<U{letters.shape[-1]}")[..., 0]
    else:
        high = 2 if kind == "b" else 256
        raw = rng.integers(0, high, (*shape, elements.dtype.itemsize)).astype(np.uint8)
        elements[...] = raw.view(elements.dtype)[..., 0]


def as_columns(elements: Array) -> dict[str, Array]:
    return {name: elements[name] for name in elements.dtype.names or ()}


def write_commits(
    directory: Path, dtype: np.dtype[Any], commits: Iterable[Appends], seed: int = 0
) -> Array:
    """Appends and commits in this order; returns all elements in the order of the stream.

    Every second commit is that of a new writer, which goes on behind what it finds.
    """
    rng = np.random.default_rng(seed)
    shards: dict[int, list[Array]] = {}
    writer = storage(directory, dtype).sync_writer().open()
    for number, appends in enumerate(commits):
        for shard, count in appends:
            elements = random_elements(rng, dtype, count)
            shards.setdefault(shard, []).append(elements)
            writer.append(shard, as_columns(elements))
        writer.commit()
        if number % 2:
            writer.close()
            writer = storage(directory, dtype).sync_writer().open()
    writer.close()
    little = dtype.newbyteorder("<")
    pieces = [piece.astype(little) for shard in sorted(shards) for piece in shards[shard]]
    return np.concatenate([np.zeros(0, little), *pieces])


def committed_parts(directory: Path) -> tuple[Header, list[Part]]:
    """The header and the parts that commit records publish, in order of (shard, part)."""
    header = Header.decode((directory / "guideloom.json").read_bytes())
    parts = []
    for path in (directory / "commits").glob("*.json"):
        shard, part = map(int, path.stem.split("-"))
        record = CommitRecord.decode(
            path.read_bytes(), dataset_id=header.dataset_id, kind="stream", shard=shard, part=part
        )
        parts.append(record.part)
    return header, sorted(parts, key=lambda part: (part.shard, part.part))


def write_manifest(directory: Path, parts: Iterable[Part], version: int = 1) -> None:
    """A manifest version of these parts, and its copy."""
    header, _ = committed_parts(directory)
    table = PartTable.from_parts(parts, ROLES)
    data = Manifest(header.dataset_id, version, table).encode()
    (directory / "manifests").mkdir(exist_ok=True)
    (directory / "manifests" / f"{version:08d}.json").write_bytes(data)
    (directory / "manifest.json").write_bytes(data)


def same_columns(columns: Mapping[str, Array], elements: Array) -> bool:
    """Whether a decoded window holds exactly these elements."""
    return list(columns) == list(elements.dtype.names or ()) and all(
        column.dtype == elements[name].dtype and np.array_equal(column, elements[name])
        for name, column in columns.items()
    )

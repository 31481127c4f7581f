"""An independent reader of streams, made from `docs/reference/format.md` alone.

It shares no code with the packages, uses NumPy for arrays only, and is slow. What the page leaves
open, this reader would have to guess; so a guess here is a fault of the page.
"""

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from format.independent_json import Members, RefusedError, crc32c, read_sealed, regular_size
from format.independent_types import element_type

BLOCK = 65_536
ROLES = ("elements", "elements.crc")  # of a stream's part, in alphabetical order
HEADER_LIMIT, RECORD_LIMIT, MANIFEST_LIMIT = 2**20, 2**16, 2**30

_RECORD_NAME = re.compile(r"([0-9]{7,})-([0-9]{4,})\.json")
_STEM = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*){0,2}")


@dataclass(frozen=True)
class DataFile:
    """What the dataset says of one data file."""

    size: int
    crc32c: int


@dataclass(frozen=True)
class Part:
    """What the dataset says of one part."""

    shard: int
    number: int
    token: str
    length: int
    stem: str
    files: dict[str, DataFile]

    def path(self, dataset: Path, role: str) -> Path:
        return dataset / "data" / f"{self.stem}.{role}"


@dataclass(frozen=True)
class Header:
    """The header's members that a reader needs, and what users left there."""

    dataset_id: str
    element_type: np.dtype[np.void]
    user: object


def read_header(dataset: Path) -> Header:
    members = read_sealed(dataset / "guideloom.json", HEADER_LIMIT)
    members.constant("format", "guideloom")
    members.constant("type", "header")
    version = members.text("version")
    if re.fullmatch(r"1\.(0|[1-9][0-9]*)", version) is None:
        raise RefusedError(f"{members.place}: version {version!r} is not 1.x")
    members.constant("kind", "stream")
    if features := members.texts("required_features"):
        raise RefusedError(f"{members.place}: needs the features {features}")
    members.texts("optional_features")
    members.text("written_by")
    members.child("storage_format")
    return Header(
        _digits(members, "dataset_id", members.text("dataset_id"), 32),
        element_type(members.any("element_type")),
        members.child("user"),
    )


def _digits(members: Members, name: str, text: str, count: int) -> str:
    if re.fullmatch(rf"[0-9a-f]{{{count}}}", text) is None:
        raise RefusedError(f"{members.place}: {name} {text!r} is not {count} hexadecimal digits")
    return text


def _checked(part: Part, header: Header, place: str) -> Part:
    """`part`, if its facts fit each other."""
    if _STEM.fullmatch(part.stem) is None:
        raise RefusedError(f"{place}: stem {part.stem!r}")
    if any(len(f"data/{part.stem}.{role}") > 255 for role in ROLES):
        raise RefusedError(f"{place}: the name of a data file is too long")
    elements, checksums = (part.files[role].size for role in ROLES)
    if elements != part.length * header.element_type.itemsize:
        raise RefusedError(f"{place}: {elements} bytes for {part.length} elements")
    if checksums != 4 * -(-elements // BLOCK):
        raise RefusedError(f"{place}: {checksums} bytes of checksums for {elements} bytes")
    return part


def read_record(dataset: Path, header: Header, shard: int, number: int) -> Part:
    members = read_sealed(dataset / "commits" / f"{shard:07}-{number:04}.json", RECORD_LIMIT)
    members.constant("format", "guideloom")
    members.constant("type", "commit")
    members.constant("dataset_id", header.dataset_id)
    if (members.integer("shard", 2**64), members.integer("part", 2**64)) != (shard, number):
        raise RefusedError(f"{members.place}: the numbers are not those of its name")
    owner = members.child("owner")
    owner.text("host")
    owner.integer("pid", 2**64)
    owner.text("since")
    files = {}
    for role in ROLES:
        facts = members.child("files").child(role)
        files[role] = DataFile(facts.integer("bytes", 2**64), facts.integer("crc32c", 2**32))
    token = _digits(members, "token", members.text("token"), 16)
    length = members.integer("length", 2**64)
    part = Part(shard, number, token, length, members.text("stem"), files)
    return _checked(part, header, members.place)


def read_manifest(path: Path, header: Header) -> list[Part]:
    members = read_sealed(path, MANIFEST_LIMIT)
    members.constant("format", "guideloom")
    members.constant("type", "manifest")
    members.constant("dataset_id", header.dataset_id)
    members.integer("manifest_version", 10**8)
    columns = members.child("parts")
    shards = columns.integers("shard", 10**9 + 1)
    numbers = columns.integers("part", 10**6 + 1)
    tokens = [_digits(columns, "token", token, 16) for token in columns.texts("token")]
    lengths = columns.integers("length", 2**64)
    stems = columns.texts("stem")
    facts = [columns.child("files").child(role) for role in ROLES]
    sizes = [files.integers("bytes", 2**64) for files in facts]
    checksums = [files.integers("crc32c", 2**32) for files in facts]
    counts = [*map(len, sizes), *map(len, checksums)]
    if {len(numbers), len(tokens), len(lengths), len(stems), *counts} != {len(shards)}:
        raise RefusedError(f"{columns.place}: arrays of different lengths")
    parts = []
    for row in range(len(shards)):
        files = {
            role: DataFile(sizes[place][row], checksums[place][row])
            for place, role in enumerate(ROLES)
        }
        part = Part(shards[row], numbers[row], tokens[row], lengths[row], stems[row], files)
        parts.append(_checked(part, header, members.place))
    _check_numbers(parts, columns.place)
    members.constant("fingerprint", fingerprint(header.dataset_id, parts))
    return parts


def _check_numbers(parts: list[Part], place: str) -> None:
    """The shards rise, and the parts of each are 0, 1, 2 …"""
    shard, number = -1, -1
    for part in parts:
        same = part.shard == shard
        if part.shard < shard or part.number != (number + 1 if same else 0):
            raise RefusedError(f"{place}: shard {part.shard}, part {part.number} is out of order")
        shard, number = part.shard, part.number


def fingerprint(dataset_id: str, parts: list[Part]) -> str:
    """The fingerprint of these parts, which are in order of (shard, part)."""

    def column(letter: str, numbers: list[int]) -> bytes:
        return struct.pack(f"<{len(numbers)}{letter}", *numbers)

    digest = hashlib.sha256(b"guideloom-fingerprint-1\n" + dataset_id.encode("ascii"))
    digest.update(column("Q", [part.shard for part in parts]))
    digest.update(column("Q", [part.number for part in parts]))
    digest.update(column("Q", [int(part.token, 16) for part in parts]))
    digest.update(column("Q", [part.length for part in parts]))
    for role in ROLES:
        digest.update(role.encode("ascii"))
        digest.update(column("Q", [part.files[role].size for part in parts]))
        digest.update(column("I", [part.files[role].crc32c for part in parts]))
    return digest.hexdigest()


def listed_records(dataset: Path) -> Iterator[tuple[int, int]]:
    """The (shard, part) of each name in `commits/` that is a commit record's."""
    folder = dataset / "commits"
    for path in folder.iterdir() if folder.exists() else ():
        if match := _RECORD_NAME.fullmatch(path.name):
            shard, number = int(match[1]), int(match[2])
            padded = path.name == f"{shard:07}-{number:04}.json"
            if padded and shard <= 10**9 and number <= 10**6:
                yield shard, number


def block_checksum(dataset_id: str, part: Part, block: int, content: bytes) -> int:
    """The checksum of block `block` of a part's elements, bound to its place."""
    place = f"{dataset_id}/{part.shard}/{part.number}/{part.token}/elements/{block}/"
    return crc32c(place.encode("ascii") + content)


class IndependentDataset:
    """A stream on disk, opened as the page says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = read_header(path)
        listed = set(listed_records(path))
        try:
            parts = read_manifest(path / "manifest.json", self.header)
        except FileNotFoundError:
            parts = []
        listed -= {(part.shard, part.number) for part in parts}
        parts += [read_record(path, self.header, shard, number) for shard, number in listed]
        self.parts = sorted(parts, key=lambda part: (part.shard, part.number))
        _check_numbers(self.parts, str(path))
        self.starts = [0, *accumulate(part.length for part in self.parts)]

    def __len__(self) -> int:
        return self.starts[-1]

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.header.dataset_id, self.parts)

    def read(self, start: int, stop: int) -> NDArray[np.void]:
        """The elements from `start` to `stop`, out of blocks that were checked."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"window {start}:{stop} of {len(self)} elements")
        size = self.header.element_type.itemsize
        content = b""
        for part, first in zip(self.parts, self.starts, strict=False):
            low = max(start, first) - first
            high = min(stop, first + part.length) - first
            if low < high:
                content += self._checked_bytes(part, low * size, high * size)
        return np.ndarray((stop - start,), self.header.element_type, content)

    def _checked_bytes(self, part: Part, low: int, high: int) -> bytes:
        first, last = low // BLOCK, -(-high // BLOCK)
        content = self._range(part, "elements", first * BLOCK, last * BLOCK)
        checksums = struct.unpack(
            f"<{last - first}I", self._range(part, "elements.crc", 4 * first, 4 * last)
        )
        for block, checksum in enumerate(checksums, first):
            at = (block - first) * BLOCK
            bytes_of_block = content[at : at + BLOCK]
            if block_checksum(self.header.dataset_id, part, block, bytes_of_block) != checksum:
                raise RefusedError(f"{part.path(self.path, 'elements')}: block {block} is damaged")
        return content[low - first * BLOCK : high - first * BLOCK]

    def _range(self, part: Part, role: str, low: int, high: int) -> bytes:
        path = part.path(self.path, role)
        size = regular_size(path)
        if size != part.files[role].size:
            raise RefusedError(f"{path}: {size} bytes instead of {part.files[role].size}")
        with path.open("rb") as file:
            file.seek(low)
            return file.read(min(high, size) - low)

    def verify(self) -> int:
        """Checks every byte in both ways: whole files and blocks; returns the number of blocks."""
        blocks = 0
        for part in self.parts:
            for role in ROLES:
                facts = part.files[role]
                if crc32c(self._range(part, role, 0, facts.size)) != facts.crc32c:
                    raise RefusedError(f"{part.path(self.path, role)}: damaged")
            size = part.files["elements"].size
            self._checked_bytes(part, 0, size)
            blocks += -(-size // BLOCK)
        return blocks

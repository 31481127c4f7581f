"""An independent reader, made from `docs/reference/format.md` alone: datasets and their streams.

It shares no code with the packages, uses NumPy for arrays only, and is slow. What the page leaves
open, this reader would have to guess; so a guess here is a fault of the page. Documents and streams
with metadata are read by `independent_documents.py` and `independent_spans.py`.
"""

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from format.independent_json import (
    LARGEST,
    Members,
    RefusedError,
    crc32c,
    read_sealed,
    regular_size,
)
from format.independent_types import element_type

BLOCK = 65_536
PLAIN_ROLES = {  # the roles of each kind without those of checksums, in alphabetical order
    "stream": ("elements",),
    "stream-with-meta": ("elements", "payloads", "spans"),
    "document": ("documents", "ends"),
}
HEADER_LIMIT, RECORD_LIMIT, MANIFEST_LIMIT = 2**20, 2**16, 2**30

_RECORD_NAME = re.compile(r"([0-9]{7,})-([0-9]{4,})\.json")
_STEM = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*){0,2}")


def roles_of(kind: str) -> tuple[str, ...]:
    """All roles of a part, in alphabetical order."""
    return tuple(sorted(f"{role}{end}" for role in PLAIN_ROLES[kind] for end in ("", ".crc")))


ROLES = roles_of("stream")


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

    kind: str
    dataset_id: str
    element_type: np.dtype[np.void]
    storage_format: Members
    user: object

    @property
    def roles(self) -> tuple[str, ...]:
        return roles_of(self.kind)


def read_header(dataset: Path) -> Header:
    members = read_sealed(dataset / "guideloom.json", HEADER_LIMIT)
    members.constant("format", "guideloom")
    members.constant("type", "header")
    version = members.text("version")
    if re.fullmatch(r"1\.(0|[1-9][0-9]*)", version) is None:
        raise RefusedError(f"{members.place}: version {version!r} is not 1.x")
    if (kind := members.text("kind")) not in PLAIN_ROLES:
        raise RefusedError(f"{members.place}: kind {kind!r}")
    if features := members.texts("required_features"):
        raise RefusedError(f"{members.place}: needs the features {features}")
    members.texts("optional_features")
    members.text("written_by")
    return Header(
        kind,
        _digits(members, "dataset_id", members.text("dataset_id"), 32),
        element_type(members.any("element_type")),
        members.child("storage_format"),
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
    if any(len(f"data/{part.stem}.{role}") > 255 for role in header.roles):
        raise RefusedError(f"{place}: the name of a data file is too long")
    sizes = {role: file.size for role, file in part.files.items()}
    for role in PLAIN_ROLES[header.kind]:
        if sizes[f"{role}.crc"] != 4 * -(-sizes[role] // BLOCK):
            raise RefusedError(f"{place}: {sizes[f'{role}.crc']} bytes of checksums of {role}")
    length, size = part.length, header.element_type.itemsize
    if header.kind == "document":
        fit = sizes["ends"] == 8 * length and sizes["documents"] % size == 0
        fit = fit and (length > 0 or sizes["documents"] == 0)
    else:
        fit = sizes["elements"] == length * size
        if header.kind == "stream-with-meta":
            fit = fit and sizes["spans"] % 16 == 0 and (length == 0 or sizes["spans"] > 0)
            fit = fit and (sizes["spans"] > 0 or sizes["payloads"] == 0)
    if not fit:
        raise RefusedError(f"{place}: length {length} and sizes {sizes} do not fit")
    return part


def read_record(dataset: Path, header: Header, shard: int, number: int) -> Part:
    members = read_sealed(dataset / "commits" / f"{shard:07}-{number:04}.json", RECORD_LIMIT)
    members.constant("format", "guideloom")
    members.constant("type", "commit")
    members.constant("dataset_id", header.dataset_id)
    if (members.integer("shard", 10**9), members.integer("part", 10**6)) != (shard, number):
        raise RefusedError(f"{members.place}: the numbers are not those of its name")
    owner = members.child("owner")
    owner.text("host")
    owner.integer("pid", None)
    owner.text("since")
    files = {}
    for role in header.roles:
        facts = members.child("files").child(role)
        files[role] = DataFile(facts.integer("bytes", LARGEST), facts.integer("crc32c", 2**32 - 1))
    token = _digits(members, "token", members.text("token"), 16)
    length = members.integer("length", LARGEST)
    part = Part(shard, number, token, length, members.text("stem"), files)
    return _checked(part, header, members.place)


def read_manifest(path: Path, header: Header) -> list[Part]:
    members = read_sealed(path, MANIFEST_LIMIT)
    members.constant("format", "guideloom")
    members.constant("type", "manifest")
    members.constant("dataset_id", header.dataset_id)
    members.integer("manifest_version", 10**8 - 1)
    columns = members.child("parts")
    shards = columns.integers("shard", 10**9)
    numbers = columns.integers("part", 10**6)
    tokens = [_digits(columns, "token", token, 16) for token in columns.texts("token")]
    lengths = columns.integers("length", LARGEST)
    stems = columns.texts("stem")
    facts = [columns.child("files").child(role) for role in header.roles]
    sizes = [files.integers("bytes", LARGEST) for files in facts]
    checksums = [files.integers("crc32c", 2**32 - 1) for files in facts]
    counts = [*map(len, sizes), *map(len, checksums)]
    if {len(numbers), len(tokens), len(lengths), len(stems), *counts} != {len(shards)}:
        raise RefusedError(f"{columns.place}: arrays of different lengths")
    parts = []
    for row in range(len(shards)):
        files = {
            role: DataFile(sizes[place][row], checksums[place][row])
            for place, role in enumerate(header.roles)
        }
        part = Part(shards[row], numbers[row], tokens[row], lengths[row], stems[row], files)
        parts.append(_checked(part, header, members.place))
    _check_numbers(parts, columns.place)
    members.constant("fingerprint", fingerprint(header, parts))
    return parts


def _check_numbers(parts: list[Part], place: str) -> None:
    """The shards rise, and the parts of each are 0, 1, 2 …"""
    shard, number = -1, -1
    for part in parts:
        same = part.shard == shard
        if part.shard < shard or part.number != (number + 1 if same else 0):
            raise RefusedError(f"{place}: shard {part.shard}, part {part.number} is out of order")
        shard, number = part.shard, part.number


def fingerprint(header: Header, parts: list[Part]) -> str:
    """The fingerprint of these parts, which are in order of (shard, part)."""

    def column(letter: str, numbers: list[int]) -> bytes:
        return struct.pack(f"<{len(numbers)}{letter}", *numbers)

    digest = hashlib.sha256(b"guideloom-fingerprint-1\n" + header.dataset_id.encode("ascii"))
    digest.update(column("Q", [part.shard for part in parts]))
    digest.update(column("Q", [part.number for part in parts]))
    digest.update(column("Q", [int(part.token, 16) for part in parts]))
    digest.update(column("Q", [part.length for part in parts]))
    for role in header.roles:
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


def block_checksum(
    dataset_id: str, part: Part, block: int, content: bytes, role: str = "elements"
) -> int:
    """The checksum of block `block` of a part's file, bound to its place."""
    place = f"{dataset_id}/{part.shard}/{part.number}/{part.token}/{role}/{block}/"
    return crc32c(place.encode("ascii") + content)


class OpenDataset:
    """A dataset on disk, opened as the page says."""

    kind: ClassVar[str]

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = read_header(path)
        if self.header.kind != self.kind:
            raise RefusedError(f"{path}: of kind {self.header.kind!r}, not {self.kind!r}")
        listed = set(listed_records(path))
        try:
            parts = read_manifest(path / "manifest.json", self.header)
        except FileNotFoundError:
            parts = []
        listed -= {(part.shard, part.number) for part in parts}
        parts += [read_record(path, self.header, shard, number) for shard, number in listed]
        self.parts = sorted(parts, key=lambda part: (part.shard, part.number))
        _check_numbers(self.parts, str(path))
        if sum(file.size for part in self.parts for file in part.files.values()) > LARGEST:
            raise RefusedError(f"{path}: more bytes than a dataset has")
        self.starts = [0, *accumulate(part.length for part in self.parts)]
        if self.starts[-1] > LARGEST:
            raise RefusedError(f"{path}: longer than a dataset is")

    def __len__(self) -> int:
        return self.starts[-1]

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.header, self.parts)

    def checked_bytes(self, part: Part, role: str, low: int, high: int) -> bytes:
        """The bytes from `low` to `high` of a part's file, out of blocks that were checked."""
        if not 0 <= low <= high <= part.files[role].size:
            raise RefusedError(f"{part.path(self.path, role)}: bytes {low}:{high} are outside")
        first, last = low // BLOCK, -(-high // BLOCK)
        content = self._range(part, role, first * BLOCK, last * BLOCK)
        checksums = struct.unpack(
            f"<{last - first}I", self._range(part, f"{role}.crc", 4 * first, 4 * last)
        )
        for block, checksum in enumerate(checksums, first):
            at = (block - first) * BLOCK
            of_block = content[at : at + BLOCK]
            if block_checksum(self.header.dataset_id, part, block, of_block, role) != checksum:
                raise RefusedError(f"{part.path(self.path, role)}: block {block} is damaged")
        return content[low - first * BLOCK : high - first * BLOCK]

    def _range(self, part: Part, role: str, low: int, high: int) -> bytes:
        path = part.path(self.path, role)
        size = regular_size(path)
        if size != part.files[role].size:
            raise RefusedError(f"{path}: {size} bytes instead of {part.files[role].size}")
        with path.open("rb") as file:
            file.seek(low)
            return file.read(max(0, min(high, size) - low))

    def verify(self) -> int:
        """Checks every byte in both ways: whole files and blocks; returns the number of blocks."""
        blocks = 0
        for part in self.parts:
            for role, facts in part.files.items():
                if crc32c(self._range(part, role, 0, facts.size)) != facts.crc32c:
                    raise RefusedError(f"{part.path(self.path, role)}: damaged")
            for role in PLAIN_ROLES[self.kind]:
                size = part.files[role].size
                self.checked_bytes(part, role, 0, size)
                blocks += -(-size // BLOCK)
            self.check_contents(part)
        return blocks

    def check_contents(self, part: Part) -> None:
        """Checks what the contents of a part's files say, for kinds where they say something."""


class IndependentDataset(OpenDataset):
    """A stream."""

    kind = "stream"

    def read(self, start: int, stop: int) -> NDArray[np.void]:
        """The elements from `start` to `stop`."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"window {start}:{stop} of {len(self)} elements")
        size = self.header.element_type.itemsize
        content = b""
        for part, first in zip(self.parts, self.starts, strict=False):
            low = max(start, first) - first
            high = min(stop, first + part.length) - first
            if low < high:
                content += self.checked_bytes(part, "elements", low * size, high * size)
        return np.ndarray((stop - start,), self.header.element_type, content)

"""An independent writer, made from `docs/reference/format.md` alone: datasets byte by byte.

It writes what it is told, also what the page forbids, with checksums that are right all the same.
"""

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from format.independent import (
    BLOCK,
    PLAIN_ROLES,
    DataFile,
    Header,
    OpenDataset,
    Part,
    block_checksum,
    read_header,
)
from format.independent import fingerprint as fingerprint_of
from format.independent_json import crc32c, sealed

DATASET_ID = "00112233445566778899aabbccddeeff"
TOKEN = "9f3c21ab5d0e7711"

Span = tuple[int, bytes]  # how many elements, and the payload


@dataclass(frozen=True)
class MadePart:
    """A part, with the contents of its files; those of checksums are made if they are not given."""

    shard: int
    number: int
    length: int
    contents: Mapping[str, bytes]
    token: str = TOKEN

    @property
    def stem(self) -> str:
        return f"{self.shard // 1000:04}/{self.shard:07}-{self.number:04}-{self.token}"


def ends_file(ends: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(ends)}Q", *ends)


def spans_file(ends: Sequence[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack("<QQ", *pair) for pair in ends)


def document_part(shard: int, number: int, documents: Sequence[bytes], **more: Any) -> MadePart:
    ends, end = [], 0
    for document in documents:
        end += len(document)
        ends.append(end)
    contents = {"documents": b"".join(documents), "ends": ends_file(ends)}
    return MadePart(shard, number, len(documents), contents, **more)


def span_part(
    shard: int, number: int, elements: bytes, spans: Sequence[Span], **more: Any
) -> MadePart:
    ends, at, payload_end = [], 0, 0
    for count, payload in spans:
        at += count
        payload_end += len(payload)
        ends.append((at, payload_end))
    payloads = b"".join(payload for _, payload in spans)
    contents = {"elements": elements, "payloads": payloads, "spans": spans_file(ends)}
    return MadePart(shard, number, at, contents, **more)


def checksums(dataset_id: str, part: MadePart, role: str) -> bytes:
    """The `.crc` file of one of a part's files."""
    content = part.contents[role]
    placed = Part(part.shard, part.number, part.token, part.length, part.stem, {})
    return b"".join(
        struct.pack(
            "<I", block_checksum(dataset_id, placed, k, content[at : at + BLOCK], role=role)
        )
        for k, at in enumerate(range(0, len(content), BLOCK))
    )


def seal(members: Mapping[str, Any]) -> bytes:
    return sealed(json.dumps(members)[:-1].encode("ascii"))


class HandWriter:
    """Writes parts of a dataset, with or without records and manifests."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path, self._header = path, header
        self.kind, self.dataset_id = header.kind, header.dataset_id

    @classmethod
    def create(
        cls,
        path: Path,
        kind: str,
        element_type: Any,
        storage_format: Mapping[str, Any],
        dataset_id: str = DATASET_ID,
    ) -> "HandWriter":
        """Writes the header of a new dataset."""
        path.mkdir(parents=True, exist_ok=True)
        members = {
            "format": "guideloom",
            "type": "header",
            "version": "1.0",
            "kind": kind,
            "dataset_id": dataset_id,
            "element_type": element_type,
            "storage_format": storage_format,
            "required_features": [],
            "optional_features": [],
            "written_by": "hand",
            "user": {},
        }
        (path / "guideloom.json").write_bytes(seal(members))
        return cls(path, read_header(path))

    def data(self, part: MadePart) -> None:
        """Writes a part's files, which do not belong to the dataset yet."""
        for role, content in self._files(part).items():
            file = self.path / "data" / f"{part.stem}.{role}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    def record(self, part: MadePart) -> None:
        files = {
            role: {"bytes": len(content), "crc32c": crc32c(content)}
            for role, content in self._files(part).items()
        }
        members = {
            "format": "guideloom",
            "type": "commit",
            "dataset_id": self.dataset_id,
            "shard": part.shard,
            "part": part.number,
            "token": part.token,
            "length": part.length,
            "stem": part.stem,
            "files": files,
            "owner": {"host": "hand", "pid": 1, "since": "2020-01-01T00:00:00+00:00"},
        }
        name = f"{part.shard:07}-{part.number:04}.json"
        (self.path / "commits").mkdir(exist_ok=True)
        (self.path / "commits" / name).write_bytes(seal(members))

    def manifest(self, parts: Iterable[MadePart], version: int = 1) -> None:
        made = sorted(parts, key=lambda part: (part.shard, part.number))
        files = [self._files(part) for part in made]
        columns = {
            "shard": [part.shard for part in made],
            "part": [part.number for part in made],
            "token": [part.token for part in made],
            "length": [part.length for part in made],
            "stem": [part.stem for part in made],
            "files": {
                role: {
                    "bytes": [len(contents[role]) for contents in files],
                    "crc32c": [crc32c(contents[role]) for contents in files],
                }
                for role in self._header.roles
            },
        }
        members = {
            "format": "guideloom",
            "type": "manifest",
            "dataset_id": self.dataset_id,
            "manifest_version": version,
            "fingerprint": self.fingerprint(made),
            "parts": columns,
        }
        (self.path / "manifests").mkdir(exist_ok=True)
        for name in (f"manifests/{version:08}.json", "manifest.json"):
            (self.path / name).write_bytes(seal(members))

    def fingerprint(self, parts: Iterable[MadePart]) -> str:
        """The fingerprint of a dataset of these parts, which are in order."""
        facts = [
            Part(
                part.shard,
                part.number,
                part.token,
                part.length,
                part.stem,
                {
                    role: DataFile(len(content), crc32c(content))
                    for role, content in self._files(part).items()
                },
            )
            for part in parts
        ]
        return fingerprint_of(self._header, facts)

    def publish(self, parts: Sequence[MadePart], in_manifest: int, records: str) -> None:
        """Writes parts: the first ones in a manifest, if any, and records of `records` of them.

        `records` is "all", or "rest" for those that the manifest has not.
        """
        made = sorted(parts, key=lambda part: (part.shard, part.number))
        for row, part in enumerate(made):
            self.data(part)
            if records == "all" or row >= in_manifest:
                self.record(part)
        if in_manifest:
            self.manifest(made[:in_manifest])

    def _files(self, part: MadePart) -> dict[str, bytes]:
        files = {}
        for role in PLAIN_ROLES[self.kind]:
            files[role] = part.contents[role]
            name = f"{role}.crc"
            files[name] = part.contents.get(name, checksums(self.dataset_id, part, role))
        return files


def made_parts(opened: OpenDataset) -> list[MadePart]:
    """The parts of a dataset, with the contents of their files."""
    return [
        MadePart(
            part.shard,
            part.number,
            part.length,
            {role: part.path(opened.path, role).read_bytes() for role in part.files},
            part.token,
        )
        for part in opened.parts
    ]

"""A manifest: the table of all parts in one file, so that opening reads one file.

It repeats what the commit records say, as columns, and adds the fingerprint. The versions in
`manifests/` are kept; `manifest.json` is a copy of the newest.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_format import _lists, _names
from guideloom_format._members import Members
from guideloom_format._parts import MAX_FILE_BYTES, PartTable, roles_of_kind
from guideloom_format._record import MAX_CRC
from guideloom_format._sealed import FORMAT, seal, unseal

MAX_MANIFEST_BYTES = 1 << 30
MAX_MANIFEST_VERSION = 10**8 - 1


@dataclass(frozen=True)
class Manifest:
    """One version of the table of parts of one dataset."""

    dataset_id: str
    manifest_version: int
    table: PartTable

    @functools.cached_property
    def fingerprint(self) -> str:
        """Of the dataset as this version shows it."""
        return self.table.fingerprint(self.dataset_id)

    def encode(self) -> bytes:
        """The file."""
        table = self.table
        members = {
            "format": FORMAT,
            "type": "manifest",
            "dataset_id": self.dataset_id,
            "manifest_version": self.manifest_version,
            "fingerprint": self.fingerprint,
            "parts": {
                "shard": table.shard.tolist(),
                "part": table.part.tolist(),
                "token": [f"{token:016x}" for token in table.token.tolist()],
                "length": table.length.tolist(),
                "stem": [stem.decode("ascii") for stem in table.stem.tolist()],
                "files": {
                    role: {
                        "bytes": table.nbytes[role].tolist(),
                        "crc32c": table.crc32c[role].tolist(),
                    }
                    for role in table.nbytes
                },
            },
        }
        return seal(members, compact=True)

    @classmethod
    def decode(
        cls,
        data: bytes,
        *,
        dataset_id: str,
        kind: str,
        itemsize: int,
        where: str = _names.MANIFEST,
        version: int | None = None,
    ) -> Manifest:
        """The manifest in a file of this dataset.

        Args:
            data: the whole file.
            dataset_id: from the header, as `kind` and `itemsize`.
            kind: of the dataset.
            itemsize: of its element type.
            where: how error messages call the file.
            version: from the file's name, if that has one.

        Raises:
            DamagedFileError: a damaged manifest, or one of something else.
        """
        members = Members(unseal(data, where), where)
        members.expect("format", FORMAT, "the file of a GuideLoom dataset")
        members.expect("type", "manifest", "from the file's name")
        members.expect("dataset_id", dataset_id, "the dataset that the file lies in")
        if version is not None:
            members.expect("manifest_version", version, "from the file's name")
        version = members.integer("manifest_version", MAX_MANIFEST_VERSION)
        table = _table(members.nested("parts"), kind)
        table.check(kind, itemsize, where)
        manifest = cls(dataset_id, version, table)
        members.expect("fingerprint", manifest.fingerprint, "computed from the parts")
        return manifest


def _table(columns: Members, kind: str) -> PartTable:
    count = len(columns.items("shard"))
    files = columns.nested("files")
    roles = roles_of_kind(kind, columns.where)
    return PartTable(
        shard=_integers(columns, "shard", count, _names.MAX_SHARD),
        part=_integers(columns, "part", count, _names.MAX_PART),
        token=_tokens(columns, count),
        length=_integers(columns, "length", count, MAX_FILE_BYTES),
        stem=_stems(columns, count, roles),
        nbytes={
            role: _integers(files.nested(role), "bytes", count, MAX_FILE_BYTES) for role in roles
        },
        crc32c={
            role: _integers(files.nested(role), "crc32c", count, MAX_CRC).astype(np.uint32)
            for role in roles
        },
    )


def _column(members: Members, name: str, count: int) -> list[Any]:
    values = members.items(name)
    if len(values) != count:
        raise members.wrong(name, len(values), f"{count} entries, one per part")
    return values


def _integers(members: Members, name: str, count: int, high: int) -> NDArray[np.int64]:
    values = _column(members, name, count)
    column, bad = _lists.integers(values, high)
    if bad >= 0:
        raise members.wrong(name, values[bad], f"integers from 0 to {high}")
    return column


def _tokens(members: Members, count: int) -> NDArray[np.uint64]:
    values = _column(members, "token", count)
    column, bad = _lists.tokens(values)
    if bad >= 0:
        raise members.wrong("token", values[bad], "16 lower-case hexadecimal digits each")
    return column


def _stems(members: Members, count: int, roles: tuple[str, ...]) -> NDArray[np.bytes_]:
    values = _column(members, "stem", count)
    around = max(len(_names.data_name("", role)) for role in roles)
    column, bad = _lists.stems(values, _names.MAX_NAME - around, _names.MAX_COMPONENTS - 1)
    if bad >= 0:
        if not isinstance(values[bad], str):
            raise members.wrong("stem", values[bad], "strings")
        _names.check_stem(values[bad], roles, members.where)
    return column

"""The parts of a dataset as a table, and the fingerprint that is made from it.

A *part* is what one writer committed to one shard at one time. A *shard* is its parts 0, 1, 2 …
in order; the dataset is its shards in order of their number. Numbers of shards may have gaps,
numbers of parts may not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_format import _names
from guideloom_format._checksum import BLOCK_BYTES, CRC_SUFFIX, FileIdentity
from guideloom_format._errors import DamagedFileError, UnsupportedFormatError

STREAM = "stream"
STREAM_WITH_META = "stream-with-meta"
DOCUMENT = "document"

ELEMENTS = "elements"
SPANS = "spans"
PAYLOADS = "payloads"
DOCUMENTS = "documents"
ENDS = "ends"
DATA_ROLES: Mapping[str, tuple[str, ...]] = {
    STREAM: (ELEMENTS,),
    STREAM_WITH_META: (ELEMENTS, SPANS, PAYLOADS),
    DOCUMENT: (DOCUMENTS, ENDS),
}
ROLES_OF_KIND = {
    kind: tuple(name for role in roles for name in (role, role + CRC_SUFFIX))
    for kind, roles in DATA_ROLES.items()
}
END_BYTES = 8
SPAN_BYTES = 16
MAX_FILE_BYTES = 1 << 62


def roles_of_kind(kind: str, where: str) -> tuple[str, ...]:
    """The roles of the files that each part of such a dataset has.

    Raises:
        UnsupportedFormatError: a kind that this release does not read.
    """
    if kind not in ROLES_OF_KIND:
        raise UnsupportedFormatError(
            f"{where}: the dataset is of kind {kind!r}; this release of guideloom-format reads "
            f"{', '.join(sorted(ROLES_OF_KIND))}. Install a newer one"
        )
    return ROLES_OF_KIND[kind]


def gap_error(where: str, shard: int, found: int, expected: int) -> DamagedFileError:
    """The error for a shard with a gap in the numbers of its parts."""
    return DamagedFileError(
        f"{where}: shard {shard} has part {found} where part {expected} is expected; a commit "
        "record is missing or there twice. Restore it from a copy"
    )


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Size and whole-file CRC32C of one data file."""

    nbytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class Part:
    """One committed part: what its commit record says of the data."""

    shard: int
    part: int
    token: str
    length: int
    stem: str
    files: Mapping[str, FileFacts]

    def identity(self, dataset_id: str, role: str) -> FileIdentity:
        """What the blocks of one of its files are bound to."""
        return FileIdentity(dataset_id, self.shard, self.part, self.token, role)


class PartTable:
    """All parts of a dataset in order of (shard, part), as columns.

    Attributes:
        shard, part, length: int64.
        token: uint64.
        stem: bytes strings, relative to `data/`.
        nbytes, crc32c: a column per role of file, int64 and uint32.
    """

    def __init__(
        self,
        shard: NDArray[np.int64],
        part: NDArray[np.int64],
        token: NDArray[np.uint64],
        length: NDArray[np.int64],
        stem: NDArray[np.bytes_],
        nbytes: Mapping[str, NDArray[np.int64]],
        crc32c: Mapping[str, NDArray[np.uint32]],
    ) -> None:
        self.shard = shard
        self.part = part
        self.token = token
        self.length = length
        self.stem = stem
        self.nbytes = dict(nbytes)
        self.crc32c = dict(crc32c)

    @classmethod
    def from_parts(cls, parts: Iterable[Part], roles: Sequence[str]) -> PartTable:
        """The table of these parts, put in order."""
        rows = sorted(parts, key=lambda row: (row.shard, row.part))
        return cls(
            shard=np.array([row.shard for row in rows], dtype=np.int64),
            part=np.array([row.part for row in rows], dtype=np.int64),
            token=np.array([int(row.token, 16) for row in rows], dtype=np.uint64),
            length=np.array([row.length for row in rows], dtype=np.int64),
            stem=np.array([row.stem for row in rows], dtype=np.bytes_),
            nbytes={
                role: np.array([row.files[role].nbytes for row in rows], dtype=np.int64)
                for role in roles
            },
            crc32c={
                role: np.array([row.files[role].crc32c for row in rows], dtype=np.uint32)
                for role in roles
            },
        )

    def __len__(self) -> int:
        return int(self.shard.size)

    def merged(self, other: PartTable) -> PartTable:
        """The table of the parts of both, put in order."""
        shard = np.concatenate([self.shard, other.shard])
        part = np.concatenate([self.part, other.part])
        order = np.lexsort((part, shard))
        return PartTable(
            shard=shard[order],
            part=part[order],
            token=np.concatenate([self.token, other.token])[order],
            length=np.concatenate([self.length, other.length])[order],
            stem=np.concatenate([self.stem, other.stem])[order],
            nbytes={
                role: np.concatenate([self.nbytes[role], other.nbytes[role]])[order]
                for role in self.nbytes
            },
            crc32c={
                role: np.concatenate([self.crc32c[role], other.crc32c[role]])[order]
                for role in self.crc32c
            },
        )

    def row(self, k: int) -> Part:
        """Part k of the table."""
        files = {
            role: FileFacts(int(self.nbytes[role][k]), int(self.crc32c[role][k]))
            for role in self.nbytes
        }
        return Part(
            shard=int(self.shard[k]),
            part=int(self.part[k]),
            token=f"{int(self.token[k]):016x}",
            length=int(self.length[k]),
            stem=self.stem[k].decode("ascii"),
            files=files,
        )

    def file_name(self, k: int, role: str) -> str:
        """The name of one file of part k, relative to the dataset directory."""
        return _names.data_name(self.stem[k].decode("ascii"), role)

    def check(self, kind: str, itemsize: int, where: str) -> None:
        """Everything that must hold between the columns.

        Raises:
            DamagedFileError: what does not hold, and for which part.
        """
        self._check_order(where)
        self.check_sizes(kind, itemsize, where)

    def check_sizes(self, kind: str, itemsize: int, where: str) -> None:
        """What must hold between length and sizes of each part.

        Raises:
            DamagedFileError: what does not hold, and for which part.
        """
        total = 0
        for role in roles_of_kind(kind, where):
            column = self.nbytes[role]  # in halves: the sum of all may be beyond 64 bits
            total += (int((column >> 31).sum()) << 31) + int((column & (1 << 31) - 1).sum())
        if total > MAX_FILE_BYTES:
            raise DamagedFileError(
                f"{where}: the parts state {total} bytes together; expected at most 2**62"
            )
        if kind == DOCUMENT:
            self._check_documents(itemsize, where)
        else:
            self._check_elements(itemsize, where)
        if kind == STREAM_WITH_META:
            self._check_spans(where)
        for role in roles_of_kind(kind, where):
            if not role.endswith(CRC_SUFFIX):
                blocks = -(-self.nbytes[role] // BLOCK_BYTES)
                self._refuse(
                    self.nbytes[role + CRC_SUFFIX] != 4 * blocks,
                    where,
                    f"size of {role + CRC_SUFFIX}",
                    lambda k, blocks=blocks: f"4 bytes for each of {int(blocks[k])} blocks",
                )

    def _check_elements(self, itemsize: int, where: str) -> None:
        self._check_length(itemsize, where)
        self._refuse(
            self.nbytes[ELEMENTS] != self.length * itemsize,
            where,
            "size of the elements",
            lambda k: f"{int(self.length[k])} elements of {itemsize} bytes",
        )

    def _check_spans(self, where: str) -> None:
        spans = self.nbytes[SPANS]
        self._refuse(
            (spans % SPAN_BYTES != 0) | ((spans == 0) & (self.length != 0)),
            where,
            "size of the spans",
            lambda k: (
                f"{SPAN_BYTES} bytes for each span, and spans for {int(self.length[k])} elements"
            ),
        )
        self._refuse(
            (spans == 0) & (self.nbytes[PAYLOADS] != 0),
            where,
            "size of the payloads",
            lambda _: "0 bytes, since there are no spans",
        )

    def _check_documents(self, itemsize: int, where: str) -> None:
        self._check_length(END_BYTES, where)
        self._refuse(
            self.nbytes[ENDS] != self.length * END_BYTES,
            where,
            "size of the ends",
            lambda k: f"{END_BYTES} bytes for each of {int(self.length[k])} documents",
        )
        documents = self.nbytes[DOCUMENTS]
        self._refuse(
            (documents % itemsize != 0) | ((self.length == 0) & (documents != 0)),
            where,
            "size of the documents",
            lambda k: f"a multiple of {itemsize} bytes, in {int(self.length[k])} documents",
        )

    def _check_length(self, itemsize: int, where: str) -> None:
        self._refuse(
            self.length > MAX_FILE_BYTES // itemsize,
            where,
            "length",
            lambda _: f"at most 2**62 // {itemsize}",
        )

    def _check_order(self, where: str) -> None:
        same_shard = np.zeros(len(self), dtype=bool)
        same_shard[1:] = self.shard[1:] == self.shard[:-1]
        expected = np.zeros(len(self), dtype=np.int64)
        expected[1:] = np.where(same_shard[1:], self.part[:-1] + 1, 0)
        for k in np.flatnonzero(self.part != expected)[:1]:
            raise gap_error(where, int(self.shard[k]), int(self.part[k]), int(expected[k]))
        for k in np.flatnonzero(self.shard[1:] < self.shard[:-1])[:1]:
            raise DamagedFileError(
                f"{where}: shard {int(self.shard[k + 1])} follows shard {int(self.shard[k])}; "
                "expected the shards in order"
            )

    def _refuse(self, bad: NDArray[np.bool_], where: str, what: str, expected: Any) -> None:
        for k in np.flatnonzero(bad)[:1]:
            raise DamagedFileError(
                f"{where}: shard {int(self.shard[k])}, part {int(self.part[k])}: the {what} is not "
                f"what follows from the other facts; expected {expected(k)}"
            )

    def fingerprint(self, dataset_id: str) -> str:
        """SHA-256, hexadecimal, over identity and content of all parts.

        Two datasets that have the same fingerprint hold the same parts in the same order, with the
        same sizes and checksums: the same bytes, unless somebody has changed some with intent to
        keep their CRC32C.
        """
        digest = hashlib.sha256(b"guideloom-fingerprint-1\n" + dataset_id.encode("ascii"))
        for column in (self.shard, self.part, self.token, self.length):
            digest.update(column.astype("<u8").tobytes())
        for role in sorted(self.nbytes):
            digest.update(role.encode("ascii"))
            digest.update(self.nbytes[role].astype("<u8").tobytes())
            digest.update(self.crc32c[role].astype("<u4").tobytes())
        return digest.hexdigest()

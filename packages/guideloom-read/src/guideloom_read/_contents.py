"""What a dataset holds: header and table of parts, found through an I/O session.

The commit records are listed first and the manifest is read second, so a consolidation that runs
in between loses nothing. A part that the manifest names is not read from its record; storage that
cannot list shows what the manifest says.
"""

from __future__ import annotations

from dataclasses import dataclass

from guideloom_format import (
    CommitRecord,
    DamagedFileError,
    DatasetNotFoundError,
    Header,
    IOSession,
    Manifest,
    Part,
    PartTable,
    _names,
)
from guideloom_format._header import MAX_HEADER_BYTES
from guideloom_format._manifest import MAX_MANIFEST_BYTES
from guideloom_format._parts import gap_error, roles_of_kind
from guideloom_format._record import MAX_RECORD_BYTES


@dataclass(frozen=True)
class Contents:
    """A dataset at the moment it was opened."""

    header: Header
    table: PartTable
    fingerprint: str


def read_header(session: IOSession, directory: str) -> Header:
    """The header.

    Raises:
        DatasetNotFoundError: there is none.
    """
    try:
        data = session.read_file(_names.HEADER, MAX_HEADER_BYTES)
    except FileNotFoundError as error:
        raise DatasetNotFoundError(
            f"{directory} holds no dataset: the file {_names.HEADER} is not there. Check the path; "
            "a writer creates the file when it is opened"
        ) from error
    return Header.decode(data, f"{directory}/{_names.HEADER}")


def read_contents(session: IOSession, directory: str, header: Header) -> Contents:
    """All committed parts.

    Raises:
        DamagedFileError: a record or manifest is damaged, missing in a row, or of something else.
    """
    roles = roles_of_kind(header.kind, f"{directory}/{_names.HEADER}")
    listed = session.list_names(_names.COMMITS)
    manifest = _read_manifest(session, directory, header)
    if listed is None and manifest is None:
        raise DatasetNotFoundError(
            f"{directory} has no {_names.MANIFEST}, and this storage cannot list commit records. "
            "Consolidate the dataset where it was written"
        )
    table = manifest.table if manifest is not None else None
    known = set(zip(table.shard.tolist(), table.part.tolist(), strict=True)) if table else set()
    found = {pair for name in listed or () if (pair := _names.parse_commit_name(name)) is not None}
    new = _read_parts(session, directory, header, found - known, known)
    if new or table is None:
        parts = [table.row(k) for k in range(len(table))] if table is not None else []
        table = PartTable.from_parts(parts + new, roles)
        table.check(header.kind, header.element_type.itemsize, f"{directory}/{_names.COMMITS}")
    return Contents(header, table, table.fingerprint(header.dataset_id))


def _read_manifest(session: IOSession, directory: str, header: Header) -> Manifest | None:
    try:
        data = session.read_file(_names.MANIFEST, MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        return None
    return Manifest.decode(
        data,
        dataset_id=header.dataset_id,
        kind=header.kind,
        itemsize=header.element_type.itemsize,
        where=f"{directory}/{_names.MANIFEST}",
    )


def _read_parts(
    session: IOSession,
    directory: str,
    header: Header,
    listed: set[tuple[int, int]],
    known: set[tuple[int, int]],
) -> list[Part]:
    """The parts of the listed records.

    A listing that is made while a writer commits can have a record without the one before it,
    which was there earlier: those are read by name.
    """
    last: dict[int, int] = {}
    for shard, part in listed:
        last[shard] = max(part, last.get(shard, 0))
    parts = []
    for shard in sorted(last):
        for part in range(last[shard] + 1):
            if (shard, part) in known:
                continue
            read = _read_part(session, header, shard, part)
            if read is not None:
                parts.append(read)
            elif (shard, part) in listed:
                raise DamagedFileError(
                    f"{_names.COMMITS}/{_names.commit_name(shard, part)} was listed and is gone; "
                    "commit records are never removed. Open again, and restore the file from a "
                    "copy if this repeats"
                )
            else:
                behind = min(n for number, n in listed if number == shard and n > part)
                raise gap_error(f"{directory}/{_names.COMMITS}", shard, behind, part)
    return parts


def _read_part(session: IOSession, header: Header, shard: int, part: int) -> Part | None:
    name = f"{_names.COMMITS}/{_names.commit_name(shard, part)}"
    try:
        data = session.read_file(name, MAX_RECORD_BYTES)
    except FileNotFoundError:
        return None
    return CommitRecord.decode(
        data, dataset_id=header.dataset_id, kind=header.kind, shard=shard, part=part
    ).part

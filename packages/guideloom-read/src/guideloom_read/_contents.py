"""What a dataset holds: header and table of parts, found through an I/O session.

The commit records are listed first and the manifest is read second, so a consolidation that runs
in between loses nothing. A part that the manifest names is not read from its record; storage that
cannot list shows what the manifest says. A pinned version is read from its own file alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from guideloom_format import (
    DatasetNotFoundError,
    Header,
    IOSession,
    Manifest,
    PartTable,
    _names,
)
from guideloom_format._committed import all_parts, listed_places
from guideloom_format._header import MAX_HEADER_BYTES
from guideloom_format._manifest import MAX_MANIFEST_BYTES
from guideloom_format._record import MAX_RECORD_BYTES


@dataclass(frozen=True)
class Contents:
    """A dataset at the moment it was opened.

    Attributes:
        header: what it says of itself.
        table: its parts.
        fingerprint: over all of them.
        version: of the manifest that has exactly these parts; None if there is none.
    """

    header: Header
    table: PartTable
    fingerprint: str
    version: int | None


def read_header(session: IOSession, directory: str) -> Header:
    """The header.

    Raises:
        DatasetNotFoundError: there is none.
    """
    try:
        data = session.read_file(_names.HEADER, MAX_HEADER_BYTES)
    except FileNotFoundError as error:
        raise DatasetNotFoundError(
            f"{_names.in_full(directory)} holds no dataset: the file {_names.HEADER} is not there. "
            "Check the path; a writer creates the file when it is opened"
        ) from error
    return Header.decode(data, f"{directory}/{_names.HEADER}")


def read_contents(
    session: IOSession, directory: str, header: Header, version: int | None = None
) -> Contents:
    """All committed parts, or those of one manifest version.

    Raises:
        DatasetNotFoundError: there is no such version, or no manifest where one is needed.
        DamagedFileError: a record or manifest is damaged, missing in a row, or of something else.
    """
    if version is not None:
        manifest = _read_version(session, directory, header, version)
        return Contents(header, manifest.table, manifest.fingerprint, version)
    names = session.list_names(_names.COMMITS)
    listed = listed_places(names or ())
    unlisted, names = names is None, None  # the names are many; what follows needs the memory
    newest = _read_manifest(session, directory, header)
    if unlisted and newest is None:
        raise DatasetNotFoundError(
            f"{_names.in_full(directory)} has no {_names.MANIFEST}, and this storage cannot list "
            "commit records. Consolidate the dataset where it was written"
        )
    known = newest.table if newest is not None else None
    table = all_parts(
        header,
        directory,
        listed,
        known,
        lambda name: session.read_file(name, MAX_RECORD_BYTES),
    )
    if newest is not None and table is known:
        return Contents(header, table, newest.fingerprint, newest.manifest_version)
    return Contents(header, table, table.fingerprint(header.dataset_id), None)


def _read_manifest(session: IOSession, directory: str, header: Header) -> Manifest | None:
    try:
        data = session.read_file(_names.MANIFEST, MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        return None
    return decoded_manifest(data, header, f"{directory}/{_names.MANIFEST}")


def _read_version(session: IOSession, directory: str, header: Header, version: int) -> Manifest:
    name = f"{_names.MANIFESTS}/{_names.manifest_name(version)}"
    try:
        data = session.read_file(name, MAX_MANIFEST_BYTES)
    except FileNotFoundError as error:
        raise DatasetNotFoundError(
            f"{_names.in_full(directory)} has no manifest version {version}: the file {name} is "
            "not there. consolidate() writes versions, and clean(pinned=…) removes those that are "
            "not pinned"
        ) from error
    return decoded_manifest(data, header, f"{directory}/{name}", version)


def decoded_manifest(
    data: bytes, header: Header, where: str, version: int | None = None
) -> Manifest:
    """The manifest in a file of this dataset, see `Manifest.decode`."""
    return Manifest.decode(
        data,
        dataset_id=header.dataset_id,
        kind=header.kind,
        itemsize=header.element_type.itemsize,
        where=where,
        version=version,
    )

"""`consolidate`: the next version of the manifest, which has all committed parts.

::

    list commits/, read the newest manifest, read the records that it lacks
    write manifests/VVVVVVVV.json exclusively        the version: whoever comes second sees it and
                                                     begins anew with the next number
    replace manifest.json by a copy of the newest    again, if there is a newer one by then

A version is complete in itself and never changes. Whatever happens, readers find every committed
part: what the copy lacks, they read from the records.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass

from guideloom_format import DatasetError, Header, Manifest, WriteError, _names
from guideloom_format._committed import all_parts, listed_places
from guideloom_format._manifest import MAX_MANIFEST_BYTES, MAX_MANIFEST_VERSION
from guideloom_format._record import MAX_RECORD_BYTES
from guideloom_format._storage import Storage
from guideloom_write._dataset import decode_manifest, errors_named, open_existing
from guideloom_write._files import PosixFiles
from guideloom_write._publish import publish_once, replace_durably

FIRST_VERSION = 1
_MOST_TRIES = 20


@dataclass(frozen=True, slots=True)
class Consolidation:
    """What `consolidate` did.

    Attributes:
        version: the manifest version that has all parts.
        parts: how many.
        length: elements or documents in them.
        fingerprint: of the dataset as this version shows it.
        created: whether the version was not there when the call began. Of several calls at once
            that write the same, each says so.
    """

    version: int
    parts: int
    length: int
    fingerprint: str
    created: bool


def consolidate(storage: Storage, files: PosixFiles | None = None) -> Consolidation:
    """See `Storage.consolidate`."""
    files = files or PosixFiles()
    directory = os.path.abspath(storage.directory)
    with errors_named(f"{directory}: consolidation failed; the dataset is as it was"):
        header = open_existing(files, storage, directory)
        manifest, created = _newest_version(files, directory, header, secrets.token_hex(8))
    table = manifest.table
    return Consolidation(
        version=manifest.manifest_version,
        parts=len(table),
        length=int(table.length.sum()),
        fingerprint=manifest.fingerprint,
        created=created,
    )


def newest_manifest(
    files: PosixFiles, directory: str, header: Header, *, repairing: bool = False
) -> Manifest | None:
    """The newest version in `manifests/`, or `manifest.json` if that is newer or alone.

    Args:
        files: the file operations.
        directory: of the dataset.
        header: of the dataset.
        repairing: a damaged `manifest.json` does not count if there are versions.

    Raises:
        DatasetError: it is damaged.
    """
    found = None
    data: bytes | None = None
    version = max(versions(files, directory), default=None)
    if version is not None:
        path = version_path(directory, version)
        data = files.read(path, MAX_MANIFEST_BYTES)
        found = decode_manifest(data, header, path, version)
    copy_path = os.path.join(directory, _names.MANIFEST)
    try:
        copied = files.read(copy_path, MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        return found
    if copied == data:
        return found
    try:
        other = decode_manifest(copied, header, copy_path)
    except DatasetError:
        if repairing and found is not None:
            return found
        raise
    return other if found is None or other.manifest_version > found.manifest_version else found


def versions(files: PosixFiles, directory: str) -> list[int]:
    """The manifest versions that are there."""
    names = files.list_names(os.path.join(directory, _names.MANIFESTS))
    parsed = (_names.parse_manifest_name(name.rstrip("/")) for name in names)
    return [version for version in parsed if version is not None]


def version_path(directory: str, version: int) -> str:
    """The file of a manifest version."""
    return os.path.join(directory, _names.MANIFESTS, _names.manifest_name(version))


def _newest_version(
    files: PosixFiles, directory: str, header: Header, token: str
) -> tuple[Manifest, bool]:
    folder = os.path.join(directory, _names.MANIFESTS)
    while True:
        if not files.folder_exists(folder):
            files.make_folder(folder)
        files.sync_folder(directory)
        listed = listed_places(files.list_names(os.path.join(directory, _names.COMMITS)))
        files.sync_folder(os.path.join(directory, _names.COMMITS))  # records before the version
        manifest = newest_manifest(files, directory, header, repairing=True)
        known = manifest.table if manifest is not None else None
        table = all_parts(
            header,
            directory,
            listed,
            known,
            lambda name: files.read(os.path.join(directory, name), MAX_RECORD_BYTES),
        )
        if manifest is not None and table is known:
            files.sync_folder(folder)  # whoever wrote it may have died before that
            _copy_newest(files, directory, token)
            return manifest, False
        version = FIRST_VERSION if manifest is None else manifest.manifest_version + 1
        if version > MAX_MANIFEST_VERSION:
            raise WriteError(
                f"{directory} has manifest version {version - 1}, the last one that the format "
                "allows; copy the data into a new dataset"
            )
        made = Manifest(header.dataset_id, version, table)
        data = made.encode()
        if len(data) > MAX_MANIFEST_BYTES:
            raise WriteError(
                f"{directory}: a manifest of {len(table)} parts would have {len(data)} bytes, at "
                f"most {MAX_MANIFEST_BYTES} are allowed; write fewer, larger parts"
            )
        path = version_path(directory, version)
        if publish_once(files, path, data, token, MAX_MANIFEST_BYTES) == data:
            _copy_newest(files, directory, token)
            return made, True


def _copy_newest(files: PosixFiles, directory: str, token: str) -> None:
    """Let `manifest.json` be a copy of the newest version, also if several do this at once."""
    path = os.path.join(directory, _names.MANIFEST)
    for _ in range(_MOST_TRIES):
        version = max(versions(files, directory), default=None)
        if version is None:
            return  # there is the copy alone
        data = files.read(version_path(directory, version), MAX_MANIFEST_BYTES)
        try:
            if files.read(path, MAX_MANIFEST_BYTES) == data:
                return
        except FileNotFoundError:
            pass
        replace_durably(files, path, data, token)
    raise WriteError(
        f"{path} is not the newest version after it was replaced {_MOST_TRIES} times; the file "
        "system loses files, or many consolidate at once. The versions are in manifests/"
    )

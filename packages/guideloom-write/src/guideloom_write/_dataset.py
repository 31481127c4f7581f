"""The dataset as a writer finds it: its header, created if need be, and what is committed."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from typing import Any

from guideloom_format import (
    CommitRecord,
    Header,
    Manifest,
    PartTable,
    WriteError,
    _names,
)
from guideloom_format._built_in import check_same_format, describe
from guideloom_format._header import MAX_HEADER_BYTES
from guideloom_format._manifest import MAX_MANIFEST_BYTES
from guideloom_format._record import MAX_RECORD_BYTES
from guideloom_format._storage import Storage
from guideloom_write._files import PosixFiles
from guideloom_write._part import durable_file, link_exclusively

VERSION = "0.1.0"


def open_or_create(
    files: PosixFiles, storage: Storage, directory: str, user: Mapping[str, Any] | None
) -> Header:
    """The dataset's header. Of several writers that create one at once, one wins.

    Raises:
        MismatchError: the dataset is of another kind or element type.
        DatasetError: its header is damaged or too new.
        DataError: `user` is not JSON.
    """
    path = os.path.join(directory, _names.HEADER)
    header = _read_header(files, path)
    if header is None:
        data = Header(
            kind=storage.kind,
            element_type=storage.element_type,
            storage_format=describe(storage.storage_format),
            user={} if user is None else user,
            written_by=f"guideloom-write {VERSION}",
        ).encode()
        _make_folders(files, directory)
        temporary = f"{path}.{secrets.token_hex(8)}.tmp"
        with durable_file(files, temporary, data):
            link_exclusively(files, temporary, path)
        files.sync_folder(directory)
        header = Header.decode(files.read(path, MAX_HEADER_BYTES + 1), path)
    header.check_opened_as(storage.kind, storage.element_type, directory)
    check_same_format(header, storage.storage_format, directory)
    return header


def consolidated(files: PosixFiles, directory: str, header: Header) -> PartTable | None:
    """The parts that the dataset's manifest has, if there is one; their records may be gone.

    Raises:
        DatasetError: the manifest is damaged.
    """
    path = os.path.join(directory, _names.MANIFEST)
    try:
        data = files.read(path, MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        return None
    return Manifest.decode(
        data,
        dataset_id=header.dataset_id,
        kind=header.kind,
        itemsize=header.element_type.itemsize,
        where=path,
    ).table


def committed(
    files: PosixFiles, directory: str, header: Header, manifest: PartTable | None, shard: int
) -> tuple[int, int]:
    """(number of parts, elements in them) that are committed to a shard.

    Raises:
        DatasetError: one of the records is damaged.
        WriteError: the shard has as many parts as the format allows.
    """
    parts = length = 0
    if manifest is not None:
        rows = manifest.shard == shard
        parts, length = int(rows.sum()), int(manifest.length[rows].sum())
    while True:
        if parts > _names.MAX_PART:
            raise WriteError(
                f"{directory}: shard {shard} has {parts} parts, which is all that the format "
                "allows; go on in another shard"
            )
        path = os.path.join(directory, _names.COMMITS, _names.commit_name(shard, parts))
        try:
            data = files.read(path, MAX_RECORD_BYTES + 1)
        except FileNotFoundError:
            return parts, length
        record = CommitRecord.decode(
            data, dataset_id=header.dataset_id, kind=header.kind, shard=shard, part=parts
        )
        parts += 1
        length += record.part.length


def _read_header(files: PosixFiles, path: str) -> Header | None:
    with contextlib.suppress(FileNotFoundError):
        return Header.decode(files.read(path, MAX_HEADER_BYTES + 1), path)
    return None


def _make_folders(files: PosixFiles, directory: str) -> None:
    """The dataset's folder with all that is above it, durable, and the two folders in it."""
    missing = []
    folder = os.path.abspath(directory)
    while not files.folder_exists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for folder in reversed(missing):
        files.make_folder(folder)
        files.sync_folder(os.path.dirname(folder))
    for name in (_names.DATA, _names.COMMITS):
        files.make_folder(os.path.join(directory, name))
    files.sync_folder(directory)

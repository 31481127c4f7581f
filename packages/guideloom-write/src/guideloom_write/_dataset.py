"""The dataset as a writer finds it: its header, created if need be, and what is committed."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from guideloom_format import (
    CommitRecord,
    DatasetNotFoundError,
    GuideLoomError,
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
from guideloom_write._publish import publish_once

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
        data = publish_once(files, path, data, secrets.token_hex(8), MAX_HEADER_BYTES)
        header = Header.decode(data, path)
    else:
        files.sync_folder(directory)  # whoever made it may have died before that
    files.sync_folder(os.path.join(directory, _names.COMMITS))  # likewise
    _check(header, storage, directory)
    return header


def open_existing(files: PosixFiles, storage: Storage, directory: str) -> Header:
    """The dataset's header.

    Raises:
        DatasetNotFoundError: there is no dataset.
        MismatchError: it is of another kind, element type or built-in format.
        DatasetError: its header is damaged or too new.
    """
    header = _read_header(files, os.path.join(directory, _names.HEADER))
    if header is None:
        raise DatasetNotFoundError(
            f"{directory} holds no dataset: the file {_names.HEADER} is not there. Check the path; "
            "a writer creates the file when it is opened"
        )
    _check(header, storage, directory)
    return header


def consolidated(files: PosixFiles, directory: str, header: Header) -> PartTable | None:
    """The parts that the dataset's manifest has, if there is one; their records may be gone.

    Raises:
        DatasetError: the manifest is damaged.
    """
    path = os.path.join(directory, _names.MANIFEST)
    try:
        data = files.read(path, MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        return None
    return decode_manifest(data, header, path).table


def decode_manifest(data: bytes, header: Header, path: str, version: int | None = None) -> Manifest:
    """The manifest in a file of this dataset, see `Manifest.decode`."""
    return Manifest.decode(
        data,
        dataset_id=header.dataset_id,
        kind=header.kind,
        itemsize=header.element_type.itemsize,
        where=path,
        version=version,
    )


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
        first, stop = np.searchsorted(manifest.shard, (shard, shard + 1)).tolist()
        parts, length = stop - first, int(manifest.length[first:stop].sum())
    while True:
        if parts > _names.MAX_PART:
            raise WriteError(
                f"{directory}: shard {shard} has {parts} parts, which is all that the format "
                "allows; go on in another shard"
            )
        record = read_record(files, directory, header, shard, parts)
        if record is None:
            return parts, length
        parts += 1
        length += record.part.length


def read_record(
    files: PosixFiles, directory: str, header: Header, shard: int, part: int
) -> CommitRecord | None:
    """The commit record of one part; None if it is not there.

    Raises:
        DatasetError: it is damaged.
    """
    path = os.path.join(directory, _names.COMMITS, _names.commit_name(shard, part))
    try:
        data = files.read(path, MAX_RECORD_BYTES)
    except FileNotFoundError:
        return None
    return CommitRecord.decode(
        data, dataset_id=header.dataset_id, kind=header.kind, shard=shard, part=part
    )


def _read_header(files: PosixFiles, path: str) -> Header | None:
    with contextlib.suppress(FileNotFoundError):
        return Header.decode(files.read(path, MAX_HEADER_BYTES), path)
    return None


@contextmanager
def errors_named(what: str) -> Iterator[None]:
    """Errors of the operating system become `WriteError`, with its errno, and the file if known."""
    try:
        yield
    except OSError as error:
        if isinstance(error, GuideLoomError):
            raise
        named = WriteError(
            f"{what}: {error.strerror or error} (errno {error.errno}), file {error.filename}"
        )
        named.errno = error.errno
        raise named from error


def _check(header: Header, storage: Storage, directory: str) -> None:
    header.check_opened_as(storage.kind, storage.element_type, directory)
    check_same_format(header, storage.storage_format, directory)


def make_part_folder(files: PosixFiles, directory: str, shard: int) -> None:
    """The folder of a shard's data files, durable whoever made it."""
    data = os.path.join(directory, _names.DATA)
    files.make_folder(os.path.join(data, _names.part_folder(shard)))
    files.sync_folder(data)


def _make_folders(files: PosixFiles, directory: str) -> None:
    """The dataset's folder with all that is above it, durable, and the two folders in it."""
    missing = []
    folder = os.path.abspath(directory)
    while not files.folder_exists(folder) and folder != os.path.dirname(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    with contextlib.suppress(PermissionError):
        files.sync_folder(os.path.dirname(folder))  # another writer may have just made it
    for folder in reversed(missing):
        files.make_folder(folder)
        files.sync_folder(os.path.dirname(folder))
    for name in (_names.DATA, _names.COMMITS):
        files.make_folder(os.path.join(directory, name))
    files.sync_folder(directory)

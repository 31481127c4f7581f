"""`clean`: list or remove what nothing refers to.

::

    list the files that GuideLoom's writers make, with their age    first, so that what is published
    read every record, manifest and job: what they refer to         meanwhile is seen here
    read the notes of owners: which sessions are alive
    remove what is old enough, referred to by nothing, and of no living session

Files with other names are never touched.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from guideloom_format import Header, _names
from guideloom_format._committed import all_parts, listed_places
from guideloom_format._integers import as_flag, as_index
from guideloom_format._manifest import MAX_MANIFEST_BYTES, MAX_MANIFEST_VERSION
from guideloom_format._parts import ROLES_OF_KIND
from guideloom_format._record import MAX_RECORD_BYTES
from guideloom_format._storage import Storage
from guideloom_write._consolidate import newest_manifest, version_path, versions
from guideloom_write._dataset import decode_manifest, errors_named, open_existing, read_record
from guideloom_write._files import PosixFiles
from guideloom_write._job import decided_records, running_since
from guideloom_write._owners import STALE_AFTER, read_note
from guideloom_write._process import State

_TEMPORARY = re.compile(r"[A-Za-z0-9._-]+\.([0-9a-f]{16})\.tmp", re.ASCII)
_FOLDERS = ("", _names.COMMITS, _names.MANIFESTS, _names.OWNERS, _names.JOBS)


@dataclass(frozen=True, slots=True)
class CleanReport:
    """What `clean` found; names are relative to the dataset.

    Attributes:
        orphans: data files that nothing refers to, and temporary files.
        manifests: versions that are not pinned.
        nbytes: bytes of all of them.
        removed: whether they were removed, or only listed.
    """

    orphans: tuple[str, ...]
    manifests: tuple[str, ...]
    nbytes: int
    removed: bool

    def __str__(self) -> str:
        names = [*self.orphans, *self.manifests]
        what = "removed" if self.removed else "to be removed with remove=True"
        return "\n".join([f"{len(names)} files, {self.nbytes} bytes, {what}", *names])


@dataclass(frozen=True, slots=True)
class _Found:
    """A file that a writer made, and of which session."""

    name: str
    token: str
    nbytes: int
    modified: float


def clean(
    storage: Storage,
    *,
    remove: bool = False,
    older_than: float = 86400.0,
    pinned: Iterable[int] | None = None,
    files: PosixFiles | None = None,
) -> CleanReport:
    """See `Storage.clean`."""
    remove = as_flag("remove", remove)
    if not older_than >= 0:
        raise ValueError(f"older_than is {older_than!r}; expected seconds, 0 or more")
    if isinstance(pinned, int):
        raise TypeError(f"pinned is {pinned}; expected a list of versions")
    kept = (
        None
        if pinned is None
        else {as_index("pinned", version, 0, MAX_MANIFEST_VERSION) for version in pinned}
    )
    files = files or PosixFiles()
    directory = os.path.abspath(storage.directory)
    with errors_named(f"{directory} could not be cleaned"):
        header = open_existing(files, storage, directory)
        cleaner = _Cleaner(files, directory, header, older_than)
        data, temporary = list(cleaner.data_files()), list(cleaner.temporary_files())
        referenced = cleaner.referenced()
        living = cleaner.living()
        waiting = cleaner.job_began()
        orphans = [
            found
            for found in data + temporary
            if found.name not in referenced
            and found.token not in living
            and found.modified < waiting
            and not cleaner.published(found)
        ]
        manifests = cleaner.manifests(kept)
        if remove:
            for found in orphans + manifests:
                with contextlib.suppress(FileNotFoundError):
                    files.remove(os.path.join(directory, found.name))
    return CleanReport(
        orphans=tuple(sorted(found.name for found in orphans)),
        manifests=tuple(sorted(found.name for found in manifests)),
        nbytes=sum(found.nbytes for found in orphans + manifests),
        removed=remove,
    )


class _Cleaner:
    """The questions that `clean` asks of one dataset."""

    def __init__(
        self, files: PosixFiles, directory: str, header: Header, older_than: float
    ) -> None:
        self._files = files
        self._directory = directory
        self._header = header
        self._older_than = older_than
        self._now = self._clock()
        self._own = {"", *(n[:-1] for n in files.list_names(directory) if n.endswith("/"))}
        roles = "|".join(re.escape(role) for role in ROLES_OF_KIND[header.kind])
        self._data_name = re.compile(
            rf"([0-9]{{7,10}})-([0-9]{{4,7}})-([0-9a-f]{{16}})\.({roles})", re.ASCII
        )

    def data_files(self) -> Iterator[_Found]:
        """Data files that are old enough."""
        for folder in self._names(_names.DATA):
            if folder.endswith("/"):  # not a link: behind it may be another dataset
                place = f"{_names.DATA}/{folder[:-1]}"
                for name in self._names(place):
                    match = self._data_name.fullmatch(name)
                    if match is not None:
                        yield from self._if_old(f"{place}/{name}", match[3])

    def temporary_files(self) -> Iterator[_Found]:
        """Files that were to be published and are old enough."""
        for folder in _FOLDERS:
            for name in self._names(folder):
                match = _TEMPORARY.fullmatch(name)
                if match is not None:
                    yield from self._if_old(f"{folder}/{name}" if folder else name, match[1])

    def referenced(self) -> set[str]:
        """Names of the data files that a record, a manifest or a job refers to.

        Raises:
            DatasetError: one of them is damaged.
        """
        header, directory = self._header, self._directory
        listed = listed_places(self._files.list_names(os.path.join(directory, _names.COMMITS)))
        tables = []
        newest = newest_manifest(self._files, directory, header)
        for version in versions(self._files, directory):
            path = version_path(directory, version)
            with contextlib.suppress(FileNotFoundError):
                data = self._files.read(path, MAX_MANIFEST_BYTES)
                tables.append(decode_manifest(data, header, path, version).table)
        known = newest.table if newest is not None else None
        tables.append(all_parts(header, directory, listed, known, self._read))
        stems = {stem.decode("ascii") for table in tables for stem in table.stem.tolist()}
        for record in decided_records(self._files, directory, header):
            stems.add(record.part.stem)
        roles = ROLES_OF_KIND[header.kind]
        return {_names.data_name(stem, role) for stem in stems for role in roles}

    def living(self) -> set[str]:
        """The tokens of the sessions that live, as far as can be told.

        Notes of the dead stay: the next writer of the shard takes them over.
        """
        living = set()
        for name in self._names(_names.OWNERS):
            if _names.parse_owner_name(name) is None:
                continue
            path = os.path.join(self._directory, _names.OWNERS, name)
            try:
                note = read_note(self._files, path)
                quiet = self._now - self._files.modified(path)
            except FileNotFoundError:
                continue
            if note is not None:
                state = note.state()
                if state is State.ALIVE or (state is State.UNKNOWN and quiet < STALE_AFTER):
                    living.add(note.token)
        return living

    def job_began(self) -> float:
        """When the oldest job began that is under way; what is newer may be its work."""
        alive = max(self._older_than, STALE_AFTER)
        running = running_since(self._files, self._directory)
        return min(
            (since for _, touched, since in running if self._now - touched < alive),
            default=float("inf"),
        )

    def manifests(self, pinned: set[int] | None) -> list[_Found]:
        """The versions but the pinned ones and the newest; none if pins are not known."""
        if pinned is None:
            return []
        there = sorted(versions(self._files, self._directory))
        for version in sorted(pinned - set(there)):
            raise ValueError(
                f"pinned has version {version}, which is not there; there are {there}. Nothing was "
                "removed"
            )
        return [
            found
            for version in there[:-1]
            if version not in pinned
            for found in self._if_old(
                f"{_names.MANIFESTS}/{_names.manifest_name(version)}", token=""
            )
        ]

    def published(self, found: _Found) -> bool:
        """Whether a data file belongs to a record that was published meanwhile."""
        match = self._data_name.fullmatch(os.path.basename(found.name))
        if match is None:
            return False
        record = read_record(
            self._files, self._directory, self._header, int(match[1]), int(match[2])
        )
        return record is not None and record.part.token == found.token

    def _names(self, folder: str) -> list[str]:
        """Names in a folder of the dataset; none if it is a link, which may lead anywhere."""
        if folder in self._own or "/" in folder:
            return self._files.list_names(os.path.join(self._directory, folder))
        return []

    def _read(self, name: str) -> bytes:
        return self._files.read(os.path.join(self._directory, name), MAX_RECORD_BYTES)

    def _if_old(self, name: str, token: str) -> Iterator[_Found]:
        path = os.path.join(self._directory, name)
        with contextlib.suppress(FileNotFoundError):
            modified = self._files.modified(path)
            if self._now - modified >= self._older_than:
                yield _Found(name, token, self._files.size(path), modified)

    def _clock(self) -> float:
        """Now, as the file system sees it: its clock may be another machine's."""
        path = os.path.join(
            self._directory, _names.temporary_name(_names.HEADER, secrets.token_hex(8))
        )
        try:
            self._files.close(self._files.create(path))
        except OSError:
            return time.time()  # a dataset that cannot be written can still be looked at
        try:
            return self._files.modified(path)
        finally:
            self._files.remove(path)

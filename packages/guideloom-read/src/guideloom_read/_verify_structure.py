"""The files of structure for `verify`: each damaged one is a fault and hides no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from guideloom_format import (
    CommitRecord,
    DamagedFileError,
    DatasetError,
    DatasetNotFoundError,
    Header,
    IOSession,
    Manifest,
    PartTable,
    ReadError,
    _names,
)
from guideloom_format._committed import place_of, places_of
from guideloom_format._job import MAX_JOB_BYTES, Job
from guideloom_format._manifest import MAX_MANIFEST_BYTES
from guideloom_format._parts import ROLES_OF_KIND, gap_error
from guideloom_format._record import MAX_RECORD_BYTES
from guideloom_read._contents import decoded_manifest, read_header
from guideloom_read._verify_report import Fault, VerifyReport

Made = TypeVar("Made")
_FOLDERS = (_names.COMMITS, _names.MANIFESTS, _names.OWNERS, _names.JOBS)


@dataclass(frozen=True)
class Structure:
    """What could be read of a dataset's structure.

    Attributes:
        header: of the dataset.
        table: the parts that are known in spite of what is damaged.
        waiting: stems of the parts that a job has decided to publish.
    """

    header: Header
    table: PartTable
    waiting: frozenset[str]


def survey(session: IOSession, directory: str, report: VerifyReport) -> Structure | None:
    """What can be read in spite of what is damaged; None without a header."""
    try:
        header = read_header(session, directory)
    except (DatasetNotFoundError, ReadError):
        raise
    except DatasetError as error:
        report.faults.append(_fault(session, _names.HEADER, error))
        return None
    look = _Look(session, header, report)
    listed = session.list_names(_names.COMMITS)
    newest = look.manifest(_names.MANIFEST, None)
    for name in sorted(session.list_names(_names.MANIFESTS) or ()):
        version = _names.parse_manifest_name(name)
        if version is not None:
            other = look.manifest(f"{_names.MANIFESTS}/{name}", version)
            look.compare(other, newest)
            if newest is None or (other and other.manifest_version > newest.manifest_version):
                newest = other
    if listed is None and newest is None and not report.faults:
        raise DatasetNotFoundError(
            f"{_names.in_full(directory)} has no {_names.MANIFEST}, and this storage cannot list "
            "commit records. Consolidate the dataset where it was written"
        )
    return Structure(header, look.all_parts(listed or [], newest), look.waiting())


def _same_rows(new: PartTable, at: NDArray[np.int64], old: PartTable) -> NDArray[np.bool_]:
    """For each part of `old`, whether the rows `at` of `new` say the same of it."""
    same: NDArray[np.bool_] = (new.token[at] == old.token) & (new.length[at] == old.length)
    same &= new.stem[at] == old.stem
    for role in old.nbytes:
        same &= new.nbytes[role][at] == old.nbytes[role]
        same &= new.crc32c[role][at] == old.crc32c[role]
    return same


class _Look:
    """Reads the files of a dataset's structure and notes what is wrong with each."""

    def __init__(self, session: IOSession, header: Header, report: VerifyReport) -> None:
        self._session = session
        self._header = header
        self._faults = report.faults

    def manifest(self, name: str, version: int | None) -> Manifest | None:
        """The manifest in a file; None if it is not there or is damaged."""
        return self._decoded(
            name,
            MAX_MANIFEST_BYTES,
            lambda data: decoded_manifest(data, self._header, name, version),
        )

    def compare(self, one: Manifest | None, other: Manifest | None) -> None:
        """The parts of an older version are parts of a newer one."""
        if one is None or other is None:
            return
        old, new = sorted((one, other), key=lambda manifest: manifest.manifest_version)
        places, wanted = places_of(new.table), places_of(old.table)
        at = np.searchsorted(places, wanted)
        at[at == len(places)] = 0
        same = np.zeros(len(wanted), dtype=bool)
        if len(places):
            same = (places[at] == wanted) & _same_rows(new.table, at, old.table)
        for k in np.flatnonzero(~same)[:1].tolist():
            self._faults.append(
                Fault(
                    f"{_names.MANIFESTS}/{_names.manifest_name(new.manifest_version)}",
                    0,
                    0,
                    f"shard {int(old.table.shard[k])}, part {int(old.table.part[k])} of version "
                    f"{old.manifest_version} is not in it, or another; versions only grow. "
                    "Restore the manifests from a copy",
                )
            )

    def all_parts(self, listed: list[str], manifest: Manifest | None) -> PartTable:
        """The parts of the manifest and of all records that can be read."""
        header, roles = self._header, ROLES_OF_KIND[self._header.kind]
        known = {}
        if manifest is not None:
            known = {place: k for k, place in enumerate(places_of(manifest.table).tolist())}
        new = {}
        for name in sorted(listed):
            pair = _names.parse_commit_name(name)
            record = None if pair is None else self._record(*pair)
            if record is None:
                continue
            part = record.part
            k = known.get(place_of(part.shard, part.part))
            if k is None or manifest is None:
                new[place_of(part.shard, part.part)] = part
            elif manifest.table.row(k) != part:
                self._add(
                    f"{_names.COMMITS}/{name}",
                    "it is not what the manifest says of the part; one of them is of something "
                    "else. Restore both from a copy",
                )
        self._find_gaps(sorted(known.keys() | new.keys()))
        found = PartTable.from_parts(new.values(), roles)
        try:
            found.check_sizes(header.kind, header.element_type.itemsize, _names.COMMITS)
        except DamagedFileError:
            for place, part in list(new.items()):
                try:
                    PartTable.from_parts([part], roles).check_sizes(
                        header.kind, header.element_type.itemsize, _names.COMMITS
                    )
                except DamagedFileError as error:
                    name = _names.commit_name(part.shard, part.part)
                    self._add(f"{_names.COMMITS}/{name}", str(error))
                    del new[place]
            found = PartTable.from_parts(new.values(), roles)
        return found if manifest is None else manifest.table.merged(found)

    def waiting(self) -> frozenset[str]:
        """Stems of the parts of all decided jobs, whether their records are published or not."""
        stems: set[str] = set()
        for entry in sorted(self._session.list_names(_names.JOBS) or ()):
            if _names.parse_job_name(entry) is not None:
                records = self._decoded(
                    f"{_names.JOBS}/{entry}", MAX_JOB_BYTES, partial(self._records, entry)
                )
                stems.update(record.part.stem for record in records or ())
        return frozenset(stems)

    def _records(self, entry: str, data: bytes) -> list[CommitRecord]:
        job = Job.decode(
            data,
            dataset_id=self._header.dataset_id,
            name=entry.removesuffix(".json"),
            where=f"{_names.JOBS}/{entry}",
        )
        return [record for record, _ in job.parts(self._header)]

    def _find_gaps(self, places: list[int]) -> None:
        expected = 0
        for place in places:
            first = place - place % place_of(1, 0)
            expected = max(expected, first)
            if place != expected:
                shard, missing = divmod(expected, place_of(1, 0))
                self._add(
                    f"{_names.COMMITS}/{_names.commit_name(shard, missing)}",
                    str(gap_error(_names.COMMITS, shard, place % place_of(1, 0), missing)),
                )
            expected = place + 1

    def _record(self, shard: int, part: int) -> CommitRecord | None:
        header = self._header
        return self._decoded(
            f"{_names.COMMITS}/{_names.commit_name(shard, part)}",
            MAX_RECORD_BYTES,
            lambda data: CommitRecord.decode(
                data, dataset_id=header.dataset_id, kind=header.kind, shard=shard, part=part
            ),
        )

    def _decoded(self, name: str, limit: int, decode: Callable[[bytes], Made]) -> Made | None:
        try:
            return decode(self._session.read_file(name, limit))
        except FileNotFoundError:
            return None
        except ReadError:
            raise
        except DatasetError as error:
            self._faults.append(_fault(self._session, name, error))
        return None

    def _add(self, name: str, problem: str) -> None:
        self._faults.append(_fault(self._session, name, problem))


def wrong_sizes(
    session: IOSession, table: PartTable, report: VerifyReport
) -> dict[str, NDArray[np.bool_]]:
    """A fault for every file that is not there with its size.

    Returns:
        for each role, which of the parts have a file of the right size.
    """
    sound = {role: np.ones(len(table), dtype=bool) for role in table.nbytes}
    for k in range(len(table)):
        for role, sizes in table.nbytes.items():
            name, stated = table.file_name(k, role), int(sizes[k])
            try:
                found = session.file_size(name)
                if found == stated:
                    continue
                start, stop = sorted((found, stated))
                problem = f"it has {found} bytes; {stated} were committed. Restore it from a copy"
            except FileNotFoundError:
                start, stop = 0, stated
                problem = (
                    f"it was committed with {stated} bytes and is not there. Restore it from a copy"
                )
            except ReadError:
                raise
            except DatasetError as error:
                start, stop, problem = 0, stated, str(error)
            sound[role][k] = False
            report.faults.append(Fault(name, start, stop, problem))
    return sound


def orphans(session: IOSession, structure: Structure) -> list[str] | None:
    """What lies in the dataset's own folders and nothing refers to; None if it cannot be listed."""
    data = session.list_names(_names.DATA)
    if data is None:
        return None
    found = []
    stems = structure.waiting | {stem.decode("ascii") for stem in structure.table.stem.tolist()}
    roles = ROLES_OF_KIND[structure.header.kind]
    known = {_names.data_name(stem, role) for stem in stems for role in roles}
    folders = {name.rpartition("/")[0] for name in known}
    folders |= {f"{_names.DATA}/{name}" for name in data if name.isdecimal()}  # of writers
    parents = {folder.rpartition("/")[0] for folder in folders}
    places = known | folders | parents
    for folder in sorted(folders | parents | {_names.DATA}):
        if folder:
            try:
                below = [f"{folder}/{name}" for name in session.list_names(folder) or ()]
            except ReadError:  # a file that has the name of a folder
                found.append(folder)
                continue
            found += [path for path in below if path not in places]
    for folder in _FOLDERS:
        names = session.list_names(folder) or ()
        found += [f"{folder}/{name}" for name in names if name.endswith(_names.TEMPORARY)]
    names = session.list_names("") or ()
    found += [name for name in names if name.endswith(_names.TEMPORARY)]
    return sorted(found)


def _fault(session: IOSession, name: str, problem: object) -> Fault:
    """A fault of a whole file."""
    try:
        size = session.file_size(name)
    except (FileNotFoundError, DatasetError):
        size = 0
    return Fault(name, 0, size, str(problem))

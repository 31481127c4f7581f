"""All committed parts: those of a manifest, and those of the records that it does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from guideloom_format import _lists, _names
from guideloom_format._errors import DamagedFileError
from guideloom_format._header import Header
from guideloom_format._parts import Part, PartTable, gap_error, roles_of_kind
from guideloom_format._record import CommitRecord

_PARTS = _names.MAX_PART + 1


def all_parts(
    header: Header,
    directory: str,
    listed: NDArray[np.int64],
    manifest: PartTable | None,
    read: Callable[[str], bytes],
) -> PartTable:
    """The table of all parts.

    A listing that is made while a writer commits can have a record without the one before it,
    which was there earlier: those are read by name.

    Args:
        header: of the dataset.
        directory: of the dataset, for messages.
        listed: places of the records in `commits/`, see `listed_places`.
        manifest: the parts that need not be read from their records.
        read: gives the content of the file with this name, or raises FileNotFoundError.

    Returns:
        `manifest` itself if no record has anything new.

    Raises:
        DamagedFileError: a record is damaged, missing in a row, or of something else.
    """
    where = f"{directory}/{_names.COMMITS}"
    known = np.empty(0, dtype=np.int64) if manifest is None else places_of(manifest)
    new = listed[:0] if np.array_equal(listed, known) else np.setdiff1d(listed, known)
    if manifest is not None and not new.size:
        return manifest
    parts: list[Part] = []
    for place in _with_those_before(new, known):
        shard, number = divmod(place, _PARTS)
        record = _record(header, read, shard, number)
        if record is not None:
            parts.append(record.part)
            continue
        if place in new:
            raise DamagedFileError(
                f"{_names.COMMITS}/{_names.commit_name(shard, number)} was listed and is gone; "
                "commit records are never removed. Open again, and restore the file from a copy "
                "if this repeats"
            )
        behind = int(new[np.searchsorted(new, place)])
        raise gap_error(where, shard, behind % _PARTS, number)
    table = PartTable.from_parts(parts, roles_of_kind(header.kind, where))
    if manifest is not None and len(manifest):
        table = manifest.merged(table)
    table.check(header.kind, header.element_type.itemsize, where)
    return table


def listed_places(names: Iterable[str]) -> NDArray[np.int64]:
    """The places of the commit records among these names, in order.

    A place is ``shard * (MAX_PART + 1) + part``.
    """
    return np.sort(_lists.commit_places(list(names), _names.MAX_SHARD + 1, _PARTS))


def place_of(shard: int, part: int) -> int:
    """See `listed_places`."""
    return shard * _PARTS + part


def places_of(table: PartTable) -> NDArray[np.int64]:
    """The places of all parts, in order."""
    return table.shard * _PARTS + table.part


def _with_those_before(new: NDArray[np.int64], known: NDArray[np.int64]) -> Iterator[int]:
    """The new places, and those of earlier parts of their shards that nobody knows, in order."""
    at = 0
    for place in new.tolist():
        at = max(at, place - place % _PARTS)
        first = int(np.searchsorted(known, at)) if at < place else 0
        while at < place:
            if first < known.size and known[first] == at:
                first += 1
            else:
                yield at
            at += 1
        yield place
        at = place + 1


def _record(
    header: Header, read: Callable[[str], bytes], shard: int, part: int
) -> CommitRecord | None:
    try:
        data = read(f"{_names.COMMITS}/{_names.commit_name(shard, part)}")
    except FileNotFoundError:
        return None
    return CommitRecord.decode(
        data, dataset_id=header.dataset_id, kind=header.kind, shard=shard, part=part
    )

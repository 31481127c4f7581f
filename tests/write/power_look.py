"""What a reader and a new writer make of what a power failure left."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from guideloom_format import _names
from guideloom_read import verify
from guideloom_write._clean import clean
from guideloom_write._consolidate import consolidate
from write.faulty_files import Watched
from write.known_content import Known
from write.power_processes import DIRECTORY, Session, Step, completed, storage_of
from write.power_promises import Seen
from write.power_states import State

INSIDE = os.fspath(DIRECTORY.relative_to("/"))


class Looker:
    """Makes states real and looks at them; at equal ones once.

    A reader reads all of every state. The job is started again in one of those that differ in
    nothing but the content of data files and in temporary files, or in all if that is asked for.

    Args:
        known: the data.
        folder: where states become real.
        wanted: the lengths of shards that are there in the end.
        again: what the job does that is started again; when left out, it completes each shard.
        thorough: start the job again in every state.
    """

    def __init__(
        self,
        known: Known[Any],
        folder: Path,
        wanted: Mapping[int, int],
        again: Sequence[Step] = (),
        *,
        thorough: bool,
    ) -> None:
        self._known = known
        self._place = folder / "state"
        self._directory = self._place / INSIDE
        self._wanted = dict(wanted)
        self._again = again or [completed(wanted)]
        self._thorough = thorough
        self._seen: dict[bytes, Seen] = {}
        self._gone_on: set[bytes] = set()

    @property
    def states(self) -> int:
        """How many different ones there were."""
        return len(self._seen)

    def look(self, found: State) -> Seen:
        key = found.digest()
        if key not in self._seen:
            kind = key if self._thorough else found.digest(rough=True)
            self._seen[key] = self._look(found, go_on=kind not in self._gone_on)
            self._gone_on.add(kind)
        return self._seen[key]

    def _look(self, found: State, *, go_on: bool) -> Seen:
        put(found, self._place)
        lengths = None
        try:
            lengths = self._known.visible(self._directory)
            seen = Seen(lengths) if lengths is None else self._all_of(found, lengths)
            if go_on:
                self._go_on(seen)
            elif lengths is not None:
                self._orphans()
        except Exception as error:  # noqa: BLE001  # whatever it is, the state is bad
            return Seen(lengths, fault=f"{type(error).__name__}: {error}")
        finally:
            shutil.rmtree(self._place)
        return seen

    def _all_of(self, found: State, lengths: Mapping[int, int]) -> Seen:
        last: dict[int, bytes] = {}
        versions: dict[int, str] = {}
        for path in sorted(found.files):
            folder, _, name = path.removeprefix(f"{INSIDE}/").rpartition("/")
            place = _names.parse_commit_name(name)
            version = _names.parse_manifest_name(name)
            if folder == _names.COMMITS and place is not None:
                last[place[0]] = found.files[path]
            elif folder == _names.MANIFESTS and version is not None:
                storage = storage_of(self._known, self._directory).at_version(version)
                with storage.sync_reader() as reader:
                    versions[version] = reader.fingerprint
        copy = found.files.get(f"{INSIDE}/{_names.MANIFEST}")
        copied = None if copy is None else json.loads(copy)["manifest_version"]
        if copied in versions:
            original = found.files[f"{INSIDE}/{_names.MANIFESTS}/{_names.manifest_name(copied)}"]
            assert copy == original, f"manifest.json is not version {copied}"
        finished = frozenset(
            shard for shard, record in last.items() if json.loads(record).get("finished")
        )
        return Seen(lengths, finished, copied, versions)

    def _go_on(self, seen: Seen) -> None:
        """The job is started again; then the garbage is removed."""
        known, directory, wanted = self._known, self._directory, self._wanted
        if seen.lengths is not None:
            with known.writer(directory, Watched()) as writer:
                finished = {shard for shard in seen.lengths if writer.finished(shard)}
            assert finished == seen.finished & set(seen.lengths)
        session = Session(known, Watched(), directory)
        for step in self._again:
            session.do(step)
        session.end()
        storage = storage_of(known, directory)
        if seen.versions or seen.copied is not None:
            result = consolidate(storage, Watched())
            assert result.length == sum(wanted.values())
            assert result.version >= max([seen.copied or 0, *seen.versions])
            with storage.at_version(result.version).sync_reader() as reader:
                assert reader.fingerprint == result.fingerprint
        clean(storage, remove=True, older_than=0.0, files=Watched())
        assert known.visible(directory) == wanted, "the new writer did not complete it"
        assert self._orphans() == [], "garbage was not removed"

    def _orphans(self) -> list[str]:
        report = verify(self._directory)
        assert report.clean, report.faults
        return report.orphans or []


def put(found: State, place: Path) -> None:
    """Make a state real."""
    root = os.fspath(place)
    os.mkdir(root)
    for folder in found.folders:
        os.mkdir(f"{root}/{folder}")
    for path, content in found.files.items():
        descriptor = os.open(f"{root}/{path}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)

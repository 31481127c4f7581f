"""What must be there, may be there and must not be there at each point of a run.

`Promises` follows the log: what processes were told to be committed must be there, and what no
process had begun to commit must not. `Seen` is what a reader finds.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from guideloom_format import _names
from write.power_machine import Event, Machine, Mark, Named
from write.power_processes import Committed, Consolidated, Finished, Opened, Unpinned

Place = tuple[int, int]
"""Shard and part."""


@dataclass(frozen=True)
class Seen:
    """What is found in a state.

    Attributes:
        lengths: of the shards that a reader finds; None if it finds no dataset.
        finished: shards with the mark that they are complete.
        copied: the version of `manifest.json`.
        versions: fingerprints of the manifest versions, opened one by one.
        fault: what went wrong when all this was looked at, or when a new writer went on.
    """

    lengths: Mapping[int, int] | None = None
    finished: frozenset[int] = frozenset()
    copied: int | None = None
    versions: Mapping[int, str] = field(default_factory=dict)
    fault: str = ""


@dataclass
class Promises:
    """What holds after the events that were followed.

    Attributes:
        opened: a writer was open, so the dataset is there.
        linked: length of each part whose commit record was given its name.
        committed: parts that must be there.
        marked: shards whose last linked record has the mark that they are complete.
        finished: shards that must have the mark.
        versions: fingerprints of manifest versions that must be there.
        newest: the newest of those that were ever there.
        cleaned: whether versions may have been removed.
    """

    machine: Machine
    opened: bool = False
    linked: dict[Place, int] = field(default_factory=dict)
    committed: set[Place] = field(default_factory=set)
    marked: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    versions: dict[int, str] = field(default_factory=dict)
    newest: int = 0
    cleaned: bool = False

    @classmethod
    def at(cls, machine: Machine, number: int) -> Promises:
        """Those after so many events of the log, and what was there and durable before it."""
        promises = cls(machine)
        for path, file in sorted(machine.files_at_the_beginning()):
            promises.opened |= posixpath.basename(path) == _names.HEADER
            promises._linked(path, file)
            folder, name = posixpath.split(path)
            version = _names.parse_manifest_name(name)
            if posixpath.basename(folder) == _names.MANIFESTS and version is not None:
                promises.versions[version] = promises._json(file)["fingerprint"]
        promises.committed = set(promises.linked)
        promises.finished = set(promises.marked)
        for event in machine.events[:number]:
            promises.follow(event)
        return promises

    def follow(self, event: Event) -> None:
        if isinstance(event, Named) and event.what == "link":
            self._linked(event.path, event.names[0][1])
        elif isinstance(event, Mark):
            self._told(event.value)

    def _linked(self, path: str, number: int | None) -> None:
        folder, name = posixpath.split(path)
        place = _names.parse_commit_name(name)
        if posixpath.basename(folder) == _names.COMMITS and place is not None:
            assert number is not None
            record = self._json(number)
            self.linked[place] = record["length"]
            self.marked.discard(place[0])
            if record.get("finished"):
                self.marked.add(place[0])

    def _json(self, number: int) -> Any:
        return json.loads(bytes(self.machine.contents[number]))

    def _told(self, told: Any) -> None:
        if isinstance(told, Opened):
            self.opened = True
        elif isinstance(told, Committed):
            self.committed |= {place for place in self.linked if place[0] in told.shards}
        elif isinstance(told, Finished):
            self.committed |= {place for place in self.linked if place[0] == told.shard}
            self.finished.add(told.shard)
        elif isinstance(told, Consolidated):
            self.opened = True
            self.versions[told.result.version] = told.result.fingerprint
            self.newest = max(self.newest, told.result.version)
        elif isinstance(told, Unpinned):
            kept = {*told.versions, self.newest}
            self.versions = {v: text for v, text in self.versions.items() if v in kept}
            self.cleaned = True

    def problem(self, seen: Seen) -> str | None:
        """What is wrong in a state, if anything is."""
        return seen.fault or next(self._problems(seen), None)

    def _problems(self, seen: Seen) -> Iterator[str]:
        if seen.lengths is None:
            if self.opened or self.committed:
                yield "the dataset is gone"
            return
        for shard in sorted({*seen.lengths, *(shard for shard, _ in self.linked)}):
            found, allowed = seen.lengths.get(shard, 0), self._allowed(shard)
            if found not in allowed:
                yield f"shard {shard} has {found}; allowed is {allowed}"
        if not self.finished <= seen.finished <= self.marked:
            yield (
                f"marked as complete are {sorted(seen.finished)}; must be {sorted(self.finished)}, "
                f"may be {sorted(self.marked)}"
            )
        for version, fingerprint in self.versions.items():
            if seen.versions.get(version) != fingerprint:
                yield f"manifest version {version} is {seen.versions.get(version, 'gone')}"
        if self.newest and (seen.copied is None or seen.copied < self.newest):
            yield f"manifest.json is version {seen.copied}; {self.newest} was made"
        if seen.copied is not None and seen.copied not in seen.versions and not self.cleaned:
            yield f"manifest.json is version {seen.copied}, which cannot be pinned"

    def _allowed(self, shard: int) -> list[int]:
        """Lengths that the shard may have: all that is committed, and whole parts of the rest."""
        least = sum(1 for place in self.committed if place[0] == shard)
        most = sum(1 for place in self.linked if place[0] == shard)
        lengths = [self.linked[shard, part] for part in range(most)]
        return [sum(lengths[:count]) for count in range(least, most + 1)]

    def lengths(self) -> dict[int, int]:
        """Of all shards, with everything that was linked."""
        found: dict[int, int] = {}
        for (shard, _), length in self.linked.items():
            found[shard] = found.get(shard, 0) + length
        return {shard: length for shard, length in found.items() if length}

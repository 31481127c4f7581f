"""A process that tries vectors, and says on its standard output what came of each.

Run as ``python child.py SORT FOLDER NUMBERS [SABOTAGE]``: the vectors of a file with these numbers
(`3,7,8`), in a folder that is there and empty, with the packages as they are or sabotaged. One
line of JSON for each vector, before and after it is tried: so whoever reads them knows which one
ended the process.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from hostile.good_datasets import bases, plant_canaries
from hostile.operations import all_outcomes, without_syncs
from hostile.sabotages import SABOTAGES
from hostile.vectors import Vector, read_vectors
from hostile.watching import Watch, peak_mib, reset_peak

LIMIT_SECONDS = 60
"""For all operations of one vector; then the process ends by a signal."""


def main(sort: str, folder: Path, numbers: set[int]) -> None:
    """Try vectors of one file."""
    without_syncs()
    watch = Watch()
    places = {base: Place(watch, base, folder / base) for base in bases()}
    for place in places.values():
        place.outcomes(Vector(place.name, {"name": "good", "manifest": True}))
    reset_peak()
    empty = peak_mib()
    for number, vector in enumerate(read_vectors(sort)):
        if number in numbers:
            _say(number=number, begun=vector.name)
            try:
                found = places[vector.base].outcomes(vector, empty)
            except PermissionError as error:  # not every user makes devices
                found = {"untried": str(error)}
            _say(number=number, **found)


class Place:
    """A folder for datasets of one base, one after the other, with canaries beside them."""

    def __init__(self, watch: Watch, name: str, folder: Path) -> None:
        folder.mkdir()
        self.name = name
        self._watch = watch
        self._base = bases()[name]
        self._dataset, self._outside = folder / "dataset", folder / "outside"
        self._canaries: dict[str, Any] = {}

    def outcomes(self, vector: Vector, empty_mib: float = 0.0) -> dict[str, Any]:
        """Make the dataset, do everything with it, and see what has become of it."""
        if not self._canaries:
            plant_canaries(self._outside, self._base)
            self._canaries = snapshot(self._outside)
        shutil.rmtree(self._dataset, ignore_errors=True)  # of a vector that was not tried
        self._base.write(self._dataset, manifest=vector.has_manifest)
        vector.apply(self._dataset, self._outside, self._base)
        os.chdir(self._dataset)  # a file that hostile code makes is seen there
        before, canaries = snapshot(self._dataset), snapshot(self._outside)
        links = bool(vector.facts.get("links"))
        signal.alarm(LIMIT_SECONDS)
        found = all_outcomes(
            self._watch, self.name, self._dataset, links_allowed=links, empty_mib=empty_mib
        )
        outcomes = [outcome.as_json() for outcome in found]
        signal.alarm(0)
        after, now = snapshot(self._dataset), snapshot(self._outside)
        os.chdir(self._outside.parent)
        shutil.rmtree(self._dataset)
        if now != self._canaries:
            shutil.rmtree(self._outside)
            self._canaries = {}
        return {
            "outcomes": outcomes,
            "changed": sorted(name for name in before if after.get(name) != before[name]),
            "made": sorted(set(after) - set(before)),
            "outside": sorted(name for name in canaries if now.get(name) != canaries[name]),
            "made_outside": sorted(set(now) - set(canaries)),
        }


def snapshot(folder: Path) -> dict[str, Any]:
    """Every file below: its content, or what it is."""
    found: dict[str, Any] = {}
    for parent, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(parent) / name
            facts = path.lstat()
            regular = path.is_file() and not path.is_symlink()
            small = regular and facts.st_size < 1 << 20
            content = path.read_bytes() if small else None
            found[str(path.relative_to(folder))] = (facts.st_mode, facts.st_size, content)
            if path.is_symlink():
                found[str(path.relative_to(folder))] = os.readlink(path)
            elif name in folders:
                found[str(path.relative_to(folder))] = "folder"
    return found


def _say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    SABOTAGES[sys.argv[4]]() if len(sys.argv) > 4 else None
    main(sys.argv[1], Path(sys.argv[2]), set(map(int, sys.argv[3].split(","))))

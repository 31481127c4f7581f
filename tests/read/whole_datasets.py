"""Small datasets with a file of every sort, and what every reader shows of one that is damaged.

Two manifest versions, a part that only its record has, the notes of a writer and of a running job,
and a decided job. Readers look at the newest state and at each version; writers, consolidation and
cleaning at the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from format.independent_writing import DATASET_ID, HandWriter, MadePart, seal
from guideloom_format import GuideLoomError
from guideloom_read import verify
from hostile.good_datasets import bases, contents, more_data, storage
from hostile.vectors import GOOD
from read.damage import Damage, Files, bits, damaged, read_files

KINDS = ("stream", "document", "stream-with-meta")
VERSIONS = (None, 1, 2)
NOT_OF_THE_DATA = ("owners/", "jobs/")
"""Who writes, and what was decided to be published: no reader looks at it."""
ADVICE = ("owners", "notes of jobs")
"""Sorts of files that no promise depends on, and that `verify` leaves alone."""

Shown = bytes | GuideLoomError


@dataclass
class Whole:
    """A dataset with a file of every sort."""

    kind: str
    directory: Path
    files: Files = field(init=False)
    right: dict[int | None, Shown] = field(init=False)

    def __post_init__(self) -> None:
        base = bases()[self.kind]
        writer = HandWriter.create(
            self.directory, base.kind, base.element_type, base.storage_format
        )
        parts = list(base.parts)
        last = parts[0]
        parts.append(MadePart(2, 0, last.length, last.contents))
        for part in parts:
            writer.data(part)
            writer.record(part)
        writer.manifest(parts[:1], 1)
        writer.manifest(parts[:3], 2)
        record = (self.directory / "commits/0000000-0000.json").read_text(encoding="ascii")
        self._note("owners/0000000.json", "owner")
        self._note("jobs/run.json", "job", records=[record])
        self._note("jobs/run.running", "running")
        self.files = read_files(self.directory)
        self.right = self.shown()
        assert not any(isinstance(shown, GuideLoomError) for shown in self.right.values())
        assert len(set(self.right.values())) == len(VERSIONS)
        assert not self.faults()

    def _note(self, name: str, sort: str, **more: Any) -> None:
        members = {"format": "guideloom", "type": sort, "dataset_id": DATASET_ID}
        (self.directory / name).parent.mkdir(exist_ok=True)
        (self.directory / name).write_bytes(seal(members | GOOD[sort] | more))

    def faults(self) -> list[str]:
        """What `verify` of everything says."""
        return [str(fault) for fault in verify(self.directory).faults]

    def shown(self) -> dict[int | None, Shown]:
        """What a reader of each version shows; None is the newest state."""
        return {version: self._shown(version) for version in VERSIONS}

    def _shown(self, version: int | None) -> Shown:
        try:
            with storage(self.kind, self.directory, version=version).sync_reader() as reader:
                return contents(self.kind, reader)
        except GuideLoomError as error:
            return error

    def written(self) -> list[GuideLoomError]:
        """Errors of what changes a dataset: a look at what is left, and the first append."""
        found = []
        for change in (self._listed, self._appended):
            try:
                change()
            except GuideLoomError as error:
                found.append(error)
        return found

    def _listed(self) -> None:
        storage(self.kind, self.directory).clean()

    def _appended(self) -> None:
        writer = storage(self.kind, self.directory).sync_writer(take_over=True).open()
        try:
            writer.append(0, more_data(self.kind))
        finally:
            writer.close()


@dataclass
class Tally:
    """What came of the damages of the files of one sort."""

    tried: int = 0
    found: int = 0
    right: int = 0
    other: int = 0

    def __str__(self) -> str:
        return (
            f"{self.tried} tried, {self.found} found by verify; readers: {self.right} right "
            f"everywhere, {self.other} with other data"
        )


def sort_of(name: str) -> str:
    """The sort of a file, for the table."""
    if name.startswith("data/"):
        return name.rpartition("/")[2].partition(".")[2]
    return "notes of jobs" if name.endswith(".running") else name.partition("/")[0]


def sweep(
    whole: Whole, chosen: Callable[[str, Iterator[Damage]], Iterator[Damage]]
) -> dict[str, Tally]:
    """Flip the chosen bits one by one; the first that is not handled as promised fails the test."""
    tallies: dict[str, Tally] = {}
    for name, data in whole.files.items():
        tally = tallies.setdefault(sort_of(name), Tally())
        for damage in chosen(name, bits({name: data})):
            with damaged(whole.directory, damage, whole.files):
                faults, shown = whole.faults(), whole.shown()
                if name.startswith(NOT_OF_THE_DATA):
                    whole.written()
            what = f"{name}, {damage.label}"
            tally.tried += 1
            tally.found += any(name in fault for fault in faults)
            wrong = {
                version
                for version, content in shown.items()
                if not isinstance(content, GuideLoomError) and content != whole.right[version]
            }
            tally.right += shown == whole.right
            tally.other += bool(wrong)
            if name.startswith(NOT_OF_THE_DATA):
                assert shown == whole.right, what
            if sort_of(name) in ADVICE:
                assert not faults, f"{what}: {faults}"
            else:
                assert any(name in fault for fault in faults), f"{what}: not found: {faults}"
            assert not wrong or _may_differ(name), f"{what}: other data of versions {wrong}"
    assert not whole.faults()
    assert whole.shown() == whole.right
    return tallies


def _may_differ(name: str) -> bool:
    """Readers do not look at checksums: what is damaged in a data file itself may show."""
    return name.startswith("data/") and not name.endswith(".crc")

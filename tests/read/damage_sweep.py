"""Every damage of a small dataset of any kind: what `verify` must say, and what a reader may show.

`verify` finds each damage, or the content is right all the same; the exceptions, where it has
nothing to find, are listed in `harmless`. Without `verify` a reader gives the right data or a
named error; what else it may show is for `Sample.check_wrong` to say.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom.types import IOReader
from guideloom_format import DatasetError, DatasetNotFoundError
from guideloom_read import verify
from read.damage import Damage, Files, damaged, read_files

PARTS = [(0, 0), (0, 1), (1, 0)]
"""The parts of a sample: two of one shard, and one of another; all of the same size."""

BACKENDS: list[IOReader] = [PosixPreadIO(), MmapIO(), SeekIO()]
other_backends = pytest.mark.parametrize("io", BACKENDS[1:], ids=lambda io: type(io).__name__)
SeenT = TypeVar("SeenT")


@dataclass
class Sample(ABC, Generic[SeenT]):
    """A dataset of the parts in `PARTS`, and what stands in it."""

    directory: Path
    whole: SeenT
    ios: tuple[IOReader, ...] = (PosixPreadIO(),)
    files: Files = field(init=False)

    def __post_init__(self) -> None:
        self.files = read_files(self.directory)
        self.has_manifest = "manifest.json" in self.files

    @abstractmethod
    def read_all(self, io: IOReader) -> SeenT:
        """All that a reader with this backend shows."""

    @abstractmethod
    def of_parts(self, *chosen: int) -> SeenT:
        """What is left if only these parts are there."""

    @abstractmethod
    def check_wrong(self, damage: Damage, seen: SeenT) -> None:
        """Something else than was written: whether this damage may show it."""

    def faults(self) -> list[str]:
        """What `verify` says, be it as a report or by an error."""
        try:
            report = verify(self.directory, self.ios[0])
        except DatasetError as error:
            return [str(error)]
        return [str(fault) for fault in report.faults]

    def read(self) -> list[SeenT | DatasetError]:
        """What each backend shows."""
        return [self._read(io) for io in self.ios]

    def _read(self, io: IOReader) -> SeenT | DatasetError:
        try:
            return self.read_all(io)
        except DatasetError as error:
            return error

    def check_whole(self) -> None:
        assert self.faults() == []
        assert self.read() == [self.whole] * len(self.ios)

    def files_in(self, folder: str) -> Files:
        return {name: data for name, data in self.files.items() if name.startswith(folder)}


@dataclass
class Tally:
    """How many damages were tried, how many were found, how many do not matter."""

    tried: int = 0
    found: int = 0
    harmless: int = 0
    wrong: int = 0

    def __str__(self) -> str:
        undetected = self.tried - self.found - self.harmless
        return (
            f"{self.tried} tried, {self.found} found, {self.harmless} without effect, "
            f"{undetected} undetected; without verify {self.wrong} gave something else"
        )


def what(damage: Damage) -> str:
    return f"{damage.label}, {', '.join(damage.contents)}"


def harmless(sample: Sample[SeenT], damage: Damage) -> SeenT | None:
    """What a reader must show where `verify` has nothing to find; None everywhere else.

    With a manifest, a missing record or a missing manifest is no loss. Without one, a missing last
    record of a shard shows the state before that commit, and no records an empty dataset.
    """
    names = set(damage.contents)
    if sample.has_manifest:
        gone = names == {"manifest.json"} and damage.label == "nothing"
        missing = damage.label in ("nothing", "an empty folder")
        records = all(name.startswith("commits") for name in names) and missing
        return sample.whole if gone or records else None
    left = {
        "commits/0000000-0001.json": (0, 2),
        "commits/0000001-0000.json": (0, 1),
        "commits": (),
    }
    name = next(iter(names))
    empty = damage.label == "an empty folder" and names == {"commits"}
    if name in left and (damage.label == "nothing" or empty):
        return sample.of_parts(*left[name])
    return None


def names_a_file(damage: Damage, faults: list[str]) -> bool:
    """Whether a fault says where to look: the damaged file, if it is a single one.

    A missing record shows only by the part that follows, and an intact header of another dataset
    only by everything else.
    """
    text = "\n".join(faults)
    if len(damage.contents) > 1 or damage.label.endswith("of another dataset"):
        return re.search(r"(data/0000|commits)/000000[01]-000[01]|manifest\.json", text) is not None
    name = next(iter(damage.contents))
    return name in text or (
        damage.label == "nothing"
        and "shard 0 has part 1 where part 0 is expected" in text
        and name == "commits/0000000-0000.json"
    )


def sweep(kind: str, sample: Sample[SeenT], damages: Iterable[Damage]) -> Tally:
    """Try each damage; the first that is not handled as promised fails the test."""
    tally = Tally()
    for damage in damages:
        with damaged(sample.directory, damage, sample.files):
            faults = sample.faults()
            all_seen = sample.read()
        tally.tried += 1
        if faults:
            tally.found += 1
            assert names_a_file(damage, faults), f"{what(damage)}: no file is named in {faults}"
            others = [seen for seen in all_seen if not isinstance(seen, DatasetError)]
            others = [seen for seen in others if seen != sample.whole]
            for seen in others:
                sample.check_wrong(damage, seen)
            tally.wrong += bool(others)
        else:
            expected = harmless(sample, damage)
            assert expected is not None, f"{what(damage)}: verify found nothing"
            right = all(seen == expected for seen in all_seen)
            assert right, f"{what(damage)}: verify found nothing, and the content is wrong"
            tally.harmless += 1
    sample.check_whole()
    print(f"{kind}: {tally}")
    assert tally.tried == tally.found + tally.harmless > 0
    return tally


def check_needs_header(sample: Sample[SeenT]) -> None:
    """Without its header there is no dataset."""
    (sample.directory / "guideloom.json").unlink()
    for call in (lambda: sample.read_all(PosixPreadIO()), lambda: verify(sample.directory)):
        with pytest.raises(DatasetNotFoundError, match=r"the file guideloom\.json is not there"):
            call()

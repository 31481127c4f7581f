"""Every damage of a small dataset: `verify` finds it, or the content is right all the same.

Without `verify` a reader gives the right data or a named error, and wrong values only where the
bytes of elements themselves were changed. The exceptions, where `verify` has nothing to find, are
listed in `harmless`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom.types import IOReader
from guideloom_format import (
    DatasetError,
    DatasetNotFoundError,
    Manifest,
    StreamNumpyFormat,
    StreamStorage,
)
from guideloom_read import verify
from guideloom_read._contents import read_contents, read_header
from read.damage import (
    Damage,
    bits,
    damaged,
    exchanged_files,
    extensions,
    foreign_files,
    other_things,
    other_things_for_folders,
    read_files,
    swapped_blocks,
    truncations,
    zeroed_blocks,
)

ELEMENT = np.dtype([("token", "<u4"), ("mask", "?"), ("kind", "<u4")])
LENGTH = 114
PARTS = [(0, 0), (0, 1), (1, 0)]


@dataclass
class Sample:
    """A dataset of two shards and three parts of equal size, and what stands in it."""

    directory: Path
    content: bytes
    io: IOReader = field(default_factory=PosixPreadIO)

    def __post_init__(self) -> None:
        self.files = read_files(self.directory)
        self.has_manifest = "manifest.json" in self.files

    @property
    def storage(self) -> StreamStorage:
        return StreamStorage(self.directory, StreamNumpyFormat(ELEMENT), self.io)

    def faults(self) -> list[str]:
        """What `verify` says, be it as a report or by an error."""
        try:
            report = verify(self.directory, self.io)
        except DatasetError as error:
            return [str(error)]
        return [str(fault) for fault in report.faults]

    def read(self) -> bytes | DatasetError:
        """All elements, or the error."""
        try:
            with self.storage.sync_reader() as reader:
                return reader.elements(np.array([0]), len(reader), 1).tobytes()
        except DatasetError as error:
            return error


def write_sample(directory: Path, seed: int, *, manifest: bool) -> Sample:
    rng = np.random.default_rng(seed)
    storage = StreamStorage(directory, StreamNumpyFormat(ELEMENT))
    content = {}
    for part in (0, 1):
        with storage.sync_writer() as writer:
            for shard in [shard for shard, number in PARTS if number == part]:
                values = np.frombuffer(rng.bytes(LENGTH * ELEMENT.itemsize), ELEMENT).copy()
                values["mask"] = rng.random(LENGTH) < 0.5
                writer.append(shard, {name: values[name] for name in ELEMENT.names or ()})
                content[shard, part] = values.tobytes()
    if manifest:
        session = PosixPreadIO().open(str(directory))
        header = read_header(session, str(directory))
        table = read_contents(session, str(directory), header).table
        (directory / "manifest.json").write_bytes(Manifest(header.dataset_id, 1, table).encode())
    return Sample(directory, b"".join(content[place] for place in PARTS))


@dataclass
class Tally:
    """How many damages were tried, how many were found, how many do not matter."""

    tried: int = 0
    found: int = 0
    harmless: int = 0

    def __str__(self) -> str:
        undetected = self.tried - self.found - self.harmless
        return (
            f"{self.tried} tried, {self.found} found, {self.harmless} without effect, "
            f"{undetected} undetected"
        )


def harmless(sample: Sample, damage: Damage) -> bytes | None:
    """What a reader must show where `verify` has nothing to find; None everywhere else.

    With a manifest, records are not read and a missing manifest is no loss. Without one, a missing
    last record of a shard shows the state before that commit, and no records an empty dataset.
    """
    names = set(damage.contents)
    part = LENGTH * ELEMENT.itemsize
    if sample.has_manifest:
        if all(name.startswith("commits") for name in names) and damage.label != "a file":
            return sample.content
        return sample.content if names == {"manifest.json"} and damage.label == "nothing" else None
    if damage.label == "nothing" or damage.label == "an empty folder":
        left = {
            "commits/0000000-0001.json": sample.content[:part] + sample.content[2 * part :],
            "commits/0000001-0000.json": sample.content[: 2 * part],
            "commits": b"",
        }
        if damage.label == "nothing" or names == {"commits"}:
            return left.get(next(iter(names)))
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


def sweep(sample: Sample, damages: Iterable[Damage]) -> Tally:
    """Try each damage; the first that is not handled as promised fails the test."""
    tally = Tally()
    for damage in damages:
        with damaged(sample.directory, damage, sample.files):
            faults = sample.faults()
            seen = sample.read()
        what = f"{damage.label}, {', '.join(damage.contents)}"
        tally.tried += 1
        if faults:
            tally.found += 1
            assert names_a_file(damage, faults), f"{what}: no file is named in {faults}"
        else:
            expected = harmless(sample, damage)
            assert expected is not None, f"{what}: verify found nothing"
            assert seen == expected, f"{what}: verify found nothing, and the content is wrong"
            tally.harmless += 1
        if isinstance(seen, bytes) and faults and seen != sample.content:
            touched = [name for name in damage.contents if name.endswith(".elements")]
            assert touched, f"{what}: wrong values from elements that were not damaged"
            assert len(seen) == len(sample.content), what
    assert sample.faults() == []
    assert sample.read() == sample.content
    return tally


@pytest.fixture(params=[False, True], ids=["records", "manifest"])
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Sample:
    return write_sample(tmp_path / "x", seed=1, manifest=request.param)


@pytest.fixture(params=[PosixPreadIO(), MmapIO(), SeekIO()], ids=lambda io: type(io).__name__)
def sample_by_backend(request: pytest.FixtureRequest, sample: Sample) -> Sample:
    return Sample(sample.directory, sample.content, request.param)


def report(kind: str, tally: Tally) -> None:
    print(f"{kind}: {tally}")
    assert tally.tried == tally.found + tally.harmless > 0


def test_the_sample_is_small_and_whole(sample: Sample) -> None:
    """Each role is there, and parts of equal size make the swaps hard to see."""
    sizes = [len(data) for name, data in sample.files.items() if name.endswith(".elements")]
    assert sizes == [LENGTH * ELEMENT.itemsize] * 3
    assert len(sample.files) == 10 + sample.has_manifest
    assert sum(map(len, sample.files.values())) < 8192
    assert sample.faults() == []
    assert sample.read() == sample.content


def test_every_bit(sample: Sample) -> None:
    tally = sweep(sample, bits(sample.files))
    report("single bits", tally)
    assert tally.tried == 8 * sum(map(len, sample.files.values()))
    records = sum(len(data) for name, data in sample.files.items() if name.startswith("commits"))
    assert tally.harmless == (8 * records if sample.has_manifest else 0)


@pytest.mark.parametrize("io", [MmapIO(), SeekIO()], ids=lambda io: type(io).__name__)
def test_a_bit_of_every_byte_with_other_backends(io: IOReader, tmp_path: Path) -> None:
    sample = write_sample(tmp_path / "x", seed=2, manifest=False)
    one_per_byte = (damage for k, damage in enumerate(bits(sample.files)) if k % 8 == k // 8 % 8)
    tally = sweep(Sample(sample.directory, sample.content, io), one_per_byte)
    report(f"bits, {type(io).__name__}", tally)
    assert tally.tried == sum(map(len, sample.files.values()))
    assert tally.harmless == 0


def test_every_truncation(sample: Sample) -> None:
    tally = sweep(sample, truncations(sample.files))
    report("truncations", tally)
    assert tally.tried == sum(map(len, sample.files.values()))


def test_extensions(sample_by_backend: Sample) -> None:
    report("extensions", sweep(sample_by_backend, extensions(sample_by_backend.files)))


def test_blocks_of_zeros_or_ones(sample_by_backend: Sample) -> None:
    report("blocks", sweep(sample_by_backend, zeroed_blocks(sample_by_backend.files)))


def test_swapped_blocks(sample_by_backend: Sample) -> None:
    tally = sweep(sample_by_backend, swapped_blocks(sample_by_backend.files))
    report("swapped blocks", tally)
    assert tally.tried >= 20


def test_files_of_other_parts(sample_by_backend: Sample) -> None:
    tally = sweep(sample_by_backend, exchanged_files(sample_by_backend.files))
    report("exchanged files", tally)
    assert tally.tried == 4 * 9


def test_files_of_another_dataset(sample_by_backend: Sample, tmp_path: Path) -> None:
    other = write_sample(tmp_path / "y", seed=3, manifest=sample_by_backend.has_manifest)
    tally = sweep(sample_by_backend, foreign_files(sample_by_backend.files, other.files))
    report("files of another dataset", tally)


def test_things_that_are_not_regular_files(sample_by_backend: Sample, tmp_path: Path) -> None:
    (tmp_path / "aside").mkdir()
    sample = sample_by_backend
    report("other things", sweep(sample, other_things(sample.files, tmp_path / "aside")))


def test_folders_that_are_gone_or_files(sample_by_backend: Sample) -> None:
    report("folders", sweep(sample_by_backend, other_things_for_folders()))


def test_without_its_header_there_is_no_dataset(sample: Sample) -> None:
    (sample.directory / "guideloom.json").unlink()
    for call in (sample.storage.sync_reader().open, lambda: verify(sample.directory)):
        with pytest.raises(DatasetNotFoundError, match=r"the file guideloom\.json is not there"):
            call()

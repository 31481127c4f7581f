"""Every damage of a small dataset of documents: `verify` finds it, or it does not matter.

Without `verify` a reader gives the right documents or a named error. Wrong ones come only from
files of documents and of ends that were changed themselves: changed bytes in their right place,
or the right bytes cut elsewhere, and never anything from outside the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom.types import IOReader
from guideloom_format import (
    DatasetError,
    DatasetNotFoundError,
    DocumentNumpyFormat,
    DocumentStorage,
)
from guideloom_read import verify
from guideloom_write import DocumentWriter
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
from read.stream_cases import consolidate
from write.faulty_files import Watched

FORMAT = DocumentNumpyFormat("<u2")
COUNT = 9
VALUES = 80
PARTS = [(0, 0), (0, 1), (1, 0)]
ROLES = ("documents", "documents.crc", "ends", "ends.crc")


class Seen(NamedTuple):
    """All documents: their bytes one behind the other, and where each ends."""

    content: bytes
    ends: tuple[int, ...]

    def of_parts(self, *chosen: int) -> Seen:
        """The documents of these parts of the sample."""
        starts = [0, *self.ends]
        content, ends = b"", []
        for part in chosen:
            for k in range(part * COUNT, (part + 1) * COUNT):
                content += self.content[2 * starts[k] : 2 * starts[k + 1]]
                ends.append(len(content) // 2)
        return Seen(content, tuple(ends))


@dataclass
class Sample:
    """A dataset of two shards and three parts with as many documents and bytes each."""

    directory: Path
    whole: Seen
    io: IOReader = field(default_factory=PosixPreadIO)

    def __post_init__(self) -> None:
        self.files = read_files(self.directory)
        self.has_manifest = "manifest.json" in self.files

    @property
    def storage(self) -> DocumentStorage:
        return DocumentStorage(self.directory, FORMAT, self.io)

    def faults(self) -> list[str]:
        """What `verify` says, be it as a report or by an error."""
        try:
            report = verify(self.directory, self.io)
        except DatasetError as error:
            return [str(error)]
        return [str(fault) for fault in report.faults]

    def read(self) -> Seen | DatasetError:
        """All documents, or the error."""
        try:
            with self.storage.sync_reader() as reader:
                ragged = reader.gather(np.arange(len(reader)))
                return Seen(ragged.values.tobytes(), tuple(ragged.offsets.tolist()[1:]))
        except DatasetError as error:
            return error


def write_sample(directory: Path, seed: int, *, manifest: bool) -> Sample:
    rng = np.random.default_rng(seed)
    storage = DocumentStorage(directory, FORMAT)
    documents = {}
    for part in (0, 1):
        with DocumentWriter(storage, files=Watched()) as writer:
            for shard in [shard for shard, number in PARTS if number == part]:
                cuts = np.sort(rng.integers(0, VALUES + 1, COUNT - 2))
                values = rng.integers(1, 65536, VALUES).astype("<u2")
                documents[shard, part] = [*np.split(values, cuts), values[:0]]
                writer.extend(shard, documents[shard, part])
    if manifest:
        consolidate(directory)
    in_order = [document for place in PARTS for document in documents[place]]
    ends = np.cumsum([document.size for document in in_order]).tolist()
    return Sample(directory, Seen(b"".join(one.tobytes() for one in in_order), tuple(ends)))


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
            f"{undetected} undetected; without verify {self.wrong} gave other documents"
        )


def harmless(sample: Sample, damage: Damage) -> Seen | None:
    """What a reader must show where `verify` has nothing to find; None everywhere else.

    With a manifest, records are not read and a missing manifest is no loss. Without one, a missing
    last record of a shard shows the state before that commit, and no records an empty dataset.
    """
    names = set(damage.contents)
    if sample.has_manifest:
        if all(name.startswith("commits") for name in names) and damage.label != "a file":
            return sample.whole
        return sample.whole if names == {"manifest.json"} and damage.label == "nothing" else None
    left = {
        "commits/0000000-0001.json": sample.whole.of_parts(0, 2),
        "commits/0000001-0000.json": sample.whole.of_parts(0, 1),
        "commits": Seen(b"", ()),
    }
    if damage.label == "nothing" or (damage.label == "an empty folder" and names == {"commits"}):
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


def check_wrong_documents(sample: Sample, damage: Damage, seen: Seen) -> None:
    """Other documents than those that were written: only from their own damaged files."""
    what = f"{damage.label}, {', '.join(damage.contents)}"
    touched = [name for name in damage.contents if name.endswith((".documents", ".ends"))]
    assert touched, f"{what}: wrong documents from files that were not damaged"
    assert len(seen.ends) == len(sample.whole.ends), what
    assert len(seen.content) == len(sample.whole.content), what
    if not any(name.endswith(".documents") for name in touched):
        assert seen.content == sample.whole.content, f"{what}: bytes changed"
    if not any(name.endswith(".ends") for name in touched):
        assert seen.ends == sample.whole.ends, f"{what}: ends changed"


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
        if isinstance(seen, Seen) and faults and seen != sample.whole:
            check_wrong_documents(sample, damage, seen)
            tally.wrong += 1
    assert sample.faults() == []
    assert sample.read() == sample.whole
    return tally


@pytest.fixture(params=[False, True], ids=["records", "manifest"])
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Sample:
    return write_sample(tmp_path / "x", seed=1, manifest=request.param)


@pytest.fixture(params=[PosixPreadIO(), MmapIO(), SeekIO()], ids=lambda io: type(io).__name__)
def sample_by_backend(request: pytest.FixtureRequest, sample: Sample) -> Sample:
    return Sample(sample.directory, sample.whole, request.param)


def report(kind: str, tally: Tally) -> None:
    print(f"{kind}: {tally}")
    assert tally.tried == tally.found + tally.harmless > 0


def test_the_sample_is_small_and_whole(sample: Sample) -> None:
    """Each role is there, and parts of equal size make the swaps hard to see."""
    for role, size in zip(ROLES, (2 * VALUES, 4, 8 * COUNT, 4), strict=True):
        found = [len(data) for name, data in sample.files.items() if name.endswith(f".{role}")]
        assert found == [size] * 3
    assert len(sample.files) == 1 + 3 * 5 + sample.has_manifest
    assert sum(map(len, sample.files.values())) < 8192
    assert sample.faults() == []
    assert sample.read() == sample.whole
    assert len(sample.whole.ends) == 3 * COUNT


def test_every_bit(tmp_path: Path) -> None:
    sample = write_sample(tmp_path / "x", seed=1, manifest=False)
    tally = sweep(sample, bits(sample.files))
    report("single bits", tally)
    assert tally.tried == 8 * sum(map(len, sample.files.values()))
    assert tally.harmless == 0
    assert tally.wrong > 8 * 3 * 2 * VALUES - 100, "the readers look at the checksums"


def test_every_bit_of_a_manifest(tmp_path: Path) -> None:
    sample = write_sample(tmp_path / "x", seed=1, manifest=True)
    tally = sweep(sample, bits({"manifest.json": sample.files["manifest.json"]}))
    report("single bits of the manifest", tally)
    assert tally.found == tally.tried == 8 * len(sample.files["manifest.json"])


@pytest.mark.parametrize("io", [MmapIO(), SeekIO()], ids=lambda io: type(io).__name__)
def test_a_bit_of_every_byte_with_other_backends(io: IOReader, tmp_path: Path) -> None:
    sample = write_sample(tmp_path / "x", seed=2, manifest=False)
    one_per_byte = (damage for k, damage in enumerate(bits(sample.files)) if k % 8 == k // 8 % 8)
    tally = sweep(Sample(sample.directory, sample.whole, io), one_per_byte)
    report(f"bits, {type(io).__name__}", tally)
    assert tally.tried == sum(map(len, sample.files.values()))
    assert tally.harmless == 0


def test_every_truncation(sample: Sample) -> None:
    tally = sweep(sample, truncations(sample.files))
    report("truncations", tally)
    assert tally.tried == sum(map(len, sample.files.values()))
    assert tally.wrong == 0


def test_extensions(sample_by_backend: Sample) -> None:
    tally = sweep(sample_by_backend, extensions(sample_by_backend.files))
    report("extensions", tally)
    assert tally.wrong == 0


def test_blocks_of_zeros_or_ones(sample_by_backend: Sample) -> None:
    report("blocks", sweep(sample_by_backend, zeroed_blocks(sample_by_backend.files)))


def test_swapped_blocks(sample_by_backend: Sample) -> None:
    tally = sweep(sample_by_backend, swapped_blocks(sample_by_backend.files))
    report("swapped blocks", tally)
    assert tally.tried >= 20


def test_files_of_other_parts(sample_by_backend: Sample) -> None:
    """Each of the four files, data with its checksums, and all four together."""
    tally = sweep(sample_by_backend, exchanged_files(sample_by_backend.files))
    report("exchanged files", tally)
    assert tally.tried == 9 * (len(ROLES) + 2 + 1 + 1)


def test_files_of_another_dataset(sample_by_backend: Sample, tmp_path: Path) -> None:
    other = write_sample(tmp_path / "y", seed=3, manifest=sample_by_backend.has_manifest)
    tally = sweep(sample_by_backend, foreign_files(sample_by_backend.files, other.files))
    report("files of another dataset", tally)


def test_things_that_are_not_regular_files(sample_by_backend: Sample, tmp_path: Path) -> None:
    (tmp_path / "aside").mkdir()
    sample = sample_by_backend
    tally = sweep(sample, other_things(sample.files, tmp_path / "aside"))
    report("other things", tally)
    assert tally.wrong == 0


def test_folders_that_are_gone_or_files(sample_by_backend: Sample) -> None:
    report("folders", sweep(sample_by_backend, other_things_for_folders()))


def test_without_its_header_there_is_no_dataset(sample: Sample) -> None:
    (sample.directory / "guideloom.json").unlink()
    for call in (sample.storage.sync_reader().open, lambda: verify(sample.directory)):
        with pytest.raises(DatasetNotFoundError, match=r"the file guideloom\.json is not there"):
            call()

"""Every damage of a small stream with metadata: `verify` finds it, or it does not matter.

Without `verify` a reader gives the right windows or a named error. Wrong ones come only from data
files that were changed themselves: other elements from files of elements, other borders from files
of spans, other payloads from those or from files of payloads, and never what does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from guideloom import StreamDataset
from guideloom.io import MmapIO, PosixPreadIO
from guideloom.types import IOReader
from guideloom_format import (
    DatasetError,
    DatasetNotFoundError,
    DocumentBytesFormat,
    StreamSpansFormat,
    StreamWithMetaStorage,
)
from guideloom_read import verify
from guideloom_write import StreamWithMetaWriter
from read.damage import (
    Damage,
    Files,
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

FORMAT = StreamSpansFormat("<u2", DocumentBytesFormat())
PARTS = [(0, 0), (0, 1), (1, 0)]
COUNTS = [3, 0, 1, 4]
SIZES = [5, 2, 0, 6]
LENGTH, PAYLOADS = sum(COUNTS), sum(SIZES)
ROLES = ["elements", "spans", "payloads"]


class Seen(NamedTuple):
    """All elements, and of every span that has any: its number, elements and payload."""

    elements: bytes
    spans: tuple[tuple[int, int, bytes], ...]

    def borders(self) -> list[tuple[int, int]]:
        return [(number, count) for number, count, _ in self.spans]

    def of_parts(self, *chosen: int) -> Seen:
        """What is left if these parts of the sample are there."""
        size, touched = 2 * LENGTH, sum(count > 0 for count in COUNTS)
        content, spans = b"", list[tuple[int, int, bytes]]()
        for place, part in enumerate(chosen):
            content += self.elements[part * size : (part + 1) * size]
            spans += [
                (number + (place - part) * len(COUNTS), count, payload)
                for number, count, payload in self.spans[part * touched : (part + 1) * touched]
            ]
        return Seen(content, tuple(spans))


@dataclass
class Sample:
    """A dataset of two shards and three parts with as many elements, spans and bytes each."""

    directory: Path
    whole: Seen
    ios: tuple[IOReader, ...] = (PosixPreadIO(), MmapIO())
    files: Files = field(init=False)

    def __post_init__(self) -> None:
        self.files = read_files(self.directory)
        self.has_manifest = "manifest.json" in self.files

    def faults(self) -> list[str]:
        """What `verify` says, be it as a report or by an error."""
        try:
            report = verify(self.directory, self.ios[0])
        except DatasetError as error:
            return [str(error)]
        return [str(fault) for fault in report.faults]

    def read(self) -> list[Seen | DatasetError]:
        """What each backend shows."""
        return [self._read(io) for io in self.ios]

    def _read(self, io: IOReader) -> Seen | DatasetError:
        """All of it in one window and in many small ones, or the error."""
        storage = StreamWithMetaStorage(self.directory, FORMAT, io)
        try:
            with storage.sync_reader() as reader:
                total = len(reader)
            seen = _windows(storage, max(total, 1), total)
            for length in (1, 5):
                parts = _windows(storage, length, total - total % length)
                assert parts.elements == seen.elements[: len(parts.elements)]
                assert set(parts.spans) <= {(k, n, p) for k, _, p in seen.spans for n in range(9)}
        except DatasetError as error:
            return error
        return seen


def _windows(storage: StreamWithMetaStorage, length: int, total: int) -> Seen:
    """The first elements, read in windows of this length; pieces of a span put together."""
    with StreamDataset(storage, length).sync_reader() as reader:
        batch = reader.gather(np.arange(total // length))
    ids = batch.document_ids().reshape(-1)
    assert np.all(np.diff(ids) >= 0)
    payloads = [bytes(payload) for payload in batch.payloads.arrays()]
    of_span = dict(zip(batch.spans.tolist(), batch.payload_index.tolist(), strict=True))
    numbers, counts = np.unique(ids, return_counts=True)
    spans = [
        (number, count, payloads[of_span[number]])
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
    ]
    return Seen(batch.stream.tobytes(), tuple(spans))


def write_sample(directory: Path, seed: int, *, manifest: bool) -> Sample:
    rng = np.random.default_rng(seed)
    storage = StreamWithMetaStorage(directory, FORMAT)
    content = {}
    for part in (0, 1):
        with StreamWithMetaWriter(storage, files=Watched()) as writer:
            for shard in [shard for shard, number in PARTS if number == part]:
                order = rng.permutation(len(COUNTS)).tolist()
                elements = rng.integers(1, 65536, LENGTH).astype("<u2")
                spans = [(COUNTS[k], rng.bytes(SIZES[k])) for k in order]
                counts, payloads = zip(*spans, strict=True)
                writer.append(shard, (elements, counts, payloads))
                content[shard, part] = (elements.tobytes(), spans)
    if manifest:
        consolidate(directory)
    spans = [span for place in PARTS for span in content[place][1]]
    touched = [(k, count, payload) for k, (count, payload) in enumerate(spans) if count]
    return Sample(directory, Seen(b"".join(content[place][0] for place in PARTS), tuple(touched)))


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


def harmless(sample: Sample, damage: Damage) -> Seen | None:
    """What a reader must show where `verify` has nothing to find; None everywhere else.

    With a manifest, records are not read and a missing manifest is no loss. Without one, a missing
    last record of a shard shows the state before that commit, and no records an empty dataset.
    """
    names = set(damage.contents)
    if sample.has_manifest:
        gone = names == {"manifest.json"} and damage.label == "nothing"
        records = all(name.startswith("commits") for name in names) and damage.label != "a file"
        return sample.whole if gone or records else None
    left = {
        "commits/0000000-0001.json": sample.whole.of_parts(0, 2),
        "commits/0000001-0000.json": sample.whole.of_parts(0, 1),
        "commits": Seen(b"", ()),
    }
    if damage.label == "nothing" or (damage.label == "an empty folder" and names == {"commits"}):
        return left.get(next(iter(names)))
    return None


def names_a_file(damage: Damage, faults: list[str]) -> bool:
    """Whether a fault says where to look: the damaged file, if it is a single one."""
    text = "\n".join(faults)
    if len(damage.contents) > 1 or damage.label.endswith("of another dataset"):
        return re.search(r"(data/0000|commits)/000000[01]-000[01]|manifest\.json", text) is not None
    name = next(iter(damage.contents))
    gap = "shard 0 has part 1 where part 0 is expected" in text
    return name in text or (gap and name == "commits/0000000-0000.json")


def check_wrong(sample: Sample, damage: Damage, seen: Seen) -> None:
    """Something else than was written: only from damaged data files, and it still fits."""
    what = f"{damage.label}, {', '.join(damage.contents)}"
    touched = {role for role in ROLES for name in damage.contents if name.endswith(f".{role}")}
    assert len(seen.elements) == len(sample.whole.elements), what
    assert sum(count for _, count in seen.borders()) == len(PARTS) * LENGTH, what
    assert all(0 <= number < len(PARTS) * len(COUNTS) for number, _ in seen.borders()), what
    if "elements" not in touched:
        assert seen.elements == sample.whole.elements, f"{what}: elements changed"
    if "spans" not in touched:
        assert seen.borders() == sample.whole.borders(), f"{what}: borders changed"
        if "payloads" not in touched:
            assert seen.spans == sample.whole.spans, f"{what}: payloads changed"


def sweep(sample: Sample, damages: Iterable[Damage]) -> Tally:
    """Try each damage; the first that is not handled as promised fails the test."""
    tally = Tally()
    for damage in damages:
        with damaged(sample.directory, damage, sample.files):
            faults = sample.faults()
            all_seen = sample.read()
        what = f"{damage.label}, {', '.join(damage.contents)}"
        tally.tried += 1
        if faults:
            tally.found += 1
            assert names_a_file(damage, faults), f"{what}: no file is named in {faults}"
            others = [seen for seen in all_seen if isinstance(seen, Seen) and seen != sample.whole]
            for seen in others:
                check_wrong(sample, damage, seen)
            tally.wrong += bool(others)
        else:
            expected = harmless(sample, damage)
            assert expected is not None, f"{what}: verify found nothing"
            right = all(seen == expected for seen in all_seen)
            assert right, f"{what}: verify found nothing, and the content is wrong"
            tally.harmless += 1
    assert sample.faults() == []
    assert sample.read() == [sample.whole] * len(sample.ios)
    return tally


@pytest.fixture(params=[False, True], ids=["records", "manifest"])
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Sample:
    return write_sample(tmp_path / "x", seed=1, manifest=request.param)


def report(kind: str, tally: Tally) -> None:
    print(f"{kind}: {tally}")
    assert tally.tried == tally.found + tally.harmless > 0


def data_of(sample: Sample) -> Files:
    return {name: data for name, data in sample.files.items() if name.startswith("data/")}


def test_the_sample_is_small_and_whole(sample: Sample) -> None:
    """Each role is there, and parts of equal size make the swaps hard to see."""
    for role, size in zip(ROLES, (2 * LENGTH, 16 * len(COUNTS), PAYLOADS), strict=True):
        for name, expected in ((role, size), (f"{role}.crc", 4)):
            found = [len(data) for file, data in sample.files.items() if file.endswith(f".{name}")]
            assert found == [expected] * 3
    assert len(sample.files) == 1 + 3 * 7 + sample.has_manifest
    assert sum(map(len, sample.files.values())) < 8192
    assert sample.faults() == []
    assert sample.read() == [sample.whole] * 2
    assert len(sample.whole.spans) == 3 * sum(count > 0 for count in COUNTS)


def test_every_bit_of_the_data(tmp_path: Path) -> None:
    """Verify finds each one, whatever the backends show."""
    sample = write_sample(tmp_path / "x", seed=1, manifest=False)
    tally = sweep(sample, bits(data_of(sample)))
    report("single bits of data files", tally)
    assert tally.tried == tally.found == 8 * sum(map(len, data_of(sample).values()))
    assert tally.wrong > 8 * 3 * 2 * LENGTH, "the readers look at the checksums"


def test_every_bit_of_header_and_records(tmp_path: Path) -> None:
    sample = write_sample(tmp_path / "x", seed=2, manifest=False)
    sample = Sample(sample.directory, sample.whole, (PosixPreadIO(),))
    others = {name: data for name, data in sample.files.items() if name not in data_of(sample)}
    tally = sweep(sample, bits(others))
    report("single bits of header and records", tally)
    assert tally.tried == tally.found == 8 * sum(map(len, others.values()))
    assert tally.wrong == 0


def test_every_truncation(tmp_path: Path) -> None:
    sample = write_sample(tmp_path / "x", seed=1, manifest=False)
    tally = sweep(sample, truncations(sample.files))
    report("truncations", tally)
    assert tally.tried == tally.found == sum(map(len, sample.files.values()))
    assert tally.wrong == 0


def test_extensions(sample: Sample) -> None:
    tally = sweep(sample, extensions(sample.files))
    report("extensions", tally)
    assert tally.wrong == 0


def test_blocks_of_zeros_or_ones(sample: Sample) -> None:
    report("blocks", sweep(sample, zeroed_blocks(sample.files)))


def test_swapped_blocks(sample: Sample) -> None:
    tally = sweep(sample, swapped_blocks(sample.files))
    report("swapped blocks", tally)
    assert tally.tried >= 40


def test_files_of_other_parts(sample: Sample) -> None:
    """Each of the six files, data with its checksums, and all six together."""
    tally = sweep(sample, exchanged_files(sample.files))
    report("exchanged files", tally)
    assert tally.tried >= 9 * (2 * len(ROLES) + len(ROLES) + 1)


def test_files_of_another_dataset(sample: Sample, tmp_path: Path) -> None:
    other = write_sample(tmp_path / "y", seed=3, manifest=sample.has_manifest)
    report("files of another dataset", sweep(sample, foreign_files(sample.files, other.files)))


def test_things_that_are_not_regular_files(sample: Sample, tmp_path: Path) -> None:
    (tmp_path / "aside").mkdir()
    tally = sweep(sample, other_things(sample.files, tmp_path / "aside"))
    report("other things", tally)
    assert tally.wrong == 0


def test_folders_that_are_gone_or_files(sample: Sample) -> None:
    report("folders", sweep(sample, other_things_for_folders()))


def test_without_its_header_there_is_no_dataset(sample: Sample) -> None:
    (sample.directory / "guideloom.json").unlink()
    storage = StreamWithMetaStorage(sample.directory, FORMAT)
    for call in (storage.sync_reader().open, lambda: verify(sample.directory)):
        with pytest.raises(DatasetNotFoundError, match=r"the file guideloom\.json is not there"):
            call()

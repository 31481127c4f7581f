"""Every damage of a small stream with metadata: `verify` finds it, or it does not matter.

Without `verify` a reader gives the right windows or a named error. Wrong ones come only from data
files that were changed themselves: other elements from files of elements, other borders from files
of spans, other payloads from those or from files of payloads, and never what does not fit.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from guideloom import StreamDataset
from guideloom.io import MmapIO, PosixPreadIO
from guideloom.types import IOReader
from guideloom_format import (
    DocumentBytesFormat,
    StreamSpansFormat,
    StreamWithMetaStorage,
)
from guideloom_write import StreamWithMetaWriter
from read.damage import (
    Damage,
    bits,
    exchanged_files,
    extensions,
    foreign_files,
    other_things,
    other_things_for_folders,
    swapped_blocks,
    truncations,
    zeroed_blocks,
)
from read.damage_sweep import (
    PARTS,
    Sample,
    check_needs_header,
    sweep,
    what,
)
from read.stream_cases import consolidate
from write.faulty_files import Watched

FORMAT = StreamSpansFormat("<u2", DocumentBytesFormat())
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


class Spans(Sample[Seen]):
    """A dataset of two shards and three parts with as many elements, spans and bytes each."""

    def read_all(self, io: IOReader) -> Seen:
        """In one window and in many small ones."""
        storage = StreamWithMetaStorage(self.directory, FORMAT, io)
        with storage.sync_reader() as reader:
            total = len(reader)
        seen = _windows(storage, max(total, 1), total)
        for length in (1, 5):
            parts = _windows(storage, length, total - total % length)
            assert parts.elements == seen.elements[: len(parts.elements)]
            assert set(parts.spans) <= {(k, n, p) for k, _, p in seen.spans for n in range(9)}
        return seen

    def of_parts(self, *chosen: int) -> Seen:
        size, touched = 2 * LENGTH, sum(count > 0 for count in COUNTS)
        content, spans = b"", list[tuple[int, int, bytes]]()
        for place, part in enumerate(chosen):
            content += self.whole.elements[part * size : (part + 1) * size]
            spans += [
                (number + (place - part) * len(COUNTS), count, payload)
                for number, count, payload in self.whole.spans[
                    part * touched : (part + 1) * touched
                ]
            ]
        return Seen(content, tuple(spans))

    def check_wrong(self, damage: Damage, seen: Seen) -> None:
        """Something else than was written: only from damaged data files, and it still fits."""
        touched = {role for role in ROLES for name in damage.contents if name.endswith(f".{role}")}
        assert len(seen.elements) == len(self.whole.elements), what(damage)
        assert sum(count for _, count in seen.borders()) == len(PARTS) * LENGTH, what(damage)
        numbers = [number for number, _ in seen.borders()]
        assert all(0 <= number < len(PARTS) * len(COUNTS) for number in numbers), what(damage)
        if "elements" not in touched:
            assert seen.elements == self.whole.elements, f"{what(damage)}: elements changed"
        if "spans" not in touched:
            assert seen.borders() == self.whole.borders(), f"{what(damage)}: borders changed"
            if "payloads" not in touched:
                assert seen.spans == self.whole.spans, f"{what(damage)}: payloads changed"


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


def write_sample(directory: Path, seed: int, *, manifest: bool) -> Spans:
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
    return Spans(
        directory,
        Seen(b"".join(content[place][0] for place in PARTS), tuple(touched)),
        (PosixPreadIO(), MmapIO()),
    )


@pytest.fixture(params=[False, True], ids=["records", "manifest"])
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Spans:
    return write_sample(tmp_path / "x", seed=1, manifest=request.param)


def test_the_sample_is_small_and_whole(sample: Spans) -> None:
    """Each role is there, and parts of equal size make the swaps hard to see."""
    for role, size in zip(ROLES, (2 * LENGTH, 16 * len(COUNTS), PAYLOADS), strict=True):
        for name, expected in ((role, size), (f"{role}.crc", 4)):
            found = [len(data) for file, data in sample.files.items() if file.endswith(f".{name}")]
            assert found == [expected] * 3
    assert len(sample.files) == 1 + 3 * 7 + sample.has_manifest
    assert sum(map(len, sample.files.values())) < 8192
    sample.check_whole()
    assert len(sample.whole.spans) == 3 * sum(count > 0 for count in COUNTS)


def test_every_bit_of_the_data(tmp_path: Path) -> None:
    """Verify finds each one, whatever the backends show."""
    sample = write_sample(tmp_path / "x", seed=1, manifest=False)
    tally = sweep("single bits of data files", sample, bits(sample.files_in("data/")))
    assert tally.tried == tally.found == 8 * sum(map(len, sample.files_in("data/").values()))
    assert tally.wrong > 8 * 3 * 2 * LENGTH, "the readers look at the checksums"


def test_every_bit_of_header_and_records(tmp_path: Path) -> None:
    sample = write_sample(tmp_path / "x", seed=2, manifest=False)
    sample = Spans(sample.directory, sample.whole, (PosixPreadIO(),))
    others = {name: data for name, data in sample.files.items() if not name.startswith("data/")}
    tally = sweep("single bits of header and records", sample, bits(others))
    assert tally.tried == tally.found == 8 * sum(map(len, others.values()))
    assert tally.wrong == 0


def test_every_truncation(tmp_path: Path) -> None:
    sample = write_sample(tmp_path / "x", seed=1, manifest=False)
    tally = sweep("truncations", sample, truncations(sample.files))
    assert tally.tried == tally.found == sum(map(len, sample.files.values()))
    assert tally.wrong == 0


def test_extensions(sample: Spans) -> None:
    tally = sweep("extensions", sample, extensions(sample.files))
    assert tally.wrong == 0


def test_blocks_of_zeros_or_ones(sample: Spans) -> None:
    sweep("blocks", sample, zeroed_blocks(sample.files))


def test_swapped_blocks(sample: Spans) -> None:
    tally = sweep("swapped blocks", sample, swapped_blocks(sample.files))
    assert tally.tried >= 40


def test_files_of_other_parts(sample: Spans) -> None:
    """Each of the six files, data with its checksums, and all six together."""
    tally = sweep("exchanged files", sample, exchanged_files(sample.files))
    assert tally.tried >= 9 * (2 * len(ROLES) + len(ROLES) + 1)


def test_files_of_another_dataset(sample: Spans, tmp_path: Path) -> None:
    other = write_sample(tmp_path / "y", seed=3, manifest=sample.has_manifest)
    sweep("files of another dataset", sample, foreign_files(sample.files, other.files))


def test_things_that_are_not_regular_files(sample: Spans, tmp_path: Path) -> None:
    (tmp_path / "aside").mkdir()
    tally = sweep("other things", sample, other_things(sample.files, tmp_path / "aside"))
    assert tally.wrong == 0


def test_folders_that_are_gone_or_files(sample: Spans) -> None:
    sweep("folders", sample, other_things_for_folders())


def test_without_its_header_there_is_no_dataset(sample: Spans) -> None:
    check_needs_header(sample)

"""Every damage of a small dataset of documents: `verify` finds it, or it does not matter.

Without `verify` a reader gives the right documents or a named error. Wrong ones come only from
files of documents and of ends that were changed themselves: changed bytes in their right place,
or the right bytes cut elsewhere, and never anything from outside the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from guideloom.types import IOReader
from guideloom_format import (
    DocumentNumpyFormat,
    DocumentStorage,
)
from guideloom_write import DocumentWriter
from read.damage import (
    Damage,
    a_bit_of_every_byte,
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
    BACKENDS,
    PARTS,
    Sample,
    check_needs_header,
    other_backends,
    sweep,
    what,
)
from read.stream_cases import consolidate
from write.faulty_files import Watched

FORMAT = DocumentNumpyFormat("<u2")
COUNT = 9
VALUES = 80
ROLES = ("documents", "documents.crc", "ends", "ends.crc")


class Seen(NamedTuple):
    """All documents: their bytes one behind the other, and where each ends."""

    content: bytes
    ends: tuple[int, ...]


class Documents(Sample[Seen]):
    """A dataset of two shards and three parts with as many documents and bytes each."""

    def read_all(self, io: IOReader) -> Seen:
        with DocumentStorage(self.directory, FORMAT, io).sync_reader() as reader:
            ragged = reader.gather(np.arange(len(reader)))
            return Seen(ragged.values.tobytes(), tuple(ragged.offsets.tolist()[1:]))

    def of_parts(self, *chosen: int) -> Seen:
        starts = [0, *self.whole.ends]
        content, ends = b"", []
        for part in chosen:
            for k in range(part * COUNT, (part + 1) * COUNT):
                content += self.whole.content[2 * starts[k] : 2 * starts[k + 1]]
                ends.append(len(content) // 2)
        return Seen(content, tuple(ends))

    def check_wrong(self, damage: Damage, seen: Seen) -> None:
        """Other documents than those that were written: only from their own damaged files."""
        touched = [name for name in damage.contents if name.endswith((".documents", ".ends"))]
        assert touched, f"{what(damage)}: wrong documents from files that were not damaged"
        assert len(seen.ends) == len(self.whole.ends), what(damage)
        assert len(seen.content) == len(self.whole.content), what(damage)
        if not any(name.endswith(".documents") for name in touched):
            assert seen.content == self.whole.content, f"{what(damage)}: bytes changed"
        if not any(name.endswith(".ends") for name in touched):
            assert seen.ends == self.whole.ends, f"{what(damage)}: ends changed"


def write_sample(directory: Path, seed: int, *, manifest: bool) -> Documents:
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
    return Documents(directory, Seen(b"".join(one.tobytes() for one in in_order), tuple(ends)))


@pytest.fixture(params=[False, True], ids=["records", "manifest"])
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Documents:
    return write_sample(tmp_path / "x", seed=1, manifest=request.param)


@pytest.fixture(params=BACKENDS, ids=lambda io: type(io).__name__)
def sample_by_backend(request: pytest.FixtureRequest, sample: Documents) -> Documents:
    return Documents(sample.directory, sample.whole, (request.param,))


def test_the_sample_is_small_and_whole(sample: Documents) -> None:
    """Each role is there, and parts of equal size make the swaps hard to see."""
    for role, size in zip(ROLES, (2 * VALUES, 4, 8 * COUNT, 4), strict=True):
        found = [len(data) for name, data in sample.files.items() if name.endswith(f".{role}")]
        assert found == [size] * 3
    assert len(sample.files) == 1 + 3 * 5 + sample.has_manifest
    assert sum(map(len, sample.files.values())) < 8192
    sample.check_whole()
    assert len(sample.whole.ends) == 3 * COUNT


def test_every_bit(tmp_path: Path) -> None:
    sample = write_sample(tmp_path / "x", seed=1, manifest=False)
    tally = sweep("single bits", sample, bits(sample.files))
    assert tally.tried == 8 * sum(map(len, sample.files.values()))
    assert tally.harmless == 0
    assert tally.wrong > 8 * 3 * 2 * VALUES - 100, "the readers look at the checksums"


def test_every_bit_of_a_manifest(tmp_path: Path) -> None:
    sample = write_sample(tmp_path / "x", seed=1, manifest=True)
    tally = sweep(
        "single bits of the manifest",
        sample,
        bits({"manifest.json": sample.files["manifest.json"]}),
    )
    assert tally.found == tally.tried == 8 * len(sample.files["manifest.json"])


@other_backends
def test_a_bit_of_every_byte_with_other_backends(io: IOReader, tmp_path: Path) -> None:
    sample = write_sample(tmp_path / "x", seed=2, manifest=False)
    tally = sweep(
        f"bits, {type(io).__name__}",
        Documents(sample.directory, sample.whole, (io,)),
        a_bit_of_every_byte(sample.files),
    )
    assert tally.tried == sum(map(len, sample.files.values()))
    assert tally.harmless == 0


def test_every_truncation(sample: Documents) -> None:
    tally = sweep("truncations", sample, truncations(sample.files))
    assert tally.tried == sum(map(len, sample.files.values()))
    assert tally.wrong == 0


def test_extensions(sample_by_backend: Documents) -> None:
    tally = sweep("extensions", sample_by_backend, extensions(sample_by_backend.files))
    assert tally.wrong == 0


def test_blocks_of_zeros_or_ones(sample_by_backend: Documents) -> None:
    sweep("blocks", sample_by_backend, zeroed_blocks(sample_by_backend.files))


def test_swapped_blocks(sample_by_backend: Documents) -> None:
    tally = sweep("swapped blocks", sample_by_backend, swapped_blocks(sample_by_backend.files))
    assert tally.tried >= 20


def test_files_of_other_parts(sample_by_backend: Documents) -> None:
    """Each of the four files, data with its checksums, and all four together."""
    tally = sweep("exchanged files", sample_by_backend, exchanged_files(sample_by_backend.files))
    assert tally.tried == 9 * (len(ROLES) + 2 + 1 + 1)


def test_files_of_another_dataset(sample_by_backend: Documents, tmp_path: Path) -> None:
    other = write_sample(tmp_path / "y", seed=3, manifest=sample_by_backend.has_manifest)
    sweep(
        "files of another dataset",
        sample_by_backend,
        foreign_files(sample_by_backend.files, other.files),
    )


def test_things_that_are_not_regular_files(sample_by_backend: Documents, tmp_path: Path) -> None:
    (tmp_path / "aside").mkdir()
    sample = sample_by_backend
    tally = sweep("other things", sample, other_things(sample.files, tmp_path / "aside"))
    assert tally.wrong == 0


def test_folders_that_are_gone_or_files(sample_by_backend: Documents) -> None:
    sweep("folders", sample_by_backend, other_things_for_folders())


def test_without_its_header_there_is_no_dataset(sample: Documents) -> None:
    check_needs_header(sample)

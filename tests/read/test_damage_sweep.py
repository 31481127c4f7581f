"""Every damage of a small dataset: `verify` finds it, or the content is right all the same.

Without `verify` a reader gives the right data or a named error, and wrong values only where the
bytes of elements themselves were changed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from guideloom.types import IOReader
from guideloom_format import (
    StreamNumpyFormat,
    StreamStorage,
)
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

ELEMENT = np.dtype([("token", "<u4"), ("mask", "?"), ("kind", "<u4")])
LENGTH = 114


class Elements(Sample[bytes]):
    """A dataset of two shards and three parts of equal size."""

    def read_all(self, io: IOReader) -> bytes:
        storage = StreamStorage(self.directory, StreamNumpyFormat(ELEMENT), io)
        with storage.sync_reader() as reader:
            return reader.elements(np.array([0]), len(reader), 1).tobytes()

    def of_parts(self, *chosen: int) -> bytes:
        size = LENGTH * ELEMENT.itemsize
        return b"".join(self.whole[part * size : (part + 1) * size] for part in chosen)

    def check_wrong(self, damage: Damage, seen: bytes) -> None:
        """Wrong values only where the bytes of elements themselves were changed."""
        touched = [name for name in damage.contents if name.endswith(".elements")]
        assert touched, f"{what(damage)}: wrong values from elements that were not damaged"
        assert len(seen) == len(self.whole), what(damage)


def write_sample(directory: Path, seed: int, *, manifest: bool) -> Elements:
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
        consolidate(directory)
    return Elements(directory, b"".join(content[place] for place in PARTS))


@pytest.fixture(params=[False, True], ids=["records", "manifest"])
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Elements:
    return write_sample(tmp_path / "x", seed=1, manifest=request.param)


@pytest.fixture(params=BACKENDS, ids=lambda io: type(io).__name__)
def sample_by_backend(request: pytest.FixtureRequest, sample: Elements) -> Elements:
    return Elements(sample.directory, sample.whole, (request.param,))


def test_the_sample_is_small_and_whole(sample: Elements) -> None:
    """Each role is there, and parts of equal size make the swaps hard to see."""
    sizes = [len(data) for name, data in sample.files.items() if name.endswith(".elements")]
    assert sizes == [LENGTH * ELEMENT.itemsize] * 3
    assert len(sample.files) == 10 + sample.has_manifest
    assert sum(map(len, sample.files.values())) < 8192
    sample.check_whole()


def test_every_bit(sample: Elements) -> None:
    tally = sweep("single bits", sample, bits(sample.files))
    assert tally.tried == 8 * sum(map(len, sample.files.values()))
    assert tally.harmless == 0


@other_backends
def test_a_bit_of_every_byte_with_other_backends(io: IOReader, tmp_path: Path) -> None:
    sample = write_sample(tmp_path / "x", seed=2, manifest=False)
    tally = sweep(
        f"bits, {type(io).__name__}",
        Elements(sample.directory, sample.whole, (io,)),
        a_bit_of_every_byte(sample.files),
    )
    assert tally.tried == sum(map(len, sample.files.values()))
    assert tally.harmless == 0


def test_every_truncation(sample: Elements) -> None:
    tally = sweep("truncations", sample, truncations(sample.files))
    assert tally.tried == sum(map(len, sample.files.values()))


def test_extensions(sample_by_backend: Elements) -> None:
    sweep("extensions", sample_by_backend, extensions(sample_by_backend.files))


def test_blocks_of_zeros_or_ones(sample_by_backend: Elements) -> None:
    sweep("blocks", sample_by_backend, zeroed_blocks(sample_by_backend.files))


def test_swapped_blocks(sample_by_backend: Elements) -> None:
    tally = sweep("swapped blocks", sample_by_backend, swapped_blocks(sample_by_backend.files))
    assert tally.tried >= 20


def test_files_of_other_parts(sample_by_backend: Elements) -> None:
    tally = sweep("exchanged files", sample_by_backend, exchanged_files(sample_by_backend.files))
    assert tally.tried == 4 * 9


def test_files_of_another_dataset(sample_by_backend: Elements, tmp_path: Path) -> None:
    other = write_sample(tmp_path / "y", seed=3, manifest=sample_by_backend.has_manifest)
    sweep(
        "files of another dataset",
        sample_by_backend,
        foreign_files(sample_by_backend.files, other.files),
    )


def test_things_that_are_not_regular_files(sample_by_backend: Elements, tmp_path: Path) -> None:
    (tmp_path / "aside").mkdir()
    sample = sample_by_backend
    sweep("other things", sample, other_things(sample.files, tmp_path / "aside"))


def test_folders_that_are_gone_or_files(sample_by_backend: Elements) -> None:
    sweep("folders", sample_by_backend, other_things_for_folders())


def test_without_its_header_there_is_no_dataset(sample: Elements) -> None:
    check_needs_header(sample)

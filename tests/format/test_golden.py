"""What a release wrote stays readable; see `tests/golden/README.md`."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from format.independent import IndependentDataset, read_manifest
from format.stream_writing import Array, committed_parts, same_columns, storage
from guideloom_read import verify
from guideloom_read.io import MmapIO, PosixPreadIO, SeekIO

STREAM = Path(__file__).parents[1] / "golden" / "stream-1.0"
STREAM_TYPE = np.dtype([("token", "<u2"), ("span", "<i4", (2,))])
STREAM_FINGERPRINT = "597873b3d2c2830ec1bb0b01e5fa658725a782eae179069f4e3ae9c38bf66f5d"
MANIFEST_FINGERPRINT = "5cb05bc4c96804e388dd47dd9a0e00621900dfbe628de2bff6f62be99f7b32d1"
STREAM_PARTS = [(0, 0, 100), (2, 0, 57), (2, 1, 31), (5, 0, 64)]


def stream_elements(start: int, stop: int) -> Array:
    """The golden elements at these positions, from their formula."""
    elements = np.zeros(stop - start, STREAM_TYPE)
    for row, i in enumerate(range(start, stop)):
        elements[row] = (7919 * i % 65521, (i * i, -i))
    return elements


def stream_windows() -> list[tuple[int, int]]:
    """Start and length of windows that begin and end around the borders of parts."""
    borders = [0, 1, 99, 100, 101, 156, 157, 158, 187, 188, 189, 251, 252]
    return [(start, stop - start) for start in borders for stop in borders if start <= stop]


@pytest.mark.parametrize("backend", [PosixPreadIO(), MmapIO(), SeekIO()], ids=repr)
def test_the_reader_reads_the_golden_stream(backend: Any) -> None:
    golden = storage(STREAM, STREAM_TYPE)
    golden.read_interface = backend
    with golden.sync_reader() as reader:
        assert len(reader) == 252
        assert reader.fingerprint == STREAM_FINGERPRINT
        assert reader.header.version == "1.0"
        assert reader.header.written_by == "guideloom-write 0.1.0"
        assert reader.header.user["about"] == "golden dataset of format 1.0"
        for start, length in stream_windows():
            expected = stream_elements(start, start + length)
            assert same_columns(reader.read(start, length), expected), (start, length)


def test_the_golden_stream_verifies() -> None:
    report = verify(STREAM)
    assert report.clean, report.faults
    assert (report.parts, report.nbytes) == (4, 2520)


def test_the_independent_reader_reads_the_golden_stream() -> None:
    golden = IndependentDataset(STREAM)
    assert golden.fingerprint == STREAM_FINGERPRINT
    assert golden.header.element_type == STREAM_TYPE
    assert [(part.shard, part.number, part.length) for part in golden.parts] == STREAM_PARTS
    assert golden.verify() == 4
    for start, length in stream_windows():
        expected = stream_elements(start, start + length)
        assert np.array_equal(golden.read(start, start + length), expected), (start, length)


def test_the_golden_manifest_has_the_parts_of_the_first_session() -> None:
    golden = IndependentDataset(STREAM)
    copy, version = STREAM / "manifest.json", STREAM / "manifests" / "00000001.json"
    assert copy.read_bytes() == version.read_bytes()
    assert read_manifest(copy, golden.header) == golden.parts[:2]
    assert f'"fingerprint":"{MANIFEST_FINGERPRINT}"' in copy.read_text(encoding="ascii")


def test_the_golden_records_say_what_the_manifest_says(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(STREAM, tmp_path / "stream"))
    (copy / "manifest.json").unlink()
    assert IndependentDataset(copy).parts == IndependentDataset(STREAM).parts
    _, parts = committed_parts(copy)
    assert [(part.shard, part.part, part.length) for part in parts] == STREAM_PARTS
    with storage(copy, STREAM_TYPE).sync_reader() as reader:
        assert reader.fingerprint == STREAM_FINGERPRINT


def test_the_golden_stream_without_records_is_what_the_manifest_has(tmp_path: Path) -> None:
    """As over HTTP, where nothing can be listed."""
    copy = Path(shutil.copytree(STREAM, tmp_path / "stream"))
    shutil.rmtree(copy / "commits")
    with storage(copy, STREAM_TYPE).sync_reader() as reader:
        assert reader.fingerprint == MANIFEST_FINGERPRINT
        assert same_columns(reader.read(0, len(reader)), stream_elements(0, 157))
    assert IndependentDataset(copy).fingerprint == MANIFEST_FINGERPRINT


def test_this_writer_goes_on_behind_the_golden_stream(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(STREAM, tmp_path / "stream"))
    more = stream_elements(252, 260)
    with storage(copy, STREAM_TYPE).sync_writer() as writer:
        assert [writer.length(shard) for shard in (0, 1, 2, 5)] == [100, 0, 88, 64]
        writer.append(5, {name: more[name] for name in STREAM_TYPE.names or ()})
    golden = IndependentDataset(copy)
    assert (golden.parts[-1].shard, golden.parts[-1].number) == (5, 1)
    assert golden.verify() == 5
    assert np.array_equal(golden.read(0, 260), stream_elements(0, 260))


def test_records_carry_no_name_of_a_machine() -> None:
    records = sorted((STREAM / "commits").iterdir())
    assert len(records) == 4
    for record in records:
        text = record.read_text(encoding="ascii")
        assert '"host": "golden",\n  "pid": 1234,' in text

"""Offsets beyond 2**31 elements and 2**32 bytes, in sparse files with marks at known places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom import StreamDataset
from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom.types import IOReader
from guideloom_format import StreamStorage
from read.stream_cases import PACKED, PLAIN, craft

BORDERS = [2**31, 2**32, 2**32 // 5, 2**32 // 4, 2**33 // 5]
"""In elements: where a 32-bit count of elements or of bytes would wrap."""

SIZES = {(0, 0): 2**32 + 1000, (1, 0): 7, (1, 1): 2**31 + 5, (2, 0): 100}
TOTAL = sum(SIZES.values())


def mark(storage: StreamStorage, element: int) -> None:
    """Make the token of one element, counted over all shards, its number modulo 2**32, plus 1."""
    for (shard, part), length in SIZES.items():
        if element < length:
            path = storage.directory / f"data/{shard}-{part}.elements"
            with open(path, "r+b") as file:
                file.seek(element * storage.element_type.itemsize)
                file.write(token_of(element, shard, part).to_bytes(4, "little"))
            return
        element -= length
    raise IndexError(element)


def token_of(element: int, shard: int, part: int) -> int:
    return (element + 1 + 1000 * shard + 100 * part) % 2**32


def expected_token(element: int) -> int:
    for (shard, part), length in SIZES.items():
        if element < length:
            return token_of(element, shard, part)
        element -= length
    raise IndexError(element)


ENDS = np.cumsum(list(SIZES.values())).tolist()
MARKS = sorted(
    {
        place + step
        for place in [*BORDERS, *ENDS, *(ENDS[1] + border for border in BORDERS)]
        for step in (-3, -2, -1, 0, 1, 2)
        if 0 <= place + step < TOTAL
    }
    | {0, TOTAL - 1}
)


@pytest.mark.parametrize("dtype", [PLAIN, PACKED], ids=["4 bytes", "5 bytes"])
@pytest.mark.parametrize("io", [PosixPreadIO(), MmapIO(), SeekIO()], ids=["pread", "mmap", "seek"])
def test_windows_far_inside(io: IOReader, dtype: np.dtype[np.void], tmp_path: Path) -> None:
    storage = craft(tmp_path / "x", dtype, SIZES)
    storage.read_interface = io
    for element in MARKS:
        mark(storage, element)
    marked = set(MARKS)
    starts = sorted(
        {max(0, min(element + step, TOTAL - 8)) for element in MARKS for step in (-7, -2)}
    )
    with storage.sync_reader() as reader:
        assert len(reader) == TOTAL
        tokens = reader.elements(np.array(starts), 8, 1)["token"]
        windows = reader.read_many(starts, 8)
    seen = set()
    for start, row, window in zip(starts, tokens.tolist(), windows, strict=True):
        places = range(start, start + 8)
        assert row == [expected_token(k) if k in marked else 0 for k in places]
        assert window["token"].tolist() == row
        seen |= marked & set(places)
    assert seen == marked


def test_samples_with_big_strides_and_lengths_given_in_narrow_types(tmp_path: Path) -> None:
    """32-bit numbers from the caller are not multiplied as 32-bit numbers."""
    storage = craft(tmp_path / "x", PLAIN, SIZES)
    stride = 2**20 - 1
    count = (TOTAL - 2048) // stride + 1
    ids: Any = np.array([0, 1, 2047, 2049, 4095, 4097, count - 1], dtype=np.uint16)
    for k in ids.tolist():
        mark(storage, k * stride)
    dataset = StreamDataset(storage, np.int16(2048), np.int32(stride))  # type: ignore[arg-type]
    with dataset.sync_reader() as reader:
        assert len(reader) == count
        batch = reader.gather(ids)["token"]
        assert batch[:, 0].tolist() == [expected_token(k * stride) for k in ids.tolist()]
        assert not batch[:, 1:].any()
        assert reader[np.int16(-1)]["token"][0] == expected_token((count - 1) * stride)
        assert reader[-count]["token"][0] == expected_token(0)


def test_more_than_2_to_the_31_elements_in_one_sample_are_not_allocated_unseen(
    tmp_path: Path,
) -> None:
    """A window that does not exist is refused before any memory is asked for."""
    storage = craft(tmp_path / "x", PLAIN, {(0, 0): 10})
    with storage.sync_reader() as reader:
        for length in (11, 2**40, 2**59):
            with pytest.raises((IndexError, ValueError), match=r"outside \[0, 0\)|more than 2\*\*"):
                reader.read(0, length)
    with (
        StreamDataset(storage, 2**31).sync_reader() as samples,
        pytest.raises(IndexError, match=r"outside \[0, 0\)"),
    ):
        samples.gather([0] * 1000)

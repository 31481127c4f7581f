"""The compiled gather against plain Python, and what it refuses at its boundary."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from guideloom_read._gather import RangeReadError, fill_from_descriptors, fill_from_memory

SIZES = [0, 1, 7, 100, 5000]
CONTENTS = [np.random.default_rng(size).bytes(size) for size in SIZES]
OUT = 300
Fill = Callable[..., int]


@contextmanager
def handles(kind: str, folder: Path) -> Iterator[tuple[Fill, NDArray[Any]]]:
    """A kernel, and what it reads the five files of `CONTENTS` from."""
    if kind == "memory":
        buffers = [ctypes.create_string_buffer(data, max(len(data), 1)) for data in CONTENTS]
        yield fill_from_memory, np.array([ctypes.addressof(item) for item in buffers], np.int64)
        return
    descriptors = []
    for number, data in enumerate(CONTENTS):
        path = folder / str(number)
        path.write_bytes(data)
        descriptors.append(os.open(path, os.O_RDONLY))
    try:
        yield fill_from_descriptors, np.array(descriptors, np.int32)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def reference(rows: list[list[int]], out: bytearray) -> None:
    for file, offset, nbytes, at in rows:
        out[at : at + nbytes] = CONTENTS[file][offset : offset + nbytes]


@st.composite
def good_row(draw: st.DrawFn) -> list[int]:
    file = draw(st.integers(0, 4))
    nbytes = draw(st.integers(0, min(SIZES[file], OUT)))
    return [
        file,
        draw(st.integers(0, SIZES[file] - nbytes)),
        nbytes,
        draw(st.integers(0, OUT - nbytes)),
    ]


EDGES = [-1, -(2**63), -(2**62), 2**31, 2**32, 2**62, 2**63 - 1]


@st.composite
def bad_row(draw: st.DrawFn) -> list[int]:
    """One number of a good row is outside its interval."""
    row = draw(good_row())
    column = draw(st.integers(0, 3))
    beyond = [5, SIZES[row[0]] - row[2] + 1, min(SIZES[row[0]] - row[1], OUT - row[3]) + 1]
    beyond.append(OUT - row[2] + 1)
    row[column] = draw(st.sampled_from([*EDGES, beyond[column], beyond[column] + 1000]))
    return row


def as_rows(rows: list[list[int]]) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


checked = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
kinds = pytest.mark.parametrize("kind", ["descriptors", "memory"])


@kinds
@checked
@given(rows=st.lists(good_row(), max_size=20), data=st.data())
def test_good_rows(kind: str, rows: list[list[int]], data: st.DataObject, tmp_path: Path) -> None:
    """From any row on; bytes that no row covers keep their value."""
    begin = data.draw(st.integers(0, len(rows)), "begin")
    expected = bytearray(b"\x55" * OUT)
    reference(rows[begin:], expected)
    out = np.full(OUT, 0x55, dtype=np.uint8)
    with handles(kind, tmp_path) as (fill, values):
        assert fill(values, np.array(SIZES, np.int64), as_rows(rows), begin, out) == len(rows)
    assert out.tobytes() == expected


@kinds
@checked
@given(good=st.lists(good_row(), max_size=5), bad=bad_row(), more=st.lists(good_row(), max_size=5))
def test_a_bad_row_stops_it_before_anything_is_read_for_it(
    kind: str, good: list[list[int]], bad: list[int], more: list[list[int]], tmp_path: Path
) -> None:
    expected = bytearray(b"\x55" * OUT)
    reference(good, expected)
    out = np.full(OUT, 0x55, dtype=np.uint8)
    with (
        handles(kind, tmp_path) as (fill, values),
        pytest.raises(
            IndexError, match=f"row {len(good)} lies outside its file or outside the output"
        ),
    ):
        fill(values, np.array(SIZES, np.int64), as_rows([*good, bad, *more]), 0, out)
    assert out.tobytes() == expected


@kinds
def test_every_border_of_a_row(kind: str, tmp_path: Path) -> None:
    """All offsets and lengths around the ends of a file of 7 bytes and an output of 9."""
    sizes = np.array(SIZES, np.int64)
    with handles(kind, tmp_path) as (fill, values):
        for offset in range(-2, 10):
            for nbytes in range(-2, 12):
                for at in range(-2, 12):
                    out = np.zeros(9, np.uint8)
                    good = min(offset, nbytes, at) >= 0 and offset + nbytes <= 7
                    if good and at + nbytes <= 9:
                        assert fill(values, sizes, as_rows([[2, offset, nbytes, at]]), 0, out) == 1
                        assert (
                            out[at : at + nbytes].tobytes()
                            == (CONTENTS[2][offset : offset + nbytes])
                        )
                    else:
                        with pytest.raises(IndexError):
                            fill(values, sizes, as_rows([[2, offset, nbytes, at]]), 0, out)
                        assert not out.any()


@kinds
def test_it_stops_at_the_first_file_that_is_not_open(kind: str, tmp_path: Path) -> None:
    rows = as_rows([[1, 0, 1, 0], [3, 5, 50, 1], [2, 0, 7, 60]])
    out = np.zeros(OUT, np.uint8)
    with handles(kind, tmp_path) as (fill, values):
        closed = values.copy()
        closed[3] = 0 if kind == "memory" else -1
        sizes = np.array(SIZES, np.int64)
        assert fill(closed, sizes, rows, 0, out) == 1
        assert out.tobytes() == CONTENTS[1] + bytes(OUT - 1)
        assert fill(values, sizes, rows, 1, out) == 3
    assert out.tobytes()[:67] == CONTENTS[1] + CONTENTS[3][5:55] + bytes(9) + CONTENTS[2]


@kinds
def test_arguments_of_wrong_sizes(kind: str, tmp_path: Path) -> None:
    rows = as_rows([[1, 0, 1, 0]])
    out = np.zeros(OUT, np.uint8)
    read_only = np.zeros(OUT, np.uint8)
    read_only.flags.writeable = False
    with handles(kind, tmp_path) as (fill, values):
        sizes = np.array(SIZES, np.int64)
        other = values.astype(np.int32 if kind == "memory" else np.int64)
        bad: list[tuple[tuple[Any, ...], str]] = [
            ((values[:4], sizes, rows, 0, out), "as many handles as sizes are needed"),
            ((values, sizes[:4], rows, 0, out), "as many handles as sizes are needed"),
            ((other, sizes, rows, 0, out), "as many handles as sizes are needed"),
            ((values, sizes, rows, -1, out), "begin is -1 of 1 rows of 32 bytes"),
            ((values, sizes, rows, 2, out), "begin is 2 of 1 rows of 32 bytes"),
            ((values, sizes, rows[:, :3].copy(), 0, out), "begin is 0 of 0 rows of 32 bytes"),
            ((values, sizes, rows, 0, out[::2]), "not C-contiguous"),
            ((values, sizes, np.asfortranarray(np.repeat(rows, 3, 0)), 0, out), "not C-contiguous"),
            ((values, sizes, rows, 0, read_only), "read-only"),
        ]
        for arguments, text in bad:
            with pytest.raises((ValueError, BufferError), match=text):
                fill(*arguments)
        for place in range(5):
            arguments_with_none: list[Any] = [values, sizes, rows, 0, out]
            arguments_with_none[place] = None
            with pytest.raises(TypeError):
                fill(*arguments_with_none)
    assert not out.any()


@kinds
@pytest.mark.parametrize("dtype", ["<u4", ">f8", "?", "S5", [("a", "<u2"), ("b", "<f4", (2,))]])
def test_an_output_of_any_dtype_is_filled_as_bytes(kind: str, dtype: Any, tmp_path: Path) -> None:
    out = np.zeros((2, 5), dtype)
    with handles(kind, tmp_path) as (fill, values):
        rows = as_rows([[4, 10, out.nbytes, 0]])
        assert fill(values, np.array(SIZES, np.int64), rows, 0, out) == 1
        rows = as_rows([[4, 10, out.nbytes + 1, 0]])
        with pytest.raises(IndexError):
            fill(values, np.array(SIZES, np.int64), rows, 0, out)
    assert out.tobytes() == CONTENTS[4][10 : 10 + out.nbytes]


def test_a_file_that_is_shorter_than_stated(tmp_path: Path) -> None:
    with handles("descriptors", tmp_path) as (fill, values):
        sizes = np.array(SIZES, np.int64)
        os.truncate(tmp_path / "3", 60)
        rows = as_rows([[3, 0, 60, 0], [3, 50, 20, 60], [1, 0, 1, 0]])
        with pytest.raises(RangeReadError) as raised:
            fill(values, sizes, rows, 0, np.zeros(OUT, np.uint8))
        assert (raised.value.row, raised.value.error_number) == (1, 0)


def test_the_errno_of_a_read_that_fails(tmp_path: Path) -> None:
    with handles("descriptors", tmp_path) as (fill, values):
        sizes = np.array(SIZES, np.int64)
        write_only = os.open(tmp_path / "3", os.O_WRONLY)
        folder = os.open(tmp_path, os.O_RDONLY)
        try:
            for descriptor, number in ((write_only, errno.EBADF), (folder, errno.EISDIR)):
                values[3] = descriptor
                rows = as_rows([[1, 0, 1, 0], [2, 0, 7, 1], [3, 0, 1, 8]])
                with pytest.raises(RangeReadError) as raised:
                    fill(values, sizes, rows, 0, np.zeros(OUT, np.uint8))
                assert (raised.value.row, raised.value.error_number) == (2, number)
        finally:
            os.close(write_only)
            os.close(folder)
            values[3] = -1

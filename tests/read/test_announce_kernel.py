"""The compiled announcing: what it counts, what it refuses, and what the kernel then reads."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from guideloom_read._gather import (
    RangeReadError,
    announce_to_descriptors,
    announce_to_memory,
    count_read,
    fill_from_descriptors,
    fill_from_memory,
)
from read.announce_cases import PAGE, cached_pages, drop, folder_that_forgets, wait_for_pages

SIZES = [0, 1, 7, 100, 50_000]
EDGES = [-1, -(2**63), -(2**62), 2**31, 2**32, 2**62, 2**63 - 1]
Announce = Callable[..., int]
into_one_folder = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def as_rows(rows: list[list[int]]) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


@st.composite
def row(draw: st.DrawFn) -> list[int]:
    """A range within its file; the place in the output is anything."""
    file = draw(st.integers(0, 4))
    nbytes = draw(st.integers(0, SIZES[file]))
    at = draw(st.sampled_from([0, 5, *EDGES]))
    return [file, draw(st.integers(0, SIZES[file] - nbytes)), nbytes, at]


@contextmanager
def handles(kind: str, folder: Path, open_files: list[bool]) -> Iterator[tuple[Announce, Any]]:
    """A kernel, and handles of five files of which only some are open."""
    if kind == "memory":
        buffers = [ctypes.create_string_buffer(max(size, 1)) for size in SIZES]
        addresses = [ctypes.addressof(item) for item in buffers]
        chosen = [address * there for address, there in zip(addresses, open_files, strict=True)]
        yield announce_to_memory, np.array(chosen, np.int64)
        return
    descriptors = []
    for number, there in enumerate(open_files):
        path = folder / str(number)
        path.write_bytes(bytes(SIZES[number]))
        descriptors.append(os.open(path, os.O_RDONLY) if there else -1)
    try:
        yield announce_to_descriptors, np.array(descriptors, np.int32)
    finally:
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)


@pytest.mark.parametrize("kind", ["descriptors", "memory"])
@into_one_folder
@given(
    rows=st.lists(row(), max_size=20), open_files=st.lists(st.booleans(), min_size=5, max_size=5)
)
def test_what_is_not_open_is_counted(
    kind: str, rows: list[list[int]], open_files: list[bool], tmp_path: Path
) -> None:
    given_rows = as_rows(rows)
    with handles(kind, tmp_path, open_files) as (announce, values):
        found = announce(values, np.array(SIZES), given_rows)
    assert found == sum(nbytes > 0 and not open_files[file] for file, _, nbytes, _ in rows)
    assert given_rows.tolist() == rows


@pytest.mark.parametrize("kind", ["descriptors", "memory"])
@into_one_folder
@given(good=st.lists(row(), max_size=5), bad=row(), data=st.data())
def test_a_row_outside_its_file_is_refused(
    kind: str, good: list[list[int]], bad: list[int], data: st.DataObject, tmp_path: Path
) -> None:
    column = data.draw(st.integers(0, 2))
    beyond = [5, SIZES[bad[0]] - bad[2] + 1, SIZES[bad[0]] - bad[1] + 1]
    bad[column] = data.draw(st.sampled_from([*EDGES, beyond[column], beyond[column] + 1000]))
    with handles(kind, tmp_path, [True] * 5) as (announce, values):
        message = f"^row {len(good)} lies outside its file"
        with pytest.raises(IndexError, match=message):
            announce(values, np.array(SIZES), as_rows([*good, bad]))


def test_arrays_that_do_not_fit_together() -> None:
    sizes, rows = np.array([9, 9]), as_rows([[0, 0, 1, 0]])
    with pytest.raises(ValueError, match="as many handles as sizes"):
        announce_to_descriptors(np.array([1], np.int32), sizes, rows)
    with pytest.raises(ValueError, match="rows of 32 bytes"):
        announce_to_memory(np.zeros(2, np.int64), sizes, rows.reshape(-1)[:3])
    with pytest.raises(ValueError, match="contiguous"):
        announce_to_memory(np.zeros(2, np.int64), sizes, np.repeat(rows, 4, axis=0)[::2])


def test_descriptors_that_are_none_harm_nobody() -> None:
    """What the kernel answers does not matter: a number that is no file, a pipe, a closed one."""
    reading, writing = os.pipe()
    os.close(writing)
    rows = as_rows([[k, 0, 9, 0] for k in range(3)])
    numbers = np.array([reading, writing, 2**31 - 1], np.int32)
    assert announce_to_descriptors(numbers, np.array([9, 9, 9]), rows) == 0
    os.close(reading)


PAGES = 400
RANGES: list[tuple[list[list[int]], set[int]]] = [
    ([[3 * PAGE, 1]], {3}),
    ([[4 * PAGE - 1, 2]], {3, 4}),
    ([[9 * PAGE, 0]], set()),
    ([[0, 0], [5 * PAGE + 7, 0], [PAGES * PAGE, 0]], set()),
    ([[6 * PAGE, PAGE], [7 * PAGE, PAGE], [5 * PAGE, PAGE]], {5, 6, 7}),
    ([[6 * PAGE, 10], [6 * PAGE + 2, 20 * PAGE], [8 * PAGE, 9]], set(range(6, 27))),
    ([[60 * PAGE, PAGE], [20 * PAGE, PAGE], [21 * PAGE, 0], [99 * PAGE + 1, 5]], {20, 60, 99}),
    ([[9 * PAGE + 100, 200 * PAGE]], set(range(9, 210))),
    ([[PAGES * PAGE - 1, 1]], {PAGES - 1}),
    ([[0, PAGES * PAGE]], set(range(PAGES))),
]
"""Ranges of a file of `PAGES` pages, offset and bytes, and the pages that they lie on."""


@pytest.mark.parametrize("kind", ["descriptors", "memory"])
def test_the_kernel_reads_these_pages_and_no_others(kind: str, tmp_path: Path) -> None:
    """Also long ranges are read whole, and ranges without bytes are none."""
    with folder_that_forgets(tmp_path) as folder:
        path = folder / "file"
        path.write_bytes(bytes(PAGES * PAGE))
        for ranges, expected in RANGES:
            drop(path)
            assert not any(cached_pages(path))
            rows = as_rows([[0, offset, nbytes, 0] for offset, nbytes in ranges])
            with open(path, "rb", buffering=0) as file:
                if kind == "memory":
                    mapped = np.frombuffer(mmap(file.fileno(), 0, access=ACCESS_READ), np.uint8)
                    addresses = np.array([mapped.ctypes.data])
                    assert announce_to_memory(addresses, np.array([PAGES * PAGE]), rows) == 0
                else:
                    numbers = np.array([file.fileno()], np.int32)
                    assert announce_to_descriptors(numbers, np.array([PAGES * PAGE]), rows) == 0
                assert set(wait_for_pages(path, sorted(expected))) == expected, ranges
                if kind == "memory":
                    del mapped


# What a watched fill says of itself


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(row(), max_size=20))
def test_reads_are_added_up(rows: list[list[int]]) -> None:
    """Also after a failure, whose bytes do not count."""
    totals = np.array([1, 2, 3, 4, 5])
    nbytes = sum(nbytes for _, _, nbytes, _ in rows)
    count_read(totals, as_rows(rows), 0.5, False)
    assert totals.tolist() == [2, 2 + len(rows), 3 + nbytes, 4 + 5 * 10**8, 5]
    count_read(totals, as_rows(rows), 2.0, True)
    assert totals.tolist() == [3, 2 + 2 * len(rows), 3 + nbytes, 4 + 25 * 10**8, 6]
    for wrong in (np.zeros(4, np.int64), np.zeros(6, np.int64)):
        with pytest.raises(ValueError, match=r"totals has (32|48) bytes; expected 40"):
            count_read(wrong, as_rows(rows), 0.0, False)


def fill_of(kind: str, folder: Path) -> tuple[Any, Any]:
    (folder / "file").write_bytes(bytes(range(100)))
    if kind == "memory":
        buffer = ctypes.create_string_buffer(bytes(range(100)), 100)
        return (fill_from_memory, buffer), np.array([ctypes.addressof(buffer), 0], np.int64)
    descriptor = os.open(folder / "file", os.O_RDONLY)
    return (fill_from_descriptors, descriptor), np.array([descriptor, -1], np.int32)


@pytest.mark.parametrize("kind", ["descriptors", "memory"])
def test_a_watched_fill_says_how_far_it_is(kind: str, tmp_path: Path) -> None:
    """At a file that is not open, at a row that fails, and at the end."""
    (fill, held), values = fill_of(kind, tmp_path)
    sizes = np.array([100, 100])
    watch = np.zeros(4, np.int64)
    out = np.zeros(8, np.uint8)
    rows = as_rows([[0, k, 1, k] for k in range(4)] + [[1, 0, 1, 0], [0, 9, 1, 5]])
    assert fill(values, sizes, rows, 0, out, watch) == 4
    assert watch[0] == 4
    values[1] = values[0]
    assert fill(values, sizes, rows, 4, out, watch) == 6
    assert watch[0] == 6
    assert 0 <= watch[1] < 6
    assert out.tolist() == [0, 1, 2, 3, 0, 9, 0, 0]
    rows[3, 1] = 100
    with pytest.raises(IndexError, match="row 3"):
        fill(values, sizes, rows, 0, out, watch)
    assert watch[0] == 3
    for wrong in (np.zeros(3, np.int64), np.zeros(5, np.int64)):
        with pytest.raises(ValueError, match=r"watch has (24|40) bytes; expected 32"):
            fill(values, sizes, rows, 0, out, wrong)
    with pytest.raises(TypeError, match="NoneType"):
        fill(values, sizes, rows, 0, None, watch)
    if kind == "descriptors":
        sizes = np.array([200, 200])
        rows[3, 1] = 150
        with pytest.raises(RangeReadError):
            fill(values, sizes, rows, 0, out, watch)
        assert watch[0] == 3
        os.close(held)


@pytest.mark.parametrize("slow", range(6))
def test_the_row_that_everything_waited_for_is_found(slow: int, tmp_path: Path) -> None:
    """The time until its file was open is its time, too."""
    (fill, held), values = fill_of("descriptors", tmp_path)
    values[1] = values[0]
    rows = as_rows([[k == slow, k, 1, k] for k in range(6)])
    watch = np.zeros(4, np.int64)
    out = np.zeros(6, np.uint8)
    closed = values.copy()
    closed[1] = -1
    assert fill(closed, np.array([100, 100]), rows, 0, out, watch) == slow
    watch[3] -= 10**9  # as if opening had taken a second
    assert fill(values, np.array([100, 100]), rows, slow, out, watch) == 6
    assert watch[1] == slow
    assert 10**9 <= watch[2] < 10**10
    os.close(held)


@pytest.mark.parametrize("slow", [0, 3, 5])
def test_a_row_that_takes_several_ticks_is_found(slow: int) -> None:
    """The others are a byte each."""
    size = 1 << 27
    source = np.zeros(size, np.uint8)
    addresses, sizes = np.array([source.ctypes.data]), np.array([size])
    rows = as_rows([[0, k, size - 10 if k == slow else 1, 0] for k in range(6)])
    watch = np.zeros(4, np.int64)
    out = np.empty(size, np.uint8)  # whose memory is found while it is written to
    assert fill_from_memory(addresses, sizes, rows, 0, out, watch) == 6
    assert watch[0] == 6
    assert watch[1] == slow
    assert watch[2] > 0

"""Ends of spans that cannot be, under checksums that are right: a writer with a bug, or worse.

Also what happens to the windows beside a damaged row, and to files that change while they are open.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from format.independent_writing import HandWriter, MadePart, spans_file
from guideloom import StreamDataset, StreamWithMetaStorage
from guideloom.io import MmapIO, PosixPreadIO
from guideloom_format import DamagedFileError, MissingFileError
from guideloom_read import verify
from guideloom_read._contents import read_contents, read_header
from guideloom_read._verify_ends import EndsCheck
from read.span_cases import SOME, check_batch, check_window, spans_dataset
from read.stream_cases import BACKENDS
from write.span_formats import Runs

Ends = list[tuple[int, int]]
numbers = itertools.count()
into_one_folder = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
ELEMENTS = bytes(range(12))
PAYLOADS = b"payloads"


def craft(directory: Path, parts: Sequence[Ends]) -> StreamWithMetaStorage:
    """A dataset of parts of twelve elements and eight payload bytes, with these ends."""
    writer = HandWriter.create(directory, "stream-with-meta", "|u1", {"class": "of.a.user"})
    writer.publish(
        [
            MadePart(
                7,
                number,
                len(ELEMENTS),
                {"elements": ELEMENTS, "payloads": PAYLOADS, "spans": spans_file(ends)},
            )
            for number, ends in enumerate(parts)
        ],
        0,
        "all",
    )
    return StreamWithMetaStorage(directory, Runs("u1"))


def first_wrong_row(ends: Ends) -> int | None:
    """The first row that breaks the format's rules."""
    before = (0, 0)
    for k, row in enumerate(ends):
        limits = (len(ELEMENTS), len(PAYLOADS))
        if any(not a <= b <= limit for a, b, limit in zip(before, row, limits, strict=True)):
            return k
        before = row
    return len(ends) - 1 if before != (len(ELEMENTS), len(PAYLOADS)) else None


element_end = st.sampled_from([0, 3, 5, 5, 9, 12, 12, 13, 2**31, 2**32 + 5, 2**63, 2**64 - 1])
payload_end = st.sampled_from([0, 1, 4, 8, 8, 9, 2**31, 2**63, 2**64 - 1])


@into_one_folder
@given(
    ends=st.lists(st.tuples(element_end, payload_end), min_size=1, max_size=6)
    | st.lists(st.tuples(st.integers(0, 12), st.integers(0, 8)), min_size=1, max_size=6).map(
        lambda rows: [*sorted(rows), (12, 8)]
    ),
    backend=st.sampled_from(sorted(BACKENDS)),
)
def test_any_ends(ends: Ends, backend: str, tmp_path: Path) -> None:
    """`verify` names the first wrong row; reads give what the rows say, or a named error."""
    directory = tmp_path / str(next(numbers))
    good: Ends = [(12, 8)]
    storage = craft(directory, [good, ends, good])
    storage.read_interface = BACKENDS[backend](directory)
    wrong = first_wrong_row(ends)
    report = verify(directory)
    assert report.clean == (wrong is None)
    name = "data/0000/0000007-0001-9f3c21ab5d0e7711.spans"
    if wrong is not None:
        assert min(fault.start for fault in report.faults) == 16 * wrong
        assert all(fault.file == name for fault in report.faults)
    errors = 0
    with storage.sync_reader() as reader:
        for start, length in itertools.product(range(36), (1, 4, 36)):
            if start + length > 36:
                continue
            try:
                stream, shards, index, payloads = reader.read(start, length)
            except DamagedFileError as error:
                errors += 1
                found = re.match(
                    rf"{re.escape(name)}, bytes (\d+) to (\d+): the ends of", str(error)
                )
                assert found, error  # noqa: PT017
                assert 0 <= int(found[1]) < int(found[2]) <= 16 * len(ends)
                continue
            assert bytes(stream) == (3 * ELEMENTS)[start : start + length]
            assert shards == [7] * len(payloads)
            assert sorted(set(index.tolist())) == list(range(len(payloads)))
            assert np.all(np.diff(index) >= 0)
            assert all(payload in PAYLOADS for payload in payloads)
    assert errors == 0 or wrong is not None
    reaching = [k for k, (end, _) in enumerate(ends) if 12 <= end < 2**63]
    if wrong is not None and wrong <= min(reaching, default=len(ends)):
        assert errors, "a window over the whole part reads all rows up to its end"


@pytest.mark.parametrize("backend", BACKENDS)
def test_windows_beside_a_damaged_row_are_right(backend: str, tmp_path: Path) -> None:
    """Damage in one part leaves the others readable, in the same reader and the same order."""
    ends: Ends = [(4, 2), (8, 3), (12, 8)]
    wrong: Ends = [(4, 2), (2**40, 3), (12, 8)]
    storage = craft(tmp_path / "x", [ends, wrong, ends])
    storage.read_interface = BACKENDS[backend](tmp_path / "x")
    with storage.sync_reader() as reader:
        for _ in range(3):
            for start in (0, 2, 4, 8, 24, 28):
                assert bytes(reader.read(start, 4)[0]) == (3 * ELEMENTS)[start : start + 4]
            assert reader.read(12, 4)[3] == [b"pa"]
            for start, length in ((12, 5), (16, 2), (10, 20), (0, 36)):
                with pytest.raises(
                    DamagedFileError,
                    match=r"data/0000/0000007-0001-\w+\.spans, bytes 0 to 48: the ends of spans 0 "
                    r"to 2 do not grow from 0 to 12 elements and 8 bytes of payloads, the sizes "
                    "of elements and payloads. The file is damaged: restore it from a copy",
                ):
                    reader.read(start, length)
                with pytest.raises(DamagedFileError, match="the ends of spans 0 to 2"):
                    reader.read_many([0, start], length)


def faults_in_pieces(directory: Path, rows: int) -> list[int]:
    """Where `EndsCheck` finds faults if it gets so many rows at a time."""
    session = PosixPreadIO().open(str(directory))
    header = read_header(session, str(directory))
    table = read_contents(session, str(directory), header).table
    check = EndsCheck(header, table, 0, "spans")
    data = np.frombuffer((directory / table.file_name(0, "spans")).read_bytes(), dtype=np.uint8)
    found = [f for k in range(0, data.size, 16 * rows) for f in check.faults(data[k:][: 16 * rows])]
    return [start for start, _, _ in (*found, *check.faults_of_the_end())]


def test_verify_looks_at_rows_across_its_steps(tmp_path: Path) -> None:
    """A row that is less than the one before is found also where a new piece is read."""
    ends: Ends = [(k, min(k, 8)) for k in range(13)]
    for column, row in itertools.product((0, 1), range(1, 12)):
        bad = [list(each) for each in ends]
        bad[row][column] = max(ends[row - 1][column] - 1, 0) if row > 1 else 99
        storage = craft(tmp_path / f"{column}-{row}", [[tuple(each) for each in bad]])  # type: ignore[misc]
        report = verify(storage.directory)
        if bad[row] == list(ends[row]):
            assert report.clean
            continue
        assert report.faults[0].start == 16 * row
        assert all(faults_in_pieces(storage.directory, n)[0] == 16 * row for n in range(1, 14))
        what = "elements" if column == 0 else "payloads"
        assert f"end {row} of the {what} is {bad[row][column]} after" in report.faults[0].problem


@pytest.mark.parametrize("role", ["elements", "spans", "payloads"])
@pytest.mark.parametrize("change", ["truncated", "removed", "longer"])
def test_files_that_change_before_they_are_read(role: str, change: str, tmp_path: Path) -> None:
    """The reader is open, and has not opened the file yet."""
    for io in (PosixPreadIO(), MmapIO()):
        directory = tmp_path / type(io).__name__
        storage, model = spans_dataset(directory, SOME, io=io)
        with storage.sync_reader() as reader, StreamDataset(storage, 36).sync_reader() as samples:
            for path in sorted((directory / "data").rglob(f"*.{role}")):
                data = path.read_bytes()
                if change == "removed":
                    path.unlink()
                else:
                    path.write_bytes(data[:-1] if change == "truncated" else data + b"\0")
                break
            kind = MissingFileError if change == "removed" else DamagedFileError
            with pytest.raises(kind, match=rf"0000000-0000-\w+\.{role}"):
                reader.read(0, 36)
            with pytest.raises(kind, match=rf"0000000-0000-\w+\.{role}"):
                samples.gather([0])
            if role == "payloads":
                check_batch(samples.gather([0], payloads=False), model, [0], 36, payloads=False)


@pytest.mark.parametrize("role", ["elements", "spans", "payloads"])
def test_a_file_that_shrinks_while_it_is_open(role: str, tmp_path: Path) -> None:
    storage, model = spans_dataset(tmp_path / "x", SOME, io=PosixPreadIO())
    with storage.sync_reader() as reader:
        check_window(reader.read(0, 36), model, 0, 36)
        path = min((tmp_path / "x" / "data").rglob(f"*.{role}"))
        data = path.read_bytes()
        with open(path, "r+b") as file:
            file.truncate(1)
        with pytest.raises(DamagedFileError, match="was truncated since it was opened"):
            reader.read(0, 36)
        path.write_bytes(data)
        check_window(reader.read(0, 36), model, 0, 36)

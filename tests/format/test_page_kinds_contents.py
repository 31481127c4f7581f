"""What ends and spans may say: a reader checks what it reads, verification checks all of it.

Every dataset here has right sizes and checksums, so only the check of contents can refuse it. What
is right is said here once more, straight from the page, for lists of numbers.
"""

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format.independent_documents import IndependentDocuments
from format.independent_json import RefusedError
from format.independent_spans import IndependentSpans
from format.independent_writing import HandWriter, MadePart, ends_file, span_part, spans_file
from format.kind_agreement import BACKENDS, document_storage, pieces_of, raw, span_storage
from format.kind_cases import BYTES_FORMAT, SPANS_FORMAT
from format.kind_refusing import NUMPY_FORMAT
from guideloom import DamagedFileError, StreamDataset
from guideloom_read import verify

Pairs = Sequence[tuple[int, int]]
Pieces = list[tuple[int, int, int, bytes]]

BYTES = bytes(range(65, 65 + 24))
HUGE = [2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**63 + 4, 2**64 - 2, 2**64 - 1]
backends = st.sampled_from(BACKENDS)


def refused_or(read: Callable[[], Any], match: str) -> Any:
    """What `read` gives, or None where a file is said to be damaged."""
    try:
        return read()
    except (RefusedError, DamagedFileError) as error:
        text = str(error)
    assert re.search(match, text), text
    return None


def wrong_documents(ends: Sequence[int], size: int, itemsize: int) -> set[int]:
    """The documents that nobody is given, of those that end there in a file of `size` bytes."""
    wrong = {
        k
        for k, (low, high) in enumerate(pairwise([0, *ends]))
        if not low <= high <= size or (high - low) % itemsize
    }
    return wrong | ({len(ends) - 1} if ends and ends[-1] != size else set())


def check_documents(path: Path, ends: Sequence[int], size: int, dtype: Any, backend: Any) -> None:
    """Both readers give each document that is right, refuse each other, and verify all."""
    described, form = ("|u1", BYTES_FORMAT) if dtype is None else ("<u2", NUMPY_FORMAT)
    contents = {"documents": BYTES[:size], "ends": ends_file(ends)}
    part = MadePart(3, 0, len(ends), contents)
    HandWriter.create(path, "document", described, form).publish([part], 0, "all")
    wrong = wrong_documents(ends, size, 1 if dtype is None else 2)
    expected = [
        None if k in wrong else BYTES[low:high]
        for k, (low, high) in enumerate(pairwise([0, *ends]))
    ]
    everything, whole = range(len(ends)), None if wrong else expected
    match = r"0000003-0000-\w+\.ends\b.*document \d|last document"
    ours = IndependentDocuments(path)
    assert [refused_or(partial(ours.read, k), match) for k in everything] == expected
    assert (refused_or(ours.verify, "document") is None) == bool(wrong)
    with document_storage(path, dtype, backend).sync_reader() as reader:

        def documents(numbers: Sequence[int]) -> list[bytes]:
            return [raw(document) for document in reader.read_many(numbers)]

        def gathered(numbers: Sequence[int]) -> list[bytes]:
            batch = reader.gather(np.array(numbers, np.int64))
            return [raw(batch.values[a:b]) for a, b in pairwise(batch.offsets.tolist())]

        for k, document in enumerate(expected):
            alone = None if document is None else [document]
            assert refused_or(partial(documents, [k]), match) == alone
            assert refused_or(partial(gathered, [k]), match) == alone
        assert refused_or(partial(documents, everything), match) == whole
        assert refused_or(partial(gathered, everything), match) == whole
    report = verify(path)
    assert report.clean == (not wrong), report.faults
    assert all(".ends" in f"{fault.file} {fault.problem}" for fault in report.faults)


def changed_numbers(numbers: Sequence[int], last: int) -> Iterator[list[int]]:
    """Each number replaced by each of many others."""
    for place in range(len(numbers)):
        for value in [*range(last + 3), *HUGE]:
            yield [*numbers[:place], value, *numbers[place + 1 :]]


@pytest.mark.parametrize("backend", BACKENDS, ids=repr)
@pytest.mark.parametrize("dtype", [None, "<u2"])
def test_each_changed_end_of_documents(tmp_path: Path, dtype: Any, backend: Any) -> None:
    for number, ends in enumerate(changed_numbers([4, 4, 6, 8], 8)):
        check_documents(tmp_path / str(number), ends, 8, dtype, backend)


@settings(max_examples=100, deadline=None)
@given(
    ends=st.lists(st.integers(0, 13) | st.sampled_from(HUGE), min_size=1, max_size=6),
    grow=st.booleans(),
    size=st.integers(0, 12),
    dtype=st.sampled_from([None, "<u2"]),
    backend=backends,
)
def test_any_ends_of_documents(
    tmp_path_factory: pytest.TempPathFactory,
    ends: list[int],
    grow: bool,
    size: int,
    dtype: Any,
    backend: Any,
) -> None:
    path = tmp_path_factory.mktemp("documents")
    check_documents(path, sorted(ends) if grow else ends, size - size % 2, dtype, backend)
    shutil.rmtree(path)


def wrong_spans(pairs: Pairs, length: int, size: int) -> set[int]:
    """The spans that nobody is given, of a part with `length` elements and `size` bytes."""
    wrong = {
        k
        for k, ((a, p), (b, q)) in enumerate(pairwise([(0, 0), *pairs]))
        if not a <= b <= length or not p <= q <= size
    }
    return wrong | ({len(pairs) - 1} if pairs and pairs[-1] != (length, size) else set())


def pieces_by_definition(
    pairs: Pairs, start: int, stop: int, length: int, size: int
) -> tuple[Pieces | None, bool]:
    """The pieces of a window of the part, None if one is wrong; and whether a reader may refuse.

    The span of an element is the first one that ends behind it. Spans without elements between
    those of a window are none of its spans; but a reader may read and check them too. And so it may
    with the numbers of elements that its search meets anywhere.
    """
    spans = [
        next((k for k, (end, _) in enumerate(pairs) if end > x), -1) for x in range(start, stop)
    ]
    wrong = wrong_spans(pairs, length, size)
    if -1 in spans or wrong & set(spans):
        return None, False
    bounds = [(0, 0), *pairs]
    pieces = []
    for k in sorted(set(spans)):
        low, high = max(bounds[k][0], start), min(bounds[k + 1][0], stop)
        payload = BYTES[bounds[k][1] : bounds[k + 1][1]]
        pieces.append((low - start, high - low, k, payload))
    met = wrong & set(range(min(spans), max(spans) + 1))
    return pieces, bool(met) or any(end > length for end, _ in pairs)


def check_spans(path: Path, pairs: Pairs, length: int, size: int, backend: Any) -> None:
    """Each window, read by both readers, which may go wrong only where elements do not grow."""
    contents = {
        "elements": BYTES[: 2 * length],
        "payloads": BYTES[:size],
        "spans": spans_file(pairs),
    }
    before = span_part(0, 0, b"0123", [(2, b"before")])
    parts = [before, MadePart(3, 0, length, contents)]
    HandWriter.create(path, "stream-with-meta", "<u2", SPANS_FORMAT).publish(parts, 0, "all")
    ours = IndependentSpans(path)
    ends = [end for end, _ in pairs]
    storage = span_storage(path, "<u2", backend)
    for count in range(1, length + 1):
        with StreamDataset(storage, count, 1).sync_reader() as reader:
            for start in range(length - count + 1):
                check_window(ours, reader, pairs, start, count, ends == sorted(ends), length, size)
    right = not wrong_spans(pairs, length, size)
    assert (refused_or(ours.verify, "column") is not None) == right
    report = verify(path)
    assert report.clean == right, report.faults
    assert all(".spans" in f"{fault.file} {fault.problem}" for fault in report.faults)


def check_window(
    ours: IndependentSpans,
    reader: Any,
    pairs: Pairs,
    start: int,
    count: int,
    grows: bool,
    length: int,
    size: int,
) -> None:
    expected, may_refuse = pieces_by_definition(pairs, start, start + count, length, size)

    def independently() -> Pieces:
        _, pieces = ours.window(start + 2, start + 2 + count)
        return [(piece.start, piece.length, piece.number - 1, piece.payload) for piece in pieces]

    def gathered() -> Pieces:
        batch = reader.gather(np.array([start + 2]))
        assert batch.stream.tobytes() == BYTES[2 * start : 2 * (start + count)]
        return [(a, n, k - 1, payload) for a, n, k, payload in pieces_of(batch, 0)]

    def sample() -> list[tuple[int, bytes]]:
        window = reader[start + 2]
        counts = np.bincount(window.span_index, minlength=len(window.payloads))
        return [(int(n), bytes(p)) for n, p in zip(counts, window.payloads, strict=True)]

    match = r"0000003-0000-\w+\.spans\b.*(span|payload)"
    place = (list(pairs), start, count)
    for found in (refused_or(independently, match), refused_or(gathered, match)):
        if not grows:
            lengths = None if found is None else sum(piece[1] for piece in found)
            assert lengths in (None, count), place
        elif may_refuse:
            assert found in (None, expected), place
        else:
            assert found == expected, place
    if grows and not may_refuse:
        wanted = None if expected is None else [(n, payload) for _, n, _, payload in expected]
        assert refused_or(sample, match) == wanted, place


@pytest.mark.parametrize("backend", BACKENDS, ids=repr)
@pytest.mark.parametrize("column", [0, 1], ids=["elements", "payloads"])
def test_each_changed_end_of_spans(tmp_path: Path, column: int, backend: Any) -> None:
    columns = [[2, 2, 3, 5, 5], [1, 3, 4, 4, 6]]
    for number, changed in enumerate(changed_numbers(columns[column], 6)):
        other = columns[1 - column]
        pairs = list(zip(*((changed, other) if column == 0 else (other, changed)), strict=True))
        check_spans(tmp_path / str(number), pairs, 5, 6, backend)


@settings(max_examples=100, deadline=None)
@given(
    columns=st.integers(1, 6).flatmap(
        lambda count: st.tuples(
            *[st.lists(st.integers(0, 7), min_size=count, max_size=count) for _ in range(2)]
        )
    ),
    grow=st.sampled_from(["neither", "elements", "both", "right"]),
    length=st.integers(1, 6),
    size=st.integers(0, 6),
    backend=backends,
)
def test_any_ends_of_spans(
    tmp_path_factory: pytest.TempPathFactory,
    columns: tuple[list[int], list[int]],
    grow: str,
    length: int,
    size: int,
    backend: Any,
) -> None:
    ends, payload_ends = columns
    ends = ends if grow == "neither" else sorted(ends)
    payload_ends = sorted(payload_ends) if grow in ("both", "right") else payload_ends
    if grow == "right":
        length, size = max(1, ends[-1]), payload_ends[-1]
    path = tmp_path_factory.mktemp("spans")
    check_spans(path, list(zip(ends, payload_ends, strict=True)), length, size, backend)
    shutil.rmtree(path)

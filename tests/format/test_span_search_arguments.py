"""What `SpanSearch` and `pieces` refuse, and that they let other threads run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from format.gil_cases import ticks_meanwhile
from format.span_oracle import Parts, Stream, rows_of
from guideloom_format import SpanIndex, SpanSearch, pieces


def begin(parts: Parts, ids: Sequence[int], length: int) -> SpanSearch:
    return Stream.of(parts).begin(ids, length)


def test_a_search_that_has_not_ended_has_no_pieces() -> None:
    search = begin([[(2, 1), (3, 1)]], [0, 1], 3)
    with pytest.raises(ValueError, match="the spans of 2 segments are not found yet"):
        pieces(search, unique=True)


@pytest.mark.parametrize("rows", [0, 1, 3, 5])
def test_another_number_of_rows_than_was_asked_for(rows: int) -> None:
    search = begin([[(2, 1), (3, 1)]], [0, 1], 3)
    search.probes()
    with pytest.raises(ValueError, match=f"{rows} rows were read; 4 were asked for"):
        search.take(np.zeros((rows, 2), dtype=np.int64))


WRONG: dict[str, Callable[[np.ndarray], object]] = {
    "floats": lambda chunk: chunk.astype(np.float64),
    "unsigned": lambda chunk: chunk.astype(np.uint64),
    "narrow": lambda chunk: chunk.astype(np.int32),
    "other byte order": lambda chunk: chunk.astype(">i8"),
    "flat": lambda chunk: chunk.reshape(-1),
    "Fortran order": np.asfortranarray,
    "a list": lambda chunk: chunk.tolist(),
    "nothing": lambda _: None,
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_not_an_array_of_rows(kind: str) -> None:
    search = begin([[(2, 1), (3, 1)]], [0, 1], 3)
    search.probes()
    chunk = rows_of([[(2, 1), (3, 1)]] * 2)
    with pytest.raises((ValueError, TypeError)):
        search.take(WRONG[kind](np.concatenate(chunk)))  # type: ignore[arg-type]


PLANS = {
    "part -1": [-1, 0, 2, 0],
    "part 2": [2, 0, 2, 0],
    "a part without spans": [1, 0, 2, 0],
    "begins before 0": [0, -1, 2, 0],
    "ends behind": [0, 4, 2, 0],
    "begins behind": [0, 5, 1, 0],
    "no elements": [0, 2, 0, 0],
    "a negative number of elements": [0, 2, -1, 0],
    "ends beyond 2**63": [0, 2**63 - 2, 2**63 - 2, 0],
}


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_that_lies_outside_is_refused(plan: str) -> None:
    index = SpanIndex([2, 0], [5, 0], [2, 0])
    with pytest.raises(IndexError, match=r"row 0 (lies outside|names) part"):
        SpanSearch(index, np.array([PLANS[plan]], dtype=np.int64), 1, 2, 1)


ENDED_THE_PROCESS = {
    "no bytes per element": "SpanSearch(index, np.array([[0, 0, 4, 0]]), 0, 4, 1)",
    "no bytes per window": "SpanSearch(index, np.array([[0, 0, 4, 0]]), 1, 0, 1)",
    "negative sizes": "SpanSearch(index, np.array([[0, 0, 4, 0]]), -1, -4, 1)",
    "a window behind the last": "SpanSearch(index, np.array([[0, 0, 4, 4 * 10**9]]), 1, 4, 1)",
    "a window far behind": "SpanSearch(index, np.array([[0, 0, 4, 2**61]]), 1, 1, 1)",
    "a window before the first": "SpanSearch(index, np.array([[0, 0, 4, -4]]), 1, 4, 1)",
    "a negative number of windows": "SpanSearch(index, np.array([[0, 0, 4, 0]]), 1, 4, -1)",
    "windows out of order": "SpanSearch(index, np.array([[0, 0, 4, 4], [0, 0, 4, 0]]), 1, 4, 2)",
    "a plan of three columns": "SpanSearch(index, np.zeros((1, 3), np.int64), 1, 4, 1)",
    "an answer before the question": (
        "SpanSearch(index, np.array([[0, 0, 4, 0]]), 1, 4, 1).take(np.zeros((0, 2), np.int64))"
    ),
}


@pytest.mark.parametrize("call", ENDED_THE_PROCESS)
def test_arguments_that_cannot_be_are_refused(call: str) -> None:
    """In a process of its own: divisions by zero and writes outside are what it is about."""
    program = f"""
import numpy as np
from guideloom_format import SpanIndex, SpanSearch
index = SpanIndex([1], [4], [0])
try:
    {ENDED_THE_PROCESS[call]}
except (IndexError, ValueError) as error:
    print("refused:", error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, f"ended by signal {-done.returncode}: {done.stderr}"
    assert done.stdout.startswith("refused: "), done.stdout


def test_payloads_of_more_than_2_to_the_62_bytes_are_refused() -> None:
    """Windows that touch one span of a huge file, each with a payload of its own."""
    search = SpanSearch(
        SpanIndex([1], [4], [2**62]), np.array([[0, 0, 4, 4 * k] for k in range(5)]), 1, 4, 5
    )
    search.probes()
    search.take(np.array([[4, 2**62]] * 5))
    with pytest.raises((ValueError, OverflowError), match="2"):
        pieces(search, unique=False)
    assert pieces(search, unique=True)[2].tolist() == [0, 2**62]


def test_a_search_lets_other_threads_run() -> None:
    """Two million windows over a few spans; every step that walks over them gives up the lock."""
    windows = 2_000_000
    stream = Stream.of([[(3, 1), (2, 0)]])
    search = stream.begin(np.full(windows, 1), 3)  # type: ignore[arg-type]
    chunk = np.tile(np.array([[3, 1], [5, 1]], dtype=np.int64), (windows, 1))
    calls: dict[str, Callable[[], Any]] = {
        "probes": search.probes,
        "take": lambda: search.take(chunk),
        "pieces": lambda: pieces(search, unique=True),
    }
    for name, call in calls.items():
        ticks, seconds = ticks_meanwhile(call)
        assert ticks > 0, f"no other thread ran in the middle of {name}, {seconds:.2f} s"

"""Calls of real processes fail, lie or are interrupted, by injection with strace.

Here a sample; all calls, once and for ever:

    uv run pytest -m slow tests/write/test_strace_faults.py
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from write.strace_cases import (
    Point,
    Writers,
    each_kind,
    job_in,
    need_strace,
    place_in_memory,
    points_of,
)
from write.strace_faults import FAULTS, INTERRUPTED, LIES, Fault, fail, in_turn
from write.strace_steps import points_in, undisturbed
from write.traced_writer import KINDS

ALWAYS = {"write", "fsync", "close", "linkat", "openat", "read"}
ONE_IN = 3


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    need_strace()
    with Writers() as running:
        yield running


@pytest.fixture
def place() -> Iterator[Path]:
    with place_in_memory() as folder:
        yield folder


def calls_of(fault: Fault, points: Sequence[Point]) -> list[Point]:
    found = [point for point in points if point.name == fault.call]
    assert found or fault.call not in ALWAYS
    return found


def report(what: str, tried: Counter[str]) -> int:
    print(f"{what}: {tried.total()} calls failed {dict(tried)}")
    return tried.total()


@each_kind
def test_a_sample_of_calls_fails(kind: str, writers: Writers, place: Path) -> None:
    """One call in three, other ones for each kind, with one of the errnos in turn."""
    job = job_in(place, kind)
    points = points_in(writers, job, place)[list(KINDS).index(kind) :: ONE_IN]
    tried = Counter[str]()
    for point, fault, forever in in_turn(points):
        fail(writers, job, point, fault, place, forever=forever)
        tried[str(fault)] += 1
    assert {name.split()[0] for name in tried} >= ALWAYS
    assert report(kind, tried) >= 50


@each_kind
def test_calls_fail_while_it_consolidates(kind: str, writers: Writers, place: Path) -> None:
    job = replace(job_in(place, kind), consolidate=True)
    before = writers.run(replace(job, consolidate=False))
    assert (before.status, before.error) == (0, None)
    shutil.move(place / "x", place / "kept")
    shutil.copytree(place / "kept", place / "x")
    points = points_of(undisturbed(writers, job).calls, place)[list(KINDS).index(kind) :: ONE_IN]
    shutil.rmtree(place / "x")
    tried = Counter[str]()
    for point, fault, forever in in_turn(points):
        fail(writers, job, point, fault, place, forever=forever, kept=place / "kept")
        tried[str(fault)] += 1
    assert report(f"{kind}, consolidating", tried) >= 20


@each_kind
def test_a_call_that_only_says_that_it_was_done(kind: str, writers: Writers, place: Path) -> None:
    """A write that the file system lost, and a link that is not there."""
    job = job_in(place, kind)
    points = points_in(writers, job, place)
    tried = Counter[str]()
    for fault in LIES:
        for point in calls_of(fault, points):
            fail(writers, job, point, fault, place)
            tried[str(fault)] += 1
    assert report(kind, tried) >= 50


@pytest.mark.slow
@each_kind
def test_every_call_fails_once_and_for_ever(kind: str, writers: Writers, place: Path) -> None:
    job = job_in(place, kind)
    points = points_in(writers, job, place)
    tried = Counter[str]()
    for fault in (*FAULTS, *LIES, *INTERRUPTED):
        for forever in {False, fault.may_last}:
            for point in calls_of(fault, points):
                fail(writers, job, point, fault, place, forever=forever)
                tried[str(fault)] += 1
    assert report(kind, tried) >= 1000

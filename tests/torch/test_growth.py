"""Over a million samples and a thousand iterators nothing grows, however batches are loaded."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from .limit_cases import MODES, grown_by_iterators, grown_by_samples
from .process_cases import KINDS, in_fork, write

SOON = [*(("stream", mode) for mode in MODES), ("documents", "fork"), ("spans", "threads")]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("stream", tmp_path_factory.mktemp("growth") / "stream")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("many")
    return {kind: write(kind, place / kind, 6000) for kind in KINDS}


@pytest.mark.parametrize(
    "kind, mode",
    [
        case if case in SOON else pytest.param(*case, marks=pytest.mark.slow)
        for case in product(KINDS, MODES)
    ],
)
def test_memory_is_flat_over_a_million_samples(many: dict[str, Path], kind: str, mode: str) -> None:
    """Of this process and its workers; after a warm-up of 100,000."""
    memory, threads, files = in_fork(
        lambda: grown_by_samples(kind, many[kind], mode, 1_000_000), 200
    )
    assert memory < 1.01, memory
    assert (threads, files) == (0, 0)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_kept_of_a_thousand_iterators(directory: Path, mode: str) -> None:
    memory, threads, files = in_fork(lambda: grown_by_iterators(directory, mode, 1000), 200)
    assert memory < 1.01, memory
    assert (threads, files) == (0, 0)

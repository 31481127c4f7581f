"""Hostile datasets: whatever stands in them, nothing worse than a named error comes of them.

Each vector of `vectors/` is tried in a child process: opening, reading with every backend,
`verify` at every level, writing, consolidating and cleaning. Each of these ends within a second of
processor time, in little memory, with the right data or with an error of the library, and touches
nothing outside of the dataset.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile.sabotages import SABOTAGES
from hostile.trying import verdict_on
from hostile.vectors import KEYS, read_lines, read_vectors, sorts

MEMORY = "/dev/shm"
LEAST_VECTORS = 700


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is to be had: thousands of small files are made and removed."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as made:
        yield Path(made)


def test_the_vectors_are_well_formed() -> None:
    """Each has a name of its own and says why it is there; members are known."""
    total = 0
    for sort in sorts():
        lines = read_lines(sort)
        assert len({line["name"] for line in lines}) == len(lines), sort
        for line in lines:
            assert line["why"], line
            assert set(line) <= KEYS, line
            assert not {"refuses", "reading"} <= set(line), line
        total += len(list(read_vectors(sort)))
    print(f"{total} vectors in {len(sorts())} files")
    assert total >= LEAST_VECTORS


@pytest.mark.parametrize("sort", sorts())
def test_vectors(sort: str, folder: Path) -> None:
    vectors = list(read_vectors(sort))
    verdict = verdict_on(sort, vectors, folder)
    print(
        f"{sort}: {len(vectors)} vectors, {len(verdict.untried)} not tried here; at most "
        f"{verdict.seconds:.2f} s and {verdict.mib:.0f} MiB for an operation"
    )
    assert not verdict.wrong, str(verdict)
    assert len(verdict.untried) < len(vectors)


SABOTAGED = {
    "names_are_not_checked": ("record_paths", ["stem: outside", "stem: another dataset"]),
    "links_are_followed": ("places", ["header: a link to a canary"]),
    "special_files_are_opened": ("places", ["record: a FIFO", "header: a FIFO"]),
    "sizes_are_not_compared": ("record", ["an element more than the file has"]),
    "seals_are_not_checked": ("header", ["a wrong seal"]),
    "pickles_are_chosen_by_files": ("documents", ["pickles opened by name"]),
    "references_are_not_looked_at": ("record", ["crc32c of something else"]),
    "errors_of_the_parser_come_out": ("header", ["user: 10^5 deep"]),
}


@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_a_missing_defence_is_found(sabotage: str, folder: Path) -> None:
    sort, names = SABOTAGED[sabotage]
    vectors = list(read_vectors(sort))
    only = [number for number, vector in enumerate(vectors) if vector.facts["name"] in names]
    assert len(only) == len(names)
    verdict = verdict_on(sort, vectors, folder, only=only, sabotage=sabotage)
    print(verdict)
    assert len(verdict.wrong) == len(names)

"""Descriptors or memory run out in the middle: it is said which, and the run goes on exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from descriptors import few_descriptors

from .limit_cases import MODES, Large, little_memory, says_what_ran_out
from .process_cases import in_fork, load, write


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("stream", tmp_path_factory.mktemp("limits") / "stream")


def seen(batch: Any) -> Any:
    """What a batch holds, in little memory."""
    numbers, more = batch
    return numbers, more.nbytes, int(more[::4096].sum())


def loaded_within(directory: Path, mode: str, limits: Any, nbytes: int, begun: bool) -> list[Any]:
    """(Errors that say what ran out, batches before them, batches in all), as a run is begun.

    Without the limit the run goes on, and has all batches in order, each once.
    """
    collate = Large(nbytes, every=True)
    wanted = [seen(batch) for batch in load("stream", directory, collate)]
    loader = load("stream", directory, collate, **MODES[mode])
    loader.state_dict()
    iterator = iter(loader) if begun else None
    found = [seen(next(iterator))] if iterator is not None else []
    errors = 0
    with limits:
        try:
            found.extend(map(seen, iter(loader) if iterator is None else iterator))
        except Exception as error:
            if not says_what_ran_out(error):
                raise
            errors += 1
    before = len(found)
    assert (loader.epoch, loader.position) == divmod(3 * before, 24)
    if iterator is None:
        loader.close()  # its workers have the limit as well
    if before < len(wanted):
        found += [seen(batch) for batch in loader]
    loader.close()
    assert found == wanted
    return [errors, before, len(found)]


@pytest.mark.parametrize("mode", MODES)
def test_any_number_of_descriptors_left(directory: Path, mode: str) -> None:
    """From none to enough, before the first batch and behind it."""

    def work() -> list[Any]:
        cases = [
            (left, begun) for begun in (False, True) for left in range(14 if mode == "fork" else 6)
        ]
        return [
            [left, begun, *loaded_within(directory, mode, few_descriptors(left), 40_000, begun)]
            for left, begun in cases
        ]

    found = in_fork(work, 120)
    assert any(errors for _, _, errors, *_ in found), found
    assert any(not errors for _, _, errors, *_ in found), found


@pytest.mark.parametrize("mode", MODES)
def test_any_amount_of_memory_left(directory: Path, mode: str) -> None:
    """For batches of 80 MiB, from too little to plenty.

    The C library has pieces of up to 64 MiB at hand, which threads have used before.
    """

    def work() -> list[Any]:
        cases = [(mib, begun) for begun in (False, True) for mib in (1, 40, 79, 200, 6000)]
        return [
            [mib, begun, *loaded_within(directory, mode, little_memory(mib << 20), 80 << 20, begun)]
            for mib, begun in cases
        ]

    # Python itself says so where a thread has no memory to begin
    found = in_fork(work, 120, may_say=("MemoryError", "unraisablehook"))
    assert any(errors for _, _, errors, *_ in found), found
    assert any(not errors for _, _, errors, *_ in found), found

"""Counts, in this process, how often a loader goes on from a state that it was given."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from guideloom import StatefulDataLoader
from guideloom_torch._epoch import EpochIterator, Position
from resumes import counted


@pytest.fixture(scope="session", autouse=True)
def _resumes_are_counted() -> Iterator[None]:
    """A state counts once it was taken over and the loader is iterated from there."""
    load, begin = StatefulDataLoader.load_state_dict, EpochIterator.__init__
    given: dict[int, Position] = {}  # by id: what can change has no hash

    @functools.wraps(load)
    def load_state_dict(self: StatefulDataLoader, state_dict: Mapping[str, Any]) -> None:
        load(self, state_dict)
        given[id(self._position)] = self._position

    @functools.wraps(begin)
    def __init__(self: EpochIterator, *arguments: Any) -> None:  # noqa: N807
        begin(self, *arguments)
        counted.number += given.pop(id(self._position), None) is not None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StatefulDataLoader, "load_state_dict", load_state_dict)
        patch.setattr(EpochIterator, "__init__", __init__)
        yield

"""Counts, in this process, how often a loader goes on from a state that it was given."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from guideloom import StatefulDataLoader
from resumes import counted


@pytest.fixture(scope="session", autouse=True)
def _resumes_are_counted() -> Iterator[None]:
    """A state counts once it was taken over and the loader is iterated from there."""
    load, iterate = StatefulDataLoader.load_state_dict, StatefulDataLoader.__iter__

    @functools.wraps(load)
    def load_state_dict(self: StatefulDataLoader, state_dict: Mapping[str, Any]) -> None:
        load(self, state_dict)
        self._was_given_a_state = True  # type: ignore[attr-defined]

    @functools.wraps(iterate)
    def __iter__(self: StatefulDataLoader) -> Iterator[Any]:  # noqa: N807
        counted.number += self.__dict__.pop("_was_given_a_state", False)
        return iterate(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StatefulDataLoader, "load_state_dict", load_state_dict)
        patch.setattr(StatefulDataLoader, "__iter__", __iter__)
        yield

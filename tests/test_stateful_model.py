"""Random lives of datasets of the three kinds against lists; the rules are in `stateful.machine`.

The same lives every time, so that what fails was made to fail by what was changed. Others with
``GUIDELOOM_SEED=n``, which a campaign prints. A failure comes with the calls that lead to it, and
with a line that replays it.
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from stateful.known_kinds import KINDS, KnownKind
from stateful.machine import DatasetMachine

SEED = os.environ.get("GUIDELOOM_SEED")


def live(kind: type[KnownKind], *, lives: int, steps: int, seed_text: str | None) -> None:
    """So many lives of so many steps at most."""
    machine = type(f"{kind.__name__}Machine", (DatasetMachine,), {"make_kind": kind})
    options = settings(
        max_examples=lives,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        derandomize=seed_text is None,
        suppress_health_check=list(HealthCheck),
    )
    if seed_text is not None:
        machine = seed(int(seed_text))(machine)
    run_state_machine_as_test(machine, settings=options)


@pytest.fixture(autouse=True)
def few_open_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that parts give their files back and open them again."""
    monkeypatch.setattr("guideloom_write._shard_writer.MOST_OPEN_PARTS", 2)


@pytest.mark.parametrize("kind", KINDS)
def test_lives(kind: type[KnownKind]) -> None:
    live(kind, lives=100, steps=30, seed_text=SEED)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_long_lives(kind: type[KnownKind]) -> None:
    chosen = SEED or str(random.SystemRandom().randrange(2**32))
    print(f"GUIDELOOM_SEED={chosen}")
    live(kind, lives=500, steps=100, seed_text=chosen)

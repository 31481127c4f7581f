"""Every bit of every file of a dataset with all sorts of files; see also `test_damage_sweep.py`.

What `verify` does not find, and why: the notes of writers and of running jobs, which are advice.
No reader looks at them or at decided jobs, so data stays right; who does, says what is wrong or
goes on without.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from read.damage import Damage
from read.whole_datasets import ADVICE, KINDS, Tally, Whole, sort_of, sweep

SEED = int(os.environ.get("GUIDELOOM_SEED", "0"))
ONE_OF = {"manifests/": 10, "owners/": 20, "jobs/": 20}
FEW = 100
"""In CI one bit of so many is tried, other ones where the seed is another one. Few are enough of
the files that `test_damage_sweep.py` and its like try whole."""


def one_of(name: str) -> int:
    return next((count for start, count in ONE_OF.items() if name.startswith(start)), FEW)


def shown(kind: str, tallies: dict[str, Tally]) -> str:
    lines = [f"{sort:14} {tally}" for sort, tally in tallies.items()]
    looked_at = [tally for sort, tally in tallies.items() if sort not in ADVICE]
    found, tried = (sum(getattr(one, name) for one in looked_at) for name in ("found", "tried"))
    return "\n".join([f"{kind}, seed {SEED}: detected {found} of {tried}", *lines])


def check(kind: str, tallies: dict[str, Tally]) -> None:
    print(shown(kind, tallies))
    for sort, tally in tallies.items():
        expected = 0 if sort in ADVICE else tally.tried
        assert tally.found == expected, sort


@pytest.mark.parametrize("kind", KINDS)
def test_some_bits_of_every_file(kind: str, tmp_path: Path) -> None:
    whole = Whole(kind, tmp_path / "x")
    rng = random.Random(f"{SEED} {kind}")

    def some(name: str, damages: Iterator[Damage]) -> Iterator[Damage]:
        every = list(damages)
        return iter(rng.sample(every, -(-len(every) // one_of(name))))

    tallies = sweep(whole, some)
    check(kind, tallies)
    assert set(tallies) == {sort_of(name) for name in whole.files}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_bit_of_every_file(kind: str, tmp_path: Path) -> None:
    whole = Whole(kind, tmp_path / "x")
    tallies = sweep(whole, lambda _, damages: damages)
    check(kind, tallies)
    assert sum(tally.tried for tally in tallies.values()) == 8 * sum(map(len, whole.files.values()))

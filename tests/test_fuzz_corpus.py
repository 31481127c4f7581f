"""The fuzz targets without a fuzzer: what is in their corpus, and some changes of it.

Inputs that once made a target fail are in the corpus, too. Long runs: `fuzz/campaign.py`.
"""

from __future__ import annotations

import os
import random
from functools import partial

import pytest

from targets import CORPUS, NAMES, corpus_files, load
from targets.base import limited_memory
from targets.mutation import mutate_bytes

SEED = int(os.environ.get("GUIDELOOM_SEED", "0"))
MUTATIONS = 300
MOST_BYTES = 2 << 20


@pytest.mark.parametrize("name", NAMES)
def test_every_input_of_the_corpus(name: str) -> None:
    target = load(name)
    inputs = {path.name: path.read_bytes() for path in corpus_files(name)}
    assert inputs, "the corpus is gone"
    with limited_memory():
        for file, data in inputs.items():
            print(f"fuzz/corpus/{name}/{file}")
            target.check(data)


@pytest.mark.parametrize("name", NAMES)
def test_changes_of_the_corpus(name: str) -> None:
    """With ``GUIDELOOM_SEED=n`` others; a failure shows the input."""
    target = load(name)
    rng = random.Random(f"{name} {SEED}")
    inputs = [*target.seeds(), *(path.read_bytes() for path in corpus_files(name))]
    with limited_memory():
        for data in target.seeds():
            target.check(data)
        for _ in range(MUTATIONS):
            data = target.mutate(rng.choice(inputs), rng, partial(mutate_bytes, rng=rng))
            print(f"GUIDELOOM_SEED={SEED} {data!r}"[:5000])
            target.check(data)


def test_the_corpus_is_small_and_of_targets() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(NAMES)
    assert sum(path.stat().st_size for path in CORPUS.rglob("*")) < MOST_BYTES

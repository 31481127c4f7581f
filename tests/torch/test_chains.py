"""Three to five resumes, one after the other, each with other ranks, batches, workers, prefetch."""

from __future__ import annotations

import json
from itertools import permutations, product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .chain_cases import Job, Leg, check_chain, run_leg
from .kind_cases import KINDS, Samples
from .process_cases import by_processes, in_fork

WORLDS = (1, 2, 3, 4, 8)
CHAIN_KINDS = ("documents", "longest", "spans", "json")
FEW, MANY = 7, 37  # samples; the many are more than any global batch below


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Samples]:
    place = tmp_path_factory.mktemp("chains")
    return {
        (kind, count): Samples.written(KINDS[kind], place / f"{kind}-{count}", count)
        for kind, count in product(CHAIN_KINDS, (FEW, MANY))
    }


JOBS = st.builds(
    lambda seed, end: Job(seed, end == "dropped", end == "masked"),
    st.none() | st.integers(0, 2**64),
    st.sampled_from(["dropped", "kept", "masked"]),
)


@st.composite
def legs(draw: st.DrawFn) -> Leg:
    world_size = draw(st.sampled_from(WORLDS))
    workers, prefetch = draw(st.sampled_from([(0, 0), (0, 1), (0, 8), (1, 0), (3, 0), (3, 8)]))
    return Leg(
        world_size,
        draw(st.integers(1, 4)),
        draw(st.integers(0, 6)),
        draw(st.integers(0, world_size - 1)),
        {"num_workers": workers, "prefetch": prefetch},
    )


CHAINS = st.lists(legs(), min_size=4, max_size=6)  # three to five resumes


@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(CHAIN_KINDS), few=st.booleans(), job=JOBS, chain=CHAINS)
def test_any_chain_of_any_legs(
    written: dict[tuple[str, int], Samples], kind: str, few: bool, job: Job, chain: list[Leg]
) -> None:
    """Each rank has as many steps; together they walk along one global order, without a gap."""
    count = MANY if job.drop_last or not few else FEW  # all legs have a batch in each epoch
    check_chain(written[kind, count], job, chain)


def test_every_order_of_worlds(written: dict[tuple[str, int], Samples]) -> None:
    """1, 2, 3, 4 and 8 ranks, one after the other, in all 120 orders, within two epochs."""
    for number, worlds in enumerate(permutations(WORLDS)):
        job = Job(number, number % 3 == 0, number % 3 == 1)
        chain = [
            Leg(world, 1 + (number + k) % 2, 1 + (number + k) % 3, number % world, {})
            for k, world in enumerate(worlds)
        ]
        check_chain(written["longest", MANY], job, chain)


def test_chains_of_processes(written: dict[tuple[str, int], Samples]) -> None:
    """Each leg in a process of its own, loaded by other processes, threads, or by itself."""
    loadings: list[dict[str, Any]] = [
        by_processes("fork", 2, prefetch=3),
        {},
        by_processes("fork", 1),
        {"num_workers": 3, "prefetch": 8},
        by_processes("fork", 3, prefetch=1),
    ]

    def elsewhere(samples: Samples, job: Job, leg: Leg, state: str | None) -> Any:
        return in_fork(lambda: run_leg(samples, job, leg, state))

    for number, kind in enumerate(CHAIN_KINDS):
        source = Random(number)
        chain = [
            Leg(world, source.randint(1, 4), source.randint(1, 4), source.randrange(world), one)
            for world, one in zip(source.choices((1, 2, 3), k=5), loadings, strict=True)
        ]
        job = Job(number, number % 3 == 0, number % 3 == 1)
        check_chain(written[kind, MANY], job, chain, elsewhere)


def test_a_chain_can_be_wrong(written: dict[tuple[str, int], Samples]) -> None:
    """A state that is one batch old is seen, and so is one that is one batch ahead."""
    job, leg = Job(3, False, False), Leg(2, 2, 3, 0, {})

    def moved(by: int) -> Any:
        def run(samples: Samples, job: Job, leg: Leg, state: str | None) -> Any:
            if state is not None:
                fields = json.loads(state)
                state = json.dumps(fields | {"position": fields["position"] + by})
            return run_leg(samples, job, leg, state)

        return run

    check_chain(written["json", MANY], job, [leg, leg], moved(0))
    for by in (-4, 4):
        with pytest.raises(AssertionError):
            check_chain(written["json", MANY], job, [leg, leg], moved(by))


def test_a_chain_over_a_dataset_elsewhere(
    written: dict[tuple[str, int], Samples], tmp_path: Path
) -> None:
    """Each leg reads a copy of its own: the place is no part of the state."""
    import shutil

    samples = written["spans", MANY]
    copies = []
    for k in range(4):
        shutil.copytree(samples.directory, tmp_path / str(k))
        copies.append(Samples(samples.kind, tmp_path / str(k), MANY, samples.number))
    number = iter(copies)

    def run(_: Samples, job: Job, leg: Leg, state: str | None) -> Any:
        return run_leg(next(number), job, leg, state)

    chain = [Leg(world, 2, 3, 0, {}) for world in (3, 1, 4, 2)]
    check_chain(samples, Job(5, False, False), chain, run)


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_batch_costs_the_same_at_any_position(kind: str, tmp_path: Path) -> None:
    """It reads what this batch needs, for data of every kind, and nothing that came before."""
    samples = Samples.written(KINDS[kind], tmp_path / kind, 3000)
    costs = []
    for position in (0, 3, 1500, 2997):
        with samples.loader(seed=None, local_batch_size=3) as loader:
            loader.load_state_dict(loader.state_dict() | {"epoch": 5, "position": position})
            before = loader.stats().reads
            assert samples.ids_of(next(iter(loader))) == [position, position + 1, position + 2]
            after = loader.stats().reads
            costs.append(after.reads - before.reads)
            assert after.nbytes - before.nbytes < 8192  # of 10 times as many and more
    assert max(costs) <= 4, costs

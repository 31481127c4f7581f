"""The power fails; see `power_loss` for what must hold then."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from write.power_campaign import look_at
from write.power_loss import SEED, Campaign, Tally, memory_folder
from write.power_processes import Process, Step, consolidated
from write.power_scenarios import JOB, KINDS, SHARDS, killed, scenarios, told

STATES = 5_000
SAMPLES = {"stream": 5, "document": 2, "stream-with-meta": 1}
"""At each point: the more files a part has, the more states there are without."""

MANY_STATES = 50_000


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as found:
        yield found


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="guideloom_write")


@pytest.mark.parametrize("kind", KINDS)
def test_the_power_fails_at_every_point(kind: str, folder: Path) -> None:
    total = Tally()
    campaign = Campaign(KINDS[kind], folder, samples=SAMPLES[kind])
    for scenario in scenarios(kind):
        tally = campaign.run(scenario)
        print(f"{kind}, {scenario.name}: {tally}")
        assert not tally.bad, "\n".join(tally.bad)
        assert tally.points >= 20
        total.add(tally)
    print(f"{kind}: {total}")
    assert total.states >= STATES


@pytest.mark.parametrize("kind", KINDS)
def test_the_power_fails_again_while_the_job_is_started_again(kind: str, folder: Path) -> None:
    total = Tally()
    campaign = Campaign(KINDS[kind], folder, samples=1)
    for scenario in scenarios(kind):
        total.add(campaign.run_twice(scenario, times=1))
        assert not total.bad, "\n".join(total.bad)
    print(f"{kind}: {total}")
    assert total.states >= 500


@pytest.mark.parametrize("kind", KINDS)
def test_the_power_fails_after_a_process_was_killed_and_another_one_went_on(
    kind: str, folder: Path
) -> None:
    """What the killed process had made and not synced is built upon by the other one."""
    total = Tally()
    campaign = Campaign(KINDS[kind], folder, samples=1)
    for scenario in killed(kind, [(shard, 60) for shard in range(SHARDS[kind] - 1)]):
        total.add(campaign.run(scenario, told))
        assert not total.bad, "\n".join(total.bad)
    print(f"{kind}: {total}")
    assert total.points >= 80


@pytest.mark.parametrize("step", [consolidated, JOB])
def test_the_power_fails_after_a_consolidation_or_a_job_was_killed_and_done_again(
    step: Step, folder: Path
) -> None:
    total = Tally()
    campaign = Campaign(KINDS["stream"], folder, samples=1)
    before = [Process([(0, 20), (1, 30)])]
    for scenario in killed("stream", [step], [step], before):
        total.add(campaign.run(scenario, told))
        assert not total.bad, "\n".join(total.bad)
    print(total)
    assert total.points >= 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_states(kind: str) -> None:
    total = look_at(kind, MANY_STATES, SEED)
    assert not total.bad, "\n".join(total.bad)
    assert total.states >= MANY_STATES

"""The power loss finds what is wrong: each sync that is left out makes a state bad."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from write.power_loss import Campaign, PowerScenario, Tally, memory_folder
from write.power_processes import Process, after_link, consolidated
from write.power_sabotage import (
    FilesClass,
    SyncsDataLate,
    copies_of_manifests,
    every_file,
    every_folder,
    first_of,
    forgetting,
)
from write.power_scenarios import KINDS, killed, published, scenarios, told

SABOTAGES: dict[str, FilesClass] = {
    "nothing is synced": forgetting(lambda *_: True),
    "files are not synced": forgetting(every_file),
    "folders are not synced": forgetting(every_folder),
    "data files are synced behind the record": SyncsDataLate,
}


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as found:
        yield found


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="guideloom_write")


def sabotaged(kind: str, folder: Path, scenario: PowerScenario, files_class: FilesClass) -> Tally:
    """Until the first bad state."""
    campaign = Campaign(KINDS[kind], folder, samples=5, most_bad=1, files_class=files_class)
    return campaign.run(scenario, published)


def named(kind: str, name: str) -> PowerScenario:
    return next(scenario for scenario in scenarios(kind) if scenario.name == name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["first commit", "second part"])
@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_without_syncs_a_bad_state_is_found(
    sabotage: str, name: str, kind: str, folder: Path
) -> None:
    found = sabotaged(kind, folder, named(kind, name), SABOTAGES[sabotage])
    assert re.search(
        rf"{name}.*seed \d+, state \d+ of the point behind .*\n"
        r"  of \d+ pending operations \d+ were kept(.*\n)*"
        r"  again with GUIDELOOM_POWER_SEED=\d+",
        found.bad[0],
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_of_a_manifest_that_is_replaced_before_it_is_synced_is_found(
    kind: str, folder: Path
) -> None:
    scenario = named(kind, "consolidation")
    found = sabotaged(kind, folder, scenario, forgetting(copies_of_manifests))
    assert "manifest.json" in found.bad[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "not_needed"),
    [
        ("first commit", ["//", "commits/"]),
        ("second part", ["dataset/", "commits/", "data/"]),
    ],
)
def test_each_sync_of_a_commit_is_needed(
    name: str, not_needed: list[str], kind: str, folder: Path
) -> None:
    """But those at the beginning, which are for what a process left that was killed: see below."""
    syncs: list[str] = []
    scenario = named(kind, name)
    assert not sabotaged(kind, folder, scenario, forgetting(lambda *_: False, syncs)).bad
    assert len(syncs) > 6
    unneeded = []
    for k, path in enumerate(syncs, start=1):
        forgetful = forgetting(lambda number, _, k=k: number == k)  # type: ignore[misc]
        if not sabotaged(kind, folder, scenario, forgetful).bad:
            unneeded.append(path)
    assert all(path.endswith("/") for path in unneeded), "the sync of a file is not needed"
    assert [re.sub("^.*/(?=.+/)", "", path) for path in unneeded] == not_needed


@pytest.mark.parametrize(
    "path", ["/jobs/", "/jobs/run/", *(f"/jobs/run/dataset/{name}" for name in ("", "data/"))]
)
def test_each_sync_of_a_new_name_is_needed_where_a_killed_process_made_it(
    path: str, folder: Path
) -> None:
    steps = [(0, 60), (1, 5)]
    assert any(
        Campaign(
            KINDS["stream"], folder, samples=5, most_bad=1, files_class=forgetting(first_of(path))
        )
        .run(scenario, told)
        .bad
        for scenario in killed("stream", steps)
    )


def test_what_a_killed_process_linked_is_made_durable_by_a_job_that_finds_nothing_to_do(
    folder: Path,
) -> None:
    """The job ends well, so what it found is promised."""
    forgetful = forgetting(first_of("/jobs/run/dataset/commits/"))
    scenario = PowerScenario(
        "nothing to do",
        [Process([(0, 0)])],
        before=[Process([(0, 60)], die_at=after_link)],
    )
    assert not sabotaged("stream", folder, scenario, forgetting(lambda *_: False)).bad
    found = sabotaged("stream", folder, scenario, forgetful)
    assert "shard 0 has 0; allowed is [60]" in found.bad[0]


def test_a_consolidation_makes_the_records_durable_that_it_repeats(folder: Path) -> None:
    """Else a version has a part whose place another writer may take."""
    scenario = PowerScenario(
        "consolidation of what a killed process linked",
        [Process([consolidated])],
        before=[Process([(0, 20)]), Process([(1, 30)], die_at=after_link)],
    )
    assert not sabotaged("stream", folder, scenario, forgetting(lambda *_: False)).bad
    forgetful = forgetting(first_of("/jobs/run/dataset/commits/"))
    assert sabotaged("stream", folder, scenario, forgetful).bad

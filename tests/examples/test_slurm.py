"""The example for Slurm and MPI: processes that know only their rank, killed and run again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.slurm_campaign import COMMIT_MIB, STOPPED, Campaign
from examples.slurm_jobs import (
    SCHEDULERS,
    SCRIPT,
    Inputs,
    Job,
    array,
    example,
    open_mpi,
    processes,
    slurm,
    storage,
)
from format.independent_json import sealed
from guideloom import verify

COUNTS = (60, 0, 1, 250, 90, 0, 130, 40, 75, 110, 20)


@pytest.fixture(scope="module", autouse=True)
def _launchers() -> Iterator[None]:
    yield
    Job.end_launchers()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return Inputs(tmp_path_factory.mktemp("inputs"), COUNTS)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("size", range(1, 13))
def test_every_scheduler_numbers_its_processes(scheduler: str, size: int) -> None:
    if scheduler == "array of srun":
        size *= 2
    places = [example().rank_and_world_size(SCHEDULERS[scheduler](k, size)) for k in range(size)]
    assert places == [(k, size) for k in range(size)]


def test_without_a_scheduler_one_process_does_everything() -> None:
    assert example().rank_and_world_size({}) == (0, 1)
    assert example().rank_and_world_size({"PMI_RANK": "3", "PATH": "x"}) == (0, 1)


def test_a_single_job_of_an_array_that_is_submitted_again_does_everything() -> None:
    """Slurm then says that the array has one job. What the others finished is skipped."""
    assert example().rank_and_world_size(array(0, 1, first=17)) == (0, 1)


@pytest.mark.parametrize("environment", [{**array(1, 2), "SLURM_ARRAY_TASK_ID": "9"}, slurm(3, 3)])
def test_ranks_with_gaps_are_refused(environment: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"--array=0-63|the rank is 3 of 3"):
        example().rank_and_world_size(environment)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("size", [2, 4, 14])
def test_an_undisturbed_job(inputs: Inputs, tmp_path: Path, scheduler: str, size: int) -> None:
    """Its data is the same for every scheduler and number of processes; one run, one part each."""
    job = Job(processes(scheduler, size, [tmp_path / "x", inputs.list]), tmp_path / "run")
    assert job.codes() == [0] * size
    assert inputs.visible(tmp_path / "x") == inputs.complete
    report = verify(tmp_path / "x")
    assert (report.clean, report.parts) == (True, len(COUNTS))


@pytest.mark.parametrize("seed", range(6))
def test_killed_and_run_again_until_it_is_done(inputs: Inputs, tmp_path: Path, seed: int) -> None:
    campaign = Campaign(inputs, tmp_path, seed)
    campaign.run_until_done()
    assert campaign.codes[-signal.SIGKILL] > 0, "no kill fired"
    check_complete(inputs, campaign.directory, several=1 + seed % 3)


@pytest.mark.slow
def test_many_campaigns(inputs: Inputs, tmp_path: Path) -> None:
    """`GUIDELOOM_SLURM_SEEDS=N` for another number of them, `FIRST:LAST` for some."""
    codes: Counter[int] = Counter()
    first, _, last = os.environ.get("GUIDELOOM_SLURM_SEEDS", "200").rpartition(":")
    runs = 0
    for seed in range(int(first or 0), int(last)):
        campaign = Campaign(inputs, tmp_path / str(seed), 1000 + seed)
        campaign.run_until_done()
        check_complete(inputs, campaign.directory, several=1 + seed % 3)
        codes += campaign.codes
        runs += campaign.runs
    print(f"{runs} runs, processes by exit code: {dict(codes)}")
    assert codes[-signal.SIGKILL] > sum(codes.values()) // 10


def check_complete(inputs: Inputs, directory: Path, several: int) -> None:
    """Nothing lost, nothing twice: without consolidation, then with it, by several at once."""
    assert inputs.visible(directory) == inputs.complete
    job = Job(
        processes("srun", several, [directory, inputs.list, "--consolidate"]),
        directory.parent / "consolidate",
    )
    assert job.codes() == [0] * several
    said = {job.said(rank, "out") for rank in range(several)}
    assert len(said) == 1
    assert f" parts, {sum(COUNTS)} documents\n" in said.pop()
    assert inputs.visible(directory) == inputs.complete
    version = storage(directory).consolidate().version
    assert inputs.visible(directory, version) == inputs.complete
    assert verify(directory).clean
    before = sorted((directory / "commits").iterdir())
    last = Job(processes("mpirun", 3, [directory, inputs.list]), directory.parent / "last")
    assert last.codes() == [0, 0, 0]
    assert sorted((directory / "commits").iterdir()) == before, "the last run added something"


def test_a_job_that_is_not_done_is_not_consolidated(inputs: Inputs, tmp_path: Path) -> None:
    arguments = [tmp_path / "x", inputs.list]
    assert Job(processes("srun", 2, arguments)[:1], tmp_path / "run").codes() == [0]
    job = Job(processes("srun", 1, [*arguments, "--consolidate"]), tmp_path / "consolidate")
    assert job.codes() == [1]
    assert job.said(0) == (
        "write.py: 5 of 11 shards are not finished (1, 3, 5, 7, 9); run the job again\n"
    )
    assert not (tmp_path / "x/manifest.json").exists()


def test_sigterm_loses_nothing(inputs: Inputs, tmp_path: Path) -> None:
    """What was appended by then is committed, whole documents of one shard in one part."""
    arguments = [tmp_path / "x", inputs.list]
    rng = random.Random(1)
    stopped = 0
    for _ in range(100):
        ends = {rank: {"signal": signal.SIGTERM, "at": rng.randint(0, 150)} for rank in range(2)}
        codes = Job(processes("srun", 2, arguments, ends), tmp_path / "run").codes()
        assert set(codes) <= {0, STOPPED, -signal.SIGTERM}
        stopped += codes.count(STOPPED)
        if set(codes) == {0}:
            break
    else:
        pytest.fail("not done after 100 runs")
    assert stopped
    assert inputs.visible(tmp_path / "x") == inputs.complete
    assert not list((tmp_path / "x/owners").iterdir())
    assert len(list((tmp_path / "x/data/0000").iterdir())) == 4 * verify(tmp_path / "x").parts


def test_another_list_is_refused(inputs: Inputs, tmp_path: Path) -> None:
    assert Job(processes("srun", 1, [tmp_path / "x", inputs.list]), tmp_path / "a").codes() == [0]
    names = inputs.list.read_text().splitlines()
    other = tmp_path / "list"
    other.write_text("\n".join([*names[:2], *names[3:]]))
    for more in ([], ["--consolidate"]):
        job = Job(processes("srun", 1, [tmp_path / "x", other, *more]), tmp_path / "b")
        assert job.codes() == [1]
        assert job.said(0) == (
            f"write.py: shard 2 was made from {names[2]}, the list says {names[3]}; a job's list "
            "never changes. Make another dataset for another list\n"
        )
    assert inputs.visible(tmp_path / "x") == inputs.complete


def test_a_dead_process_of_another_machine(inputs: Inputs, tmp_path: Path) -> None:
    """Nobody here knows whether it is dead: refused, unless the job says --take-over."""
    arguments = [tmp_path / "x", inputs.list, "--commit-mib", COMMIT_MIB]
    killed = {rank: {"signal": signal.SIGKILL, "at": 60 + 30 * rank} for rank in range(3)}
    assert Job(processes("srun", 3, arguments, killed), tmp_path / "a").codes() == [-9] * 3
    notes = list((tmp_path / "x/owners").iterdir())
    assert notes
    for note in notes:
        move_to_another_machine(note)
    job = Job(processes("srun", 3, arguments), tmp_path / "b")
    codes = job.codes()
    assert codes.count(1) == len(notes)
    refused = job.said(codes.index(1))
    assert refused.startswith("write.py: shard ")
    assert "host elsewhere, pid " in refused
    job = Job(processes("mpiexec", 2, [*arguments, "--take-over"]), tmp_path / "c")
    assert job.codes() == [0, 0], job.said(0) + job.said(1)
    check_complete(inputs, tmp_path / "x", several=1)


def move_to_another_machine(note: Path) -> None:
    members = json.loads(note.read_text())
    del members["crc32c"]
    members |= {"host": "elsewhere", "machine": "other", "boot": "other", "pid_namespace": "other"}
    note.write_bytes(sealed(json.dumps(members)[:-1].encode()))


@pytest.mark.parametrize("take_over", [False, True])
def test_two_jobs_at_once(inputs: Inputs, tmp_path: Path, take_over: bool) -> None:
    """A mistake, also to say that the others are dead: some are refused, nothing is there twice."""
    more = ["--take-over"] if take_over else []
    arguments = [tmp_path / "x", inputs.list, "--commit-mib", COMMIT_MIB, *more]
    refused = 0
    Job.warm(2, tmp_path / "warm")
    for run in range(3):
        jobs = [
            Job(processes("srun", size, arguments), tmp_path / f"{run}-{size}") for size in (2, 3)
        ]
        for job in jobs:
            for rank, code in enumerate(job.codes()):
                if code:
                    assert code == 1
                    assert "writing since" in job.said(rank)
                    refused += 1
    assert refused
    assert Job(processes("srun", 1, arguments), tmp_path / "last").codes() == [0]
    check_complete(inputs, tmp_path / "x", several=1)


def test_as_a_user_runs_it(inputs: Inputs, tmp_path: Path) -> None:
    def run(*more: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(tmp_path / "x"), str(inputs.list), *more],
            env={**os.environ, "PYTHONWARNINGS": "error", **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert run(**slurm(0, 2)) == "rank 0 of 2\n6 shards written, 0 were finished before\n"
    assert run(**open_mpi(1, 2)) == "rank 1 of 2\n5 shards written, 0 were finished before\n"
    assert run() == "rank 0 of 1\n0 shards written, 11 were finished before\n"
    assert run("--consolidate") == "manifest version 1: 11 parts, 776 documents\n"
    assert inputs.visible(tmp_path / "x") == inputs.complete

"""Jobs that are killed and run again until they are done, as a schedule drawn from a seed says."""

from __future__ import annotations

import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from examples.slurm_jobs import SCHEDULERS, Inputs, Job, Process, processes, storage
from guideloom import verify

COMMIT_MIB = 0.002
FEW_CALLS = 100  # of the operating system: even one of many processes makes as many
MOST_CALLS = 400
MOST_SECONDS = 0.2
MOST_PROCESSES = 5
DISTURBED_RUNS = 5
STOPPED = 75
ENDS = {0, STOPPED, -signal.SIGTERM, -signal.SIGKILL}


@dataclass
class Campaign:
    """One dataset, made by a job that is run again and again.

    Args:
        inputs: of the job.
        folder: for the dataset and the output.
        seed: of everything that is drawn.
    """

    inputs: Inputs
    folder: Path
    seed: int
    codes: Counter[int] = field(default_factory=Counter)
    runs: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.directory = self.folder / "data"
        self._seen: dict[int, int] = {}

    def run_until_done(self) -> None:
        """The same command again, each time with other processes, until it has nothing to do."""
        while True:
            scheduler, size = self._draw_job()
            disturbed = {
                rank: self._draw_end()
                for rank in range(size)
                if self.runs == 0 or (self.runs < DISTURBED_RUNS and self.rng.random() < 0.7)
            }
            codes = self._run(scheduler, size, disturbed)
            where = f"seed {self.seed}, run {self.runs}, {scheduler}, {size} processes"
            for rank, code in enumerate(codes):
                allowed = ENDS if rank in disturbed else {0}
                assert code in allowed, f"{where}, rank {rank}: {code}, {self._job.said(rank)}"
            self.look(where)
            if self._seen:
                assert verify(self.directory).clean, where
            if set(codes) == {0}:
                return
            if self.rng.random() < 0.3 and self._seen:
                storage(self.directory).consolidate()

    def _draw_job(self) -> tuple[str, int]:
        size = self.rng.randint(1, MOST_PROCESSES)
        names = [name for name in SCHEDULERS if size % 2 == 0 or name != "array of srun"]
        return self.rng.choice(names), size

    def _draw_end(self) -> Process:
        if self.runs == 0:
            return {"signal": signal.SIGKILL, "at": self.rng.randint(0, FEW_CALLS)}
        end: Process = {"signal": self.rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))}
        if self.rng.random() < 0.7:
            end["at"] = self.rng.randint(0, MOST_CALLS)
        else:
            end["after"] = self.rng.uniform(0, MOST_SECONDS)
        return end

    def _run(self, scheduler: str, size: int, disturbed: dict[int, Process]) -> list[int]:
        arguments = [self.directory, self.inputs.list, "--commit-mib", COMMIT_MIB]
        started = processes(scheduler, size, arguments, disturbed)
        self.runs += 1
        self._job = Job(started, self.folder / f"run-{self.runs}")
        while self._job.running:
            self.look(f"seed {self.seed}, during run {self.runs}")
        codes = self._job.codes()
        self.codes.update(codes)
        return codes

    def look(self, where: str) -> None:
        """A reader sees the beginning of each shard, never less than one saw before."""
        lengths = self.inputs.visible(self.directory) or {}
        for shard, length in self._seen.items():
            assert lengths.get(shard, 0) >= length, f"{where}: shard {shard} became shorter"
        self._seen = lengths

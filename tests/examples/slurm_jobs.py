"""Jobs of the example for Slurm and MPI: inputs of which every byte is known, and environments."""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from format.document_cases import Plain
from guideloom import DatasetNotFoundError, DocumentBytesFormat, DocumentStorage

SCRIPT = Path(__file__).parents[2] / "examples" / "slurm" / "write.py"
LAUNCHER = Path(__file__).parent / "slurm_launcher.py"
SECONDS = 100
Process = dict[str, Any]


@cache
def example() -> Any:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("slurm_write", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def slurm(rank: int, size: int) -> dict[str, str]:
    """What srun says to a process."""
    return {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(size), "SLURM_JOB_ID": "7"}


def open_mpi(rank: int, size: int) -> dict[str, str]:
    """What mpirun says, in a batch job whose own variables are the same for all processes."""
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": str(size), "SLURM_JOB_ID": "7"}
    return {**batch, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(size)}


def hydra(rank: int, size: int) -> dict[str, str]:
    """What the mpiexec of MPICH and its relatives says."""
    return {"PMI_RANK": str(rank), "PMI_SIZE": str(size)}


def array(rank: int, size: int, *, first: int = 1, step: int = 1) -> dict[str, str]:
    """What sbatch --array says to a batch script that is itself the process."""
    return {
        "SLURM_PROCID": "0",
        "SLURM_ARRAY_TASK_ID": str(first + rank * step),
        "SLURM_ARRAY_TASK_COUNT": str(size),
        "SLURM_ARRAY_TASK_MIN": str(first),
        "SLURM_ARRAY_TASK_MAX": str(first + (size - 1) * step),
        "SLURM_ARRAY_TASK_STEP": str(step),
    }


def array_of_pairs(rank: int, size: int) -> dict[str, str]:
    """What srun says in a job array of which each job has two processes; `size` is even."""
    return {**array(rank // 2, size // 2, first=0, step=3), **slurm(rank % 2, 2)}


SCHEDULERS = {
    "srun": slurm,
    "mpirun": open_mpi,
    "mpiexec": hydra,
    "array": array,
    "array of srun": array_of_pairs,
}


@dataclass(frozen=True)
class Inputs:
    """Input files with lines that say where they belong; some files and some lines are empty."""

    folder: Path
    counts: Sequence[int]
    seed: int = 0
    documents: list[list[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        self.folder.mkdir(parents=True, exist_ok=True)
        names = []
        for task, count in enumerate(self.counts):
            lines = [
                b"" if rng.random() < 0.1 else b"%d/%d;" % (task, k) * rng.randrange(1, 60)
                for k in range(count)
            ]
            path = self.folder / f"{task:03}.txt"
            end = b"" if lines and lines[-1] and task % 2 else b"\n" * bool(lines)
            path.write_bytes(b"\n".join(lines) + end)
            names.append(f"{path}\n")
            self.documents.append(lines)
        self.list.write_text("".join(names))

    @property
    def list(self) -> Path:
        """The list of the input files."""
        return self.folder / "list"

    def visible(self, directory: Path, version: int | None = None) -> dict[int, int] | None:
        """Documents that a reader finds in each shard, all of them checked; None: no dataset."""
        storage = DocumentStorage(directory, Plain(), version=version)
        try:
            with storage.sync_reader() as reader:
                found = reader[:]
        except DatasetNotFoundError:
            return None
        lengths: dict[int, int] = {}
        for shard, run in itertools.groupby(found, key=lambda sample: sample[1]):
            assert shard > max(lengths, default=-1), "shards out of order"
            documents = [document for document, _ in run]
            assert documents == self.documents[shard][: len(documents)], f"shard {shard} is wrong"
            lengths[shard] = len(documents)
        return lengths

    @property
    def complete(self) -> dict[int, int]:
        """What `visible` says when the job is done: nothing is lost, nothing there twice."""
        return {shard: count for shard, count in enumerate(self.counts) if count}


class Job:
    """One run of a job.

    Args:
        processes: what they are given, see the launcher.
        folder: for their output.
    """

    _idle: ClassVar[list[subprocess.Popen[str]]] = []

    def __init__(self, processes: Sequence[Process], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._launcher = self._idle.pop() if self._idle else self._new_launcher()
        assert self._launcher.stdin is not None
        job = {"folder": str(folder), "processes": list(processes)}
        self._launcher.stdin.write(json.dumps(job) + "\n")
        self._launcher.stdin.flush()

    @staticmethod
    def _new_launcher() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "error", str(LAUNCHER), str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def running(self) -> bool:
        """Whether a process may still write."""
        return not self._answered(0)

    def codes(self) -> list[int]:
        """Their exit codes, when all have ended."""
        assert self._answered(SECONDS), f"a process of {self.folder} does not end"
        assert self._launcher.stdout is not None
        codes: list[int] = json.loads(self._launcher.stdout.readline())
        self._idle.append(self._launcher)
        return codes

    def said(self, rank: int, end: str = "err") -> str:
        """What a process wrote to its standard error or, with "out", to its standard output."""
        return (self.folder / f"{rank}.{end}").read_text()

    def _answered(self, seconds: float) -> bool:
        assert self._launcher.stdout is not None
        return bool(select.select([self._launcher.stdout], [], [], seconds)[0])

    @classmethod
    def warm(cls, count: int, folder: Path) -> None:
        """Have so many launchers ready, so that as many jobs start at the same time."""
        for job in [cls([], folder) for _ in range(count)]:
            assert job.codes() == []

    @classmethod
    def end_launchers(cls) -> None:
        """No more jobs."""
        while cls._idle:
            with cls._idle.pop() as launcher:
                assert launcher.stdin is not None
                launcher.stdin.close()


def processes(
    scheduler: str,
    size: int,
    arguments: Sequence[object],
    more: Mapping[int, Process] | None = None,
) -> list[Process]:
    """The processes of a job, with something special for some ranks."""
    given = [str(argument) for argument in arguments]
    return [
        {
            "environment": SCHEDULERS[scheduler](rank, size),
            "arguments": given,
            **(more or {}).get(rank, {}),
        }
        for rank in range(size)
    ]


def storage(directory: Path) -> DocumentStorage:
    return DocumentStorage(directory, DocumentBytesFormat())

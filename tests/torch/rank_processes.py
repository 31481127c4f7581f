"""Starts the ranks of a job as processes that know rank, number of ranks and a place to meet.

One process imports torch, once, and forks all ranks of all jobs; nobody looks after them: a rank
that fails ends as a script does, and the others learn of it by what gloo tells them, or never.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch.distributed as dist

from .rank_jobs import JOBS

ENVIRONMENT = {
    "GLOO_SOCKET_IFNAME": "lo",
    "MASTER_ADDR": "127.0.0.1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",  # no thread when it forks
}
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class End:
    """How a rank ended.

    Attributes:
        status: of its process; None if it had not ended in time and was killed.
        seconds: from the start of the job.
        text: what it printed.
    """

    status: int | None
    seconds: float
    text: str


class Ranks:
    """The process that forks them. A context manager."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.torch.rank_processes"],
            cwd=REPOSITORY,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()

    def run(self, job: str, folder: Path, ranks: int, limit: float, **arguments: Any) -> list[End]:
        """How each rank ended; none takes longer than `limit` seconds."""
        folder.mkdir(exist_ok=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        what = {"job": job, "folder": str(folder), "ranks": ranks, "limit": limit}
        self._process.stdin.write(json.dumps({**what, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        ends = json.loads(self._process.stdout.readline())
        return [
            End(status, seconds, (folder / f"rank-{rank}.log").read_text())
            for rank, (status, seconds) in enumerate(ends)
        ]


def main() -> None:
    """Fork the ranks of a job for each line, wait for them, and print how they ended.

    Started by torchrun, with a folder and arguments, this process is a rank.
    """
    if len(sys.argv) > 1:
        dist.init_process_group("gloo")
        JOBS["train"](Path(sys.argv[1]), **json.loads(sys.argv[2]))
        return
    gc.freeze()  # so that ranks need not copy what they never look at
    while line := sys.stdin.readline():
        what = json.loads(line)
        begin = time.monotonic()
        pids = []
        for rank in range(what["ranks"]):
            pid = os.fork()
            if not pid:
                _be(rank, what)
                return
            pids.append(pid)
        print(json.dumps(_ends(pids, begin, what["limit"])), flush=True)


def _be(rank: int, what: dict[str, Any]) -> None:
    """One rank, from start to end."""
    folder = Path(what["folder"])
    log = os.open(folder / f"rank-{rank}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    meeting = f"file://{folder / 'meeting'}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=what["ranks"])
    JOBS[what["job"]](folder, **what["arguments"])
    dist.destroy_process_group()


def _ends(pids: list[int], begin: float, limit: float) -> list[tuple[int | None, float]]:
    """Status and seconds of each process; those that take too long are killed."""
    ends: dict[int, tuple[int | None, float]] = {}
    while len(ends) < len(pids):
        seconds = time.monotonic() - begin
        for pid in [pid for pid in pids if pid not in ends]:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                ends[pid] = (os.waitstatus_to_exitcode(status), seconds)
            elif seconds > limit:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
                ends[pid] = (None, seconds)
        time.sleep(0.005)
    return [ends[pid] for pid in pids]


if __name__ == "__main__":
    main()

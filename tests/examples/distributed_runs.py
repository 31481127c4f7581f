"""Runs of the distributed examples: started, killed, and what each rank was given."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from guideloom import EpochPlan, StreamDataset, StreamNumpyFormat, StreamStorage

EXAMPLES = Path(__file__).parents[2] / "examples" / "distributed"
CONTEXT, GLOBAL_BATCH, SEED = 32, 12, 7
WITHOUT_LAUNCHER = ("jax_plan.py",)
LIMIT = 240
Rows = dict[int, list[int]]


def start(script: str, dataset: Path, run: Path, rows: Path, *, ranks: int, steps: int) -> None:
    """Start all its ranks, in processes of their own; what they print goes to one file."""
    arguments = [str(EXAMPLES / script), str(dataset), str(run)]
    arguments += ["--steps", str(steps), "--rows", str(rows)]
    if script in WITHOUT_LAUNCHER:
        commands = [[*arguments, *one] for one in _as_rank(ranks)]
    else:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        commands = [[*torchrun, *arguments]]
    environment = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "JAX_PLATFORMS": "cpu"}
    with rows.with_suffix(".log").open("wb") as file:
        _started[rows] = [
            subprocess.Popen(
                [sys.executable, *command],
                env={**os.environ, **environment},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            for command in commands
        ]


_started: dict[Path, list[subprocess.Popen[bytes]]] = {}


def _as_rank(ranks: int) -> Iterator[list[str]]:
    """What tells each rank which it is, and where the first one listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        where = f"127.0.0.1:{free.getsockname()[1]}"
    for rank in range(ranks):
        yield ["--rank", str(rank), "--world-size", str(ranks), "--coordinator", where]


def finish(rows: Path) -> None:
    """Wait for its end."""
    _wait(rows, lambda processes: all(process.poll() is not None for process in processes))
    _end(rows)


def kill_at(rows: Path, line: int) -> bool:
    """Kill all its processes once rank 0 has done so many steps; whether they still ran."""
    first = rows / "rank-0.jsonl"
    _wait(rows, lambda _: _lines(first) >= line)
    return _end(rows)


def _wait(rows: Path, enough: Callable[[list[subprocess.Popen[bytes]]], bool]) -> None:
    """Until it is enough, all have ended, or one has failed; an error if that takes too long."""
    processes = _started[rows]
    deadline = time.monotonic() + LIMIT
    while not enough(processes) and not any(process.poll() for process in processes):
        if all(process.poll() == 0 for process in processes):
            return
        if time.monotonic() > deadline:
            _end(rows)
            raise AssertionError(f"not done after {LIMIT} s: {_printed(rows)}")
        time.sleep(0.005)


def _end(rows: Path) -> bool:
    """Kill what is left of it; whether it still ran. An error if anything has failed before."""
    processes = _started.pop(rows)
    ended = [process.poll() for process in processes]
    for pid in _pids_of(rows):  # torchrun's children are in sessions of their own
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in processes:
        process.wait(LIMIT)
    assert not any(ended), _printed(rows)
    return None in ended


def _printed(rows: Path) -> str:
    return rows.with_suffix(".log").read_text()[-6000:]


def _pids_of(rows: Path) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.fsencode(rows) in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def given(rows: Path, ranks: int) -> Rows:
    """The rows of each step in the global order, as far as all ranks had them."""
    of_ranks = []
    for rank in range(ranks):
        text = (rows / f"rank-{rank}.jsonl").read_text() if rows.exists() else ""
        whole = [json.loads(line) for line in text.split("\n")[:-1]]
        of_ranks.append({line["step"]: line["rows"] for line in whole})
    steps = set.intersection(*map(set, of_ranks))
    return {
        step: [row for deal in zip(*(rank[step] for rank in of_ranks), strict=True) for row in deal]
        for step in sorted(steps)
    }


def expected(dataset: Path, steps: int) -> Rows:
    """The rows of each step, from plan and reader alone."""
    storage = StreamStorage(dataset, StreamNumpyFormat([("tokens", "u1")]))
    found: Rows = {}
    with StreamDataset(storage, CONTEXT + 1, CONTEXT).sync_reader() as reader:
        epoch = 0
        while len(found) < steps:
            plan = EpochPlan(
                len(reader), seed=SEED, epoch=epoch, shuffle=True, local_batch_size=GLOBAL_BATCH
            )
            for step in range(min(len(plan), steps - len(found))):
                tokens = reader.gather(plan.sample_ids(step))["tokens"]
                found[len(found) + 1] = [zlib.crc32(row.tobytes()) for row in tokens]
            epoch += 1
    assert epoch > 1, "the steps are not enough to pass the border of an epoch"
    return found

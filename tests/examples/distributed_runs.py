"""Runs of the distributed examples: started by torchrun, killed, and what each rank was given."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

from guideloom import EpochPlan, StreamDataset, StreamNumpyFormat, StreamStorage

EXAMPLES = Path(__file__).parents[2] / "examples" / "distributed"
CONTEXT, GLOBAL_BATCH, SEED = 32, 12, 7
LIMIT = 240
Rows = dict[int, list[int]]


def start(script: str, dataset: Path, run: Path, rows: Path, *, ranks: int, steps: int) -> Path:
    """Start it in processes of its own; the file that gets a line for each step of rank 0."""
    log = rows.with_suffix(".log")
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", str(ranks), str(EXAMPLES / script), str(dataset), str(run)),
        *("--steps", str(steps), "--rows", str(rows)),
    ]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _started[rows] = process
    return rows / "rank-0.jsonl"


_started: dict[Path, subprocess.Popen[bytes]] = {}


def finish(rows: Path) -> None:
    """Wait for its end."""
    status = _started.pop(rows).wait(LIMIT)
    assert status == 0, rows.with_suffix(".log").read_text()[-6000:]


def kill_at(rows: Path, line: int) -> bool:
    """Kill all its processes once rank 0 has done so many steps; whether they still ran."""
    process = _started.pop(rows)
    first = rows / "rank-0.jsonl"
    deadline = time.monotonic() + LIMIT
    while process.poll() is None and _lines(first) < line:
        assert time.monotonic() < deadline, rows.with_suffix(".log").read_text()[-6000:]
        time.sleep(0.005)
    running = process.poll() is None
    for pid in _pids_of(rows):  # torchrun's children are in sessions of their own
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(LIMIT)
    return running


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
    return found

"""Processes that write one dataset side by side are killed at random times, again and again.

    python -m write.kill_campaign NUMBER [SEED]

Four processes write shards of their own, with the kind of data in turn. Each is killed by SIGKILL
after a random time, all are started again, and so on until each had a number of kills; then they
end undisturbed. After each round a reader must see all that was acknowledged, whole commits of
each shard, and every byte right; after the last one all of the content. Prints how many SIGKILLs
hit a process at work and how many of these did harm.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guideloom_read import verify
from guideloom_write._files import PosixFiles
from write.known_content import COMMIT, Script, lengths_of, parts_of
from write.strace_cases import place_in_memory
from write.traced_writer import KINDS, Job, do_job, prepare_process

WRITERS = 4
ROUNDS = 4


@dataclass(frozen=True)
class Trial:
    """One dataset that is written with interruptions."""

    kind: str
    directory: Path
    seed: int

    def job(self, rank: int) -> Job:
        """Three shards of its own, in many small commits."""
        source = random.Random(self.seed * WRITERS + rank)
        script: list[tuple[int, int] | None] = []
        for _ in range(6):
            shards = source.sample(range(3), source.randint(1, 3))
            script += [(WRITERS * shard + rank, source.randint(0, 40)) for shard in shards]
            script.append(COMMIT)
        return Job(self.kind, str(self.directory), script, most_open=2, buffer=65536)

    def log(self, rank: int, turn: int) -> Path:
        """Where the process says what is committed, in this round."""
        return self.directory.parent / f"log-{rank}-{turn}"

    def said(self, rank: int, turn: int) -> list[dict[str, Any]]:
        """What it said there; a line that was cut off was not said."""
        log = self.log(rank, turn)
        lines = log.read_bytes().split(b"\n")[:-1] if log.exists() else []
        return [json.loads(line) for line in lines]

    def committed(self, turn: int) -> dict[int, int]:
        """The lengths of shards that were committed for certain in the rounds up to this one."""
        lengths: dict[int, int] = {}
        for rank, past in itertools.product(range(WRITERS), range(turn + 1)):
            for said in self.said(rank, past):
                for shard, length in said.get("committed", {}).items():
                    lengths[int(shard)] = max(length, lengths.get(int(shard), 0))
        return lengths


def work(trial: Trial, rank: int, turn: int) -> None:
    """What one process does: its job, saying each commit that returned."""
    log = os.open(trial.log(rank, turn), os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def say(**what: Any) -> None:
        os.write(log, json.dumps(what).encode() + b"\n")

    say(begin=rank)
    do_job(trial.job(rank), PosixFiles(), say)
    say(end=rank)


def possible_lengths(script: Script) -> dict[int, set[int]]:
    """The lengths that each shard has after a commit, or before the first one."""
    lengths: dict[int, set[int]] = {}
    at: dict[int, int] = {}
    for (shard, _), length in parts_of(script).items():
        at[shard] = at.get(shard, 0) + length
        lengths.setdefault(shard, {0}).add(at[shard])
    return lengths


def check(trial: Trial, turn: int) -> None:
    """After this round a reader sees what is committed for certain, and whole commits."""
    known = KINDS[trial.kind]
    found = known.visible(trial.directory) or {}
    for rank in range(WRITERS):
        for shard, allowed in possible_lengths(trial.job(rank).script).items():
            assert found.get(shard, 0) in allowed, f"shard {shard} has {found.get(shard)}"
    for shard, length in trial.committed(turn).items():
        assert found.get(shard, 0) >= length, f"shard {shard} lost a commit"
    if (trial.directory / "guideloom.json").exists():
        report = verify(trial.directory)
        assert report.clean, report.faults


def start(trial: Trial, turn: int) -> list[int]:
    """Fork all processes: their pids. A fork works within milliseconds, when kills begin."""
    pids = []
    for rank in range(WRITERS):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                work(trial, rank, turn)
                status = 0
            except BaseException:  # noqa: BLE001  # a child must never return into the campaign
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(status)
        pids.append(pid)
    return pids


def ends(pids: list[int]) -> list[int]:
    """How the processes ended, as `os.waitstatus_to_exitcode` says it."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def kill_all(trial: Trial, turn: int, source: random.Random, longest: float) -> int:
    """Start all, kill each after a time of its own; how many were at work."""
    begun = time.monotonic()
    pids = start(trial, turn)
    times = sorted((source.uniform(0, longest), pid) for pid in pids)
    for after, pid in times:
        time.sleep(max(0.0, begun + after - time.monotonic()))
        os.kill(pid, signal.SIGKILL)
    hit = 0
    for rank, status in enumerate(ends(pids)):
        assert status in (0, -signal.SIGKILL), f"a writer ended with {status}"
        said = trial.said(rank, turn)
        hit += status != 0 and bool(said) and "end" not in said[-1]
    return hit


def finish(trial: Trial) -> float:
    """Let all end their jobs; how long it took."""
    begun = time.monotonic()
    assert ends(start(trial, ROUNDS)) == [0] * WRITERS
    seconds = time.monotonic() - begun
    wanted: dict[int, int] = {}
    for rank in range(WRITERS):
        wanted |= lengths_of(parts_of(trial.job(rank).script))
    assert KINDS[trial.kind].visible(trial.directory) == wanted
    check(trial, ROUNDS)
    return seconds


def campaign(kills: int, seed: int) -> tuple[int, int]:
    """(SIGKILLs that hit a process at work, trials that went wrong)."""
    source = random.Random(seed)
    prepare_process()
    kinds = list(KINDS)
    tried = bad = number = 0
    with place_in_memory() as place:
        (place / "first").mkdir()
        longest = finish(Trial(kinds[0], place / "first/x", seed))
        while tried < kills:
            number += 1
            folder = place / str(number)
            trial = Trial(kinds[number % len(kinds)], folder / "x", source.getrandbits(32))
            folder.mkdir()
            try:
                for turn in range(ROUNDS):
                    tried += kill_all(trial, turn, source, longest)
                    check(trial, turn)
                finish(trial)
            except Exception as error:  # noqa: BLE001  # the campaign goes on
                bad += 1
                print(f"seed {seed}, trial {number}: {error!r}", file=sys.stderr)
            shutil.rmtree(folder)
    return tried, bad


def main(arguments: list[str]) -> int:
    kills = int(arguments[0])
    seed = int(arguments[1]) if len(arguments) > 1 else random.SystemRandom().getrandbits(32)
    begun = time.monotonic()
    tried, bad = campaign(kills, seed)
    seconds = time.monotonic() - begun
    print(f"{tried} SIGKILLs, {bad} bad, seed {seed}, {seconds:.0f} s")
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) != 0)

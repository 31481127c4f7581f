"""Workers and parents are killed, and loaders started, again and again, at random.

    uv run python -m tests.torch.process_campaign WHAT NUMBER [SEED] [METHOD]

WHAT is "parents" (killed at any time), "served" (parents, killed after their first batch),
"workers" or "starts". METHOD is a start method; all in turn when left out, but for "parents", for
which it is "fork", since the others begin within seconds. Prints how many trials there were and how
many were wrong, with the seeds of those.
"""

from __future__ import annotations

import functools
import logging
import random
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .loader_cases import within
from .process_cases import METHODS, busy, by_processes, load, steps_of, write
from .process_victims import kill_a_worker, kill_the_parent

LIMIT = {"fork": 30.0, "forkserver": 30.0, "spawn": 120.0}  # seconds; 8 import torch at once


def start(directory: Path, seed: int, method: str) -> bool:
    """A start beside busy threads, after reads, of up to 8 workers; whether there were threads."""
    source = random.Random(seed)
    workers, threads = source.choice((0, 1, 2, 8)), source.choice((0, 0, 1, 3))
    wanted = steps_of(load("stream", directory))
    handler = logging.StreamHandler()
    stop = threading.Event()
    locks = (threading.Lock(), handler.lock or threading.Lock())
    others = [
        threading.Thread(target=busy, args=(stop, source.choice(locks)), daemon=True)
        for _ in range(threads)
    ]
    for thread in others:
        thread.start()
    try:
        options = by_processes(method, workers, prefetch=source.choice((0, 3)))
        with load("stream", directory, **options) as loader:
            if source.random() < 0.5:
                loader._pinned.reader()[np.arange(3)]
            assert within(LIMIT[method], lambda: steps_of(loader)) == wanted
    finally:
        stop.set()
        for thread in others:
            thread.join()
    return threads > 0


TRIALS: dict[str, Callable[[Path, int, str], bool]] = {
    "parents": kill_the_parent,
    "served": functools.partial(kill_the_parent, at_work=True),
    "workers": kill_a_worker,
    "starts": start,
}
TELLS = {
    "parents": "had delivered a batch",
    "served": "had delivered a batch",
    "workers": "were an error for the loop",
    "starts": "beside busy threads",
}


def campaign(what: str, number: int, seed: int, methods: tuple[str, ...]) -> tuple[int, int]:
    """(trials that were bad, trials of which `TELLS` is true)."""
    source = random.Random(seed)
    bad = told = 0
    with tempfile.TemporaryDirectory() as place:
        directory = write("stream", Path(place) / "stream")
        for k in range(number):
            one, method = source.getrandbits(32), methods[k % len(methods)]
            try:
                told += TRIALS[what](directory, one, method)
            except Exception:  # noqa: BLE001  # the campaign goes on
                bad += 1
                print(f"{what}, {method}, seed {one}:", file=sys.stderr)
                traceback.print_exc()
    return bad, told


def main(arguments: list[str]) -> int:
    what, number = arguments[0], int(arguments[1])
    seed = int(arguments[2]) if len(arguments) > 2 else random.SystemRandom().getrandbits(32)
    methods = tuple(arguments[3:]) or (("fork",) if what == "parents" else METHODS)
    begin = time.monotonic()
    bad, told = campaign(what, number, seed, methods)
    seconds = time.monotonic() - begin
    print(
        f"{number} {what} with {', '.join(methods)}: {bad} bad, {told} {TELLS[what]}, "
        f"seed {seed}, {seconds:.0f} s"
    )
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) != 0)

"""Fuzz the parsers: `uv run --with atheris python fuzz/campaign.py --seconds 60`, or some by name.

Each target runs in a process of its own, from the inputs in `corpus/` and the seeds that it makes
itself. What makes it fail is left in `fuzz/found/`; inputs that reach something new are added to
`corpus/`, if asked for, as far as there is room.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from targets import CORPUS, NAMES, load

HERE = Path(__file__).resolve().parent
FOUND = HERE / "found"
LONGEST_INPUT = 16384
MOST_BYTES = 100_000
HANG_SECONDS = 60


@dataclass(frozen=True)
class Outcome:
    """What a run of one target came to."""

    name: str
    executions: int
    seconds: float
    coverage: int
    features: int
    inputs: int
    failed: bool

    def __str__(self) -> str:
        rate = self.executions / max(self.seconds, 1e-9)
        end = "FOUND SOMETHING" if self.failed else "nothing found"
        return (
            f"{self.name:17} {self.executions:>10,} inputs in {self.seconds:5.0f} s "
            f"{rate:>8,.0f}/s  coverage {self.coverage:5} features {self.features:6} "
            f"corpus {self.inputs:4}  {end}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}; all when left out")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="add to the corpus what is new")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in NAMES:
            parser.error(f"{name!r} is no target; there are {', '.join(NAMES)}")
    failed = False
    for name in arguments.names or NAMES:
        outcome = fuzz(name, arguments.seconds, arguments.seed, keep=arguments.keep)
        print(outcome, flush=True)
        failed |= outcome.failed
    return int(failed)


def fuzz(name: str, seconds: int, seed: int, *, keep: bool) -> Outcome:
    """Run one target."""
    with tempfile.TemporaryDirectory(prefix="guideloom-fuzz-") as scratch:
        fresh = Path(scratch) / "fresh"
        fresh.mkdir()
        for k, data in enumerate(load(name).seeds()):
            (fresh / f"seed-{k}").write_bytes(data)
        (CORPUS / name).mkdir(parents=True, exist_ok=True)
        FOUND.mkdir(exist_ok=True)
        before = time.monotonic()
        log, status = atheris(
            name,
            f"-max_total_time={seconds}",
            f"-seed={seed}",
            f"-artifact_prefix={FOUND}/{name}-",
            "-print_final_stats=1",
            fresh,
            CORPUS / name,
        )
        spent = time.monotonic() - before
        if status:
            print("\n".join(log.splitlines()[-40:]), file=sys.stderr)
        elif keep:
            keep_new(name, fresh, Path(scratch))
        return Outcome(
            name,
            last_number(r"stat::number_of_executed_units:\s+(\d+)", log),
            spent,
            last_number(r"cov: (\d+)", log),
            last_number(r"ft: (\d+)", log),
            len(list((CORPUS / name).iterdir())),
            status != 0,
        )


def atheris(name: str, *arguments: str | Path) -> tuple[str, int]:
    """Log and exit status of a process that fuzzes, or does something else with a corpus."""
    command = [
        sys.executable,
        str(HERE / "under_atheris.py"),
        name,
        f"-max_len={LONGEST_INPUT}",
        f"-timeout={HANG_SECONDS}",
        "-rss_limit_mb=0",
        *map(str, arguments),
    ]
    done = subprocess.run(command, capture_output=True, check=False)
    return done.stderr.decode("utf-8", "replace"), done.returncode


def keep_new(name: str, fresh: Path, scratch: Path) -> None:
    """Add to the corpus the inputs that it lacks, the shortest ones, as far as there is room.

    What is there already stays: some of it once made the target fail.
    """
    control = f"-merge_control_file={scratch}/merge"
    log, status = atheris(name, "-merge=1", control, CORPUS / name, fresh)
    if status:
        print(f"{name}: the corpus could not be merged\n{log[-2000:]}", file=sys.stderr)
    files = sorted((CORPUS / name).iterdir(), key=lambda file: file.stat().st_size)
    room = MOST_BYTES
    for file in files:
        room -= file.stat().st_size
        if room < 0 and re.fullmatch(r"[0-9a-f]{40}", file.name):
            file.unlink()


def last_number(pattern: str, log: str) -> int:
    found = re.findall(pattern, log)
    return int(found[-1]) if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""The whole way: write a dataset, train, kill a second training, resume it, compare bit by bit.

Takes about a minute on two cores and needs neither GPU nor network.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from compare import LOG, DifferenceError, compare_runs, count_steps, read_log
from dataset import SHARDS, storage

from guideloom import GuideLoomError

HERE = Path(__file__).parent
DEADLINE_SECONDS = 300


class StageError(Exception):
    """A stage did not do what it should."""


def demonstrate(
    folder: Path, steps: int, checkpoint_every: int, text_bytes: int, *, keep: bool
) -> None:
    """All stages, in `folder`, which the caller means to keep or not.

    Raises:
        StageError: a stage failed.
        DifferenceError: the resumed run differs from the uninterrupted one.
    """
    data = folder / "data"
    runs = Path(tempfile.mkdtemp(prefix="runs-", dir=folder))
    whole, killed = runs / "uninterrupted", runs / "killed"
    options = ("--steps", steps, "--checkpoint-every", checkpoint_every)
    train_whole = command("train.py", data, "--run", whole, *options)
    train_killed = command("train.py", data, "--run", killed, *options)
    half_of_the_checkpoints = steps // (2 * checkpoint_every)
    kill_at = half_of_the_checkpoints * checkpoint_every + checkpoint_every // 2

    say(f"Write the dataset {data}")
    run_to_the_end(command("write.py", data, "--bytes", text_bytes))
    tokens = show_dataset(data)
    say(f"Train {steps} steps without interruption")
    run_to_the_end(train_whole)
    say(f"Train again, and kill the process behind step {kill_at}")
    run_and_kill(train_killed, killed / LOG, kill_at)
    killed_at = count_steps(killed / LOG)
    say(f"Killed at step {killed_at}; start the same command again")
    print(" ".join(["python", *map(str, train_killed[1:])]))
    run_to_the_end(train_killed)

    say("Compare the killed and resumed run with the uninterrupted one")
    resumed_from = compare_runs(whole, killed, killed_at)
    losses = [float(loss) for _, loss in read_log(whole / LOG)]
    print(f"tokens             {tokens:,}")
    print(f"shards             {SHARDS}")
    print(f"steps              {steps}")
    print(f"loss               {losses[0]:.2f} -> {losses[-1]:.2f}")
    print(f"killed at step     {killed_at}")
    print(f"resumed from step  {resumed_from}")
    print(f"computed again     {killed_at - resumed_from} steps, from the same batches")
    print("losses             identical")
    print("weights            identical")
    if keep:
        print(f"kept in            {folder}")


def say(text: str) -> None:
    """Announce a stage."""
    print(f"\n== {text}", flush=True)


def command(script: str, *arguments: object) -> list[str]:
    """The command line that runs one of the scripts beside this one."""
    return [sys.executable, str(HERE / script), *map(str, arguments)]


def run_to_the_end(arguments: list[str]) -> None:
    """Run a command that has to succeed; it says itself why if it does not."""
    code = subprocess.run(arguments, check=False).returncode
    if code:
        raise StageError(f"{Path(arguments[1]).name} ended with exit code {code}")


def run_and_kill(arguments: list[str], log: Path, step: int) -> None:
    """Run a training, and kill it (SIGKILL) as soon as its log has `step` steps."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    process = subprocess.Popen(arguments)
    try:
        while process.poll() is None and count_steps(log) < step:
            if time.monotonic() > deadline:
                raise StageError(f"no step {step} after {DEADLINE_SECONDS} s")
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    if process.returncode != -signal.SIGKILL:
        raise StageError("the training ended before it could be killed; try more --steps")


def show_dataset(directory: Path) -> int:
    """Print what the dataset says of itself; the number of its tokens."""
    with storage(directory).sync_reader() as reader:
        print(json.dumps(dict(reader.header.user), indent=2))
        return len(reader)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="where to work and keep everything")
    parser.add_argument("--steps", type=int, default=300, help="(default: %(default)s)")
    parser.add_argument("--checkpoint-every", type=int, default=50, help="(default: %(default)s)")
    parser.add_argument("--bytes", type=int, default=8_000_000, help="limit for the text")
    options = parser.parse_args()
    if not 4 <= 2 * options.checkpoint_every <= options.steps:
        parser.error("--checkpoint-every must be at least 2 and at most half of --steps")
    with tempfile.TemporaryDirectory(prefix="guideloom-quickstart-") as temporary:
        folder = options.folder or Path(temporary)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            keep = options.folder is not None
            print(
                f"Takes about a minute. Works in {folder}{'' if keep else ', removed at the end'}."
            )
            demonstrate(folder, options.steps, options.checkpoint_every, options.bytes, keep=keep)
        except (StageError, DifferenceError, GuideLoomError, OSError) as error:
            sys.exit(f"run.py: {error}")
        except KeyboardInterrupt:
            sys.exit("run.py: interrupted")


if __name__ == "__main__":
    main()

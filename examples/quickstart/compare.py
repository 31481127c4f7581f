"""Compare two training runs bit by bit: losses as they were logged, and the final weights."""

import json
from itertools import zip_longest
from pathlib import Path

import numpy as np

LOG, WEIGHTS = "log.jsonl", "weights.npz"

Step = tuple[int, str]  # number and loss, as the log has it: nothing is rounded


class DifferenceError(Exception):
    """Two runs differ; the message has the first difference."""


def compare_runs(whole: Path, killed: Path, killed_at: int) -> int:
    """Compare a run that was killed and resumed with an uninterrupted one.

    Args:
        whole: folder of the uninterrupted run.
        killed: folder of the other run, whose log has the steps of both of its processes.
        killed_at: steps that the first process had logged.

    Returns:
        The step of the checkpoint that the second process went on from.

    Raises:
        DifferenceError: they differ, or the second process began anew.
    """
    expected, found = read_log(whole / LOG), read_log(killed / LOG)
    before, after = found[:killed_at], found[killed_at:]
    compare_losses(expected[:killed_at], before)
    resumed_from = after[0][0] - 1 if after else len(expected)
    if not 0 < resumed_from <= killed_at:
        raise DifferenceError(f"killed at step {killed_at}, but went on behind step {resumed_from}")
    compare_losses(expected[resumed_from:], after)
    compare_weights(whole / WEIGHTS, killed / WEIGHTS)
    return resumed_from


def count_steps(log: Path) -> int:
    """Steps logged so far; the log may not be there yet."""
    return log.read_bytes().count(b"\n") if log.exists() else 0


def read_log(log: Path) -> list[Step]:
    """The steps of a log, in the order they were logged; half a line at its end is none."""
    lines = log.read_bytes().split(b"\n")[:-1]
    records = [json.loads(line, parse_float=str) for line in lines]
    return [(record["step"], record["loss"]) for record in records]


def compare_losses(expected: list[Step], found: list[Step]) -> None:
    """Raise DifferenceError at the first step that is not exactly the same."""
    for one, other in zip_longest(expected, found, fillvalue=("missing", "none")):
        if one != other:
            raise DifferenceError(
                f"uninterrupted: step {one[0]}, loss {one[1]}; resumed: step {other[0]}, "
                f"loss {other[1]}"
            )


def compare_weights(expected: Path, found: Path) -> None:
    """Raise DifferenceError at the first array that is not the same, bit for bit."""
    with np.load(expected) as one, np.load(found) as other:
        if set(one) != set(other):
            raise DifferenceError(f"weights of one model only: {sorted(set(one) ^ set(other))}")
        for name in one:
            if one[name].tobytes() != other[name].tobytes():
                raise DifferenceError(f"the weights {name} differ")

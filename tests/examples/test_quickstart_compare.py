"""The quick-start's comparison finds every difference; it is not there to say "identical"."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from examples.quickstart_scripts import load_module

compare = load_module("compare")

STEPS, KILLED_AT, RESUMED_FROM = 9, 6, 4
ORDER = [*range(1, KILLED_AT + 1), *range(RESUMED_FROM + 1, STEPS + 1)]


def loss_of(step: int) -> float:
    return 5.0 / (step + 0.1)


def write_run(folder: Path, steps: list[int], loss: Callable[[int, int], float]) -> Path:
    """A run as train.py leaves it; `loss(line, step)`."""
    folder.mkdir()
    lines = [json.dumps({"step": step, "loss": loss(k, step)}) for k, step in enumerate(steps)]
    (folder / compare.LOG).write_text("".join(line + "\n" for line in lines))
    np.savez(folder / compare.WEIGHTS, a=np.arange(4.0), b=np.zeros((2, 3)))
    return folder


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return write_run(tmp_path / "whole", list(range(1, STEPS + 1)), lambda _, step: loss_of(step))


def test_equal_runs_pass(whole: Path, tmp_path: Path) -> None:
    killed = write_run(tmp_path / "killed", ORDER, lambda _, step: loss_of(step))
    assert compare.compare_runs(whole, killed, KILLED_AT) == RESUMED_FROM


@pytest.mark.parametrize("wrong", range(len(ORDER)))
def test_one_wrong_loss_is_found(whole: Path, tmp_path: Path, wrong: int) -> None:
    """Wrong in the last bit, on any line: before the kill, or after it."""

    def loss(line: int, step: int) -> float:
        right = loss_of(step)
        return math.nextafter(right, math.inf) if line == wrong else right

    killed = write_run(tmp_path / "killed", ORDER, loss)
    step = ORDER[wrong]
    message = f"uninterrupted: step {step}, loss {loss_of(step)}; resumed: step {step}, loss "
    with pytest.raises(compare.DifferenceError, match=re.escape(message)):
        compare.compare_runs(whole, killed, KILLED_AT)


@pytest.mark.parametrize("missing", range(len(ORDER)))
def test_a_missing_step_is_found(whole: Path, tmp_path: Path, missing: int) -> None:
    order = ORDER[:missing] + ORDER[missing + 1 :]
    killed = write_run(tmp_path / "killed", order, lambda _, step: loss_of(step))
    killed_at = KILLED_AT - (missing < KILLED_AT)
    if missing in (KILLED_AT - 1, KILLED_AT):
        # Without the last step before the kill, or the first behind it, the runs were killed or
        # resumed one step away: as good as the other.
        compare.compare_runs(whole, killed, killed_at)
        return
    with pytest.raises(compare.DifferenceError, match=r"^uninterrupted: step "):
        compare.compare_runs(whole, killed, killed_at)


@pytest.mark.parametrize("resumed_from", [0, KILLED_AT + 1])
def test_what_is_no_resume_is_found(whole: Path, tmp_path: Path, resumed_from: int) -> None:
    """Starting anew gives equal losses, too; and a step must not be left out at the kill."""
    order = [*range(1, KILLED_AT + 1), *range(resumed_from + 1, STEPS + 1)]
    killed = write_run(tmp_path / "killed", order, lambda _, step: loss_of(step))
    message = f"^killed at step 6, but went on behind step {resumed_from}$"
    with pytest.raises(compare.DifferenceError, match=message):
        compare.compare_runs(whole, killed, KILLED_AT)


def test_wrong_weights_are_found(whole: Path, tmp_path: Path) -> None:
    killed = write_run(tmp_path / "killed", ORDER, lambda _, step: loss_of(step))
    negative_zero = np.zeros((2, 3))
    negative_zero[1, 2] = -0.0
    np.savez(killed / compare.WEIGHTS, a=np.arange(4.0), b=negative_zero)
    with pytest.raises(compare.DifferenceError, match=r"^the weights b differ$"):
        compare.compare_runs(whole, killed, KILLED_AT)
    np.savez(killed / compare.WEIGHTS, a=np.arange(4.0))
    with pytest.raises(compare.DifferenceError, match=r"^weights of one model only: \['b'\]$"):
        compare.compare_runs(whole, killed, KILLED_AT)


def test_half_a_line_is_no_step(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    assert compare.count_steps(log) == 0
    log.write_text('{"step": 1, "loss": 0.1}\n{"step": 2, "lo')
    assert compare.count_steps(log) == 1
    assert compare.read_log(log) == [(1, "0.1")]

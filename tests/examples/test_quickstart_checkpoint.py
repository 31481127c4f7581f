"""The quick-start's checkpoints: `latest` names a whole one, whatever happened."""

import os
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException

from examples.quickstart_scripts import load_module

checkpoint = load_module("checkpoint")
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def loaded(run: Path) -> float:
    state = {"value": torch.zeros(1)}
    checkpoint.load(run, state)
    return state["value"].item()


def save(run: Path, step: int) -> None:
    checkpoint.save(run, step, {"value": torch.tensor([float(step)])})


def folders(run: Path) -> list[str]:
    return sorted(path.name for path in run.glob("step-*"))


def test_keeps_the_newest_two(tmp_path: Path) -> None:
    assert not checkpoint.exists(tmp_path)
    for step in range(5, 125, 10):
        save(tmp_path, step)
        assert checkpoint.exists(tmp_path)
        assert loaded(tmp_path) == step
        kept = [f"step-{kept:08d}" for kept in (step - 10, step) if kept > 0]
        assert folders(tmp_path) == kept


@pytest.mark.parametrize("died_in", ["replace", "fsync"])
def test_death_during_a_save_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died_in: str
) -> None:
    """What the dead attempt left is written anew, is not loaded, and pushes none out."""

    def die(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    save(tmp_path, 10)
    save(tmp_path, 20)
    with monkeypatch.context() as patched:
        patched.setattr(os, died_in, die)
        with pytest.raises((KeyboardInterrupt, CheckpointException)):  # torch wraps what it meets
            save(tmp_path, 40)
    assert "step-00000040" in folders(tmp_path)
    assert loaded(tmp_path) == 20
    save(tmp_path, 30)
    assert loaded(tmp_path) == 30
    assert folders(tmp_path) == ["step-00000020", "step-00000030", "step-00000040"]
    save(tmp_path, 40)
    assert loaded(tmp_path) == 40
    assert folders(tmp_path) == ["step-00000030", "step-00000040"]

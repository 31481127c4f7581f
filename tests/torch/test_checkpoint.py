"""torch.distributed.checkpoint saves a loader as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.stateful import Stateful

from guideloom import StateMismatchError

from .loader_cases import deliver, expected_run, make_loader, write_stream

# Said by every checkpoint of a single process.
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_stream(tmp_path / "stream", 11)


def test_a_loader_is_stateful(directory: Path) -> None:
    assert isinstance(make_loader(directory), Stateful)


@pytest.mark.parametrize("position", [0, 1, 4, 5, 7])
@pytest.mark.parametrize("seed", [None, 2**90])
def test_a_round_trip_through_a_checkpoint(
    directory: Path, tmp_path: Path, position: int, seed: int | None
) -> None:
    """Together with a model's weights; the loader that takes it is elsewhere before."""
    options: dict[str, Any] = {"seed": seed, "local_batch_size": 2}
    run = expected_run(11, 3, **options)
    loader = make_loader(directory, **options)
    left = position
    while left:
        for _ in loader:
            left -= 1
            if not left:
                break
    model = torch.nn.Linear(2, 1)
    save(
        {"model": model.state_dict(), "loader": loader},
        checkpoint_id=tmp_path / "checkpoint",
        no_dist=True,
    )
    resumed = make_loader(directory, num_workers=1, prefetch=2, **options)
    resumed.set_epoch(7)
    next(iter(resumed))
    load(
        {"model": model.state_dict(), "loader": resumed},
        checkpoint_id=tmp_path / "checkpoint",
        no_dist=True,
    )
    assert resumed.state_dict() == loader.state_dict()
    assert deliver(resumed, until_epoch=3) == run[position:]


def test_a_checkpoint_of_another_order_is_refused(directory: Path, tmp_path: Path) -> None:
    save({"loader": make_loader(directory, seed=1)}, checkpoint_id=tmp_path / "c", no_dist=True)
    loader = make_loader(directory, seed=2)
    with pytest.raises(StateMismatchError, match="has shuffle_seed 1, this loader has 2"):
        load({"loader": loader}, checkpoint_id=tmp_path / "c", no_dist=True)
    assert deliver(loader, until_epoch=1) == expected_run(11, 1, seed=2)


def test_torch_save_keeps_a_state(directory: Path, tmp_path: Path) -> None:
    """Also with weights_only, which refuses whatever is no plain value."""
    loader = make_loader(directory, seed=1)
    next(iter(loader))
    torch.save(loader.state_dict(), tmp_path / "state.pt")
    resumed = make_loader(directory, seed=1)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert deliver(resumed, until_epoch=2) == expected_run(11, 2, seed=1)[1:]

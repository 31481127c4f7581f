"""A wrong option is refused by its name, before anything is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom import StatefulDataLoader, StreamDataset, StreamNumpyFormat, StreamStorage

from .loader_cases import LENGTH, TOKENS, ids_of, write_stream


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_stream(tmp_path / "stream", 24)


def _storage(directory: Path) -> StreamStorage:
    return StreamStorage(directory, StreamNumpyFormat(TOKENS))


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"local_batch_size": 0}, ValueError, "local_batch_size is 0; expected between 1 and"),
        ({"local_batch_size": -3}, ValueError, "local_batch_size is -3; expected between 1 and"),
        ({"local_batch_size": True}, TypeError, "local_batch_size is True; expected an integer"),
        ({"local_batch_size": 2.0}, TypeError, r"local_batch_size is 2.0 \(float\); expected an"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank is 2; expected less than world_size 2"),
        ({"rank": 1}, ValueError, "rank is 1; expected less than world_size 1"),
        ({"rank": -1}, ValueError, "rank is -1; expected at least 0"),
        ({"rank": "0"}, TypeError, r"rank is '0' \(str\); expected an integer"),
        ({"world_size": 0}, ValueError, "world_size is 0; expected between 1 and"),
        ({"world_size": False}, TypeError, "world_size is False; expected an integer"),
        ({"num_workers": -1}, ValueError, "num_workers is -1; expected between 0 and 4096"),
        ({"num_workers": None}, TypeError, r"num_workers is None \(NoneType\); expected an"),
        ({"prefetch": -1}, ValueError, "prefetch is -1; expected between 0 and 1048576"),
        ({"prefetch": 1.5}, TypeError, r"prefetch is 1.5 \(float\); expected an integer"),
        ({"shuffle_seed": -1}, ValueError, "shuffle_seed is -1; expected at least 0"),
        ({"shuffle_seed": "a"}, TypeError, r"shuffle_seed is 'a' \(str\); expected an integer"),
        ({"shuffle_seed": True}, TypeError, "shuffle_seed is True; expected an integer"),
        ({"sequence_length": 0}, ValueError, "sequence_length is 0; expected between 1 and"),
        ({"stride": 0}, ValueError, "stride is 0; expected between 1 and"),
        ({"sequence_length": None}, TypeError, "from_storage needs sequence_length for a stream"),
        ({"workers": 2}, TypeError, "workers"),
    ],
)
def test_a_wrong_option_is_refused_by_name_before_anything_is_opened(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    options = {"sequence_length": LENGTH} | options
    with pytest.raises(error, match=text):
        StatefulDataLoader.from_storage(_storage(tmp_path / "nowhere"), **options)


@pytest.mark.parametrize("dataset", [[1, 2, 3], None, "a/path", np.arange(4)])
def test_what_is_no_dataset_is_refused(dataset: Any) -> None:
    text = f"dataset is {type(dataset).__name__}; expected a dataset such as StreamDataset, or use"
    with pytest.raises(TypeError, match=text):
        StatefulDataLoader(dataset)


def test_a_storage_is_no_dataset(directory: Path) -> None:
    """It has a reader as well, whose items are no samples: the text names the way out."""
    with pytest.raises(TypeError, match=r"dataset is StreamStorage; .*from_storage"):
        StatefulDataLoader(_storage(directory))  # type: ignore[arg-type]


def test_numpy_integers_are_welcome(directory: Path) -> None:
    loader = StatefulDataLoader(
        StreamDataset(_storage(directory), np.uint16(3)),  # type: ignore[arg-type]
        local_batch_size=np.int32(4),  # type: ignore[arg-type]
        rank=np.uint8(1),  # type: ignore[arg-type]
        world_size=np.int64(2),  # type: ignore[arg-type]
        num_workers=np.int16(1),  # type: ignore[arg-type]
        prefetch=np.int16(1),  # type: ignore[arg-type]
    )
    assert loader.global_batch_size == 8
    assert ids_of(next(iter(loader))) == [1, 3, 5, 7]
    assert type(loader.state_dict()["position"]) is int


@pytest.mark.parametrize("given", [{}, {"rank": 0}, {"world_size": 1}], ids=str)
@pytest.mark.parametrize("launched", ["2", "64", "0", "two"])
def test_a_launcher_without_a_process_group_is_refused(
    directory: Path, monkeypatch: pytest.MonkeyPatch, launched: str, given: dict[str, Any]
) -> None:
    """Otherwise every process would read the same samples, and nobody would notice."""
    monkeypatch.setenv("WORLD_SIZE", launched)
    dataset = StreamDataset(_storage(directory), LENGTH)
    message = (
        f"the environment has WORLD_SIZE={launched}, torch.distributed is not initialized, and "
        "rank and world_size were not both given: every process would read the same samples"
    )
    with pytest.raises(ValueError, match=message):
        StatefulDataLoader(dataset, **given)
    assert StatefulDataLoader(dataset, rank=0, world_size=1).global_batch_size == 1
    for single in ("1", " 1 ", "", " ", None):
        if single is None:
            monkeypatch.delenv("WORLD_SIZE")
        else:
            monkeypatch.setenv("WORLD_SIZE", single)
        assert StatefulDataLoader(dataset, **given).global_batch_size == 1


@pytest.mark.parametrize("launched", ["", "1", None])
@pytest.mark.parametrize("world_size", [2, 4, np.uint8(200), 2**31])
def test_several_processes_of_which_this_is_not_said(
    directory: Path, monkeypatch: pytest.MonkeyPatch, world_size: Any, launched: str | None
) -> None:
    """All of them would be rank 0."""
    if launched is None:
        monkeypatch.delenv("WORLD_SIZE", raising=False)
    else:
        monkeypatch.setenv("WORLD_SIZE", launched)
    dataset = StreamDataset(_storage(directory), LENGTH)
    text = r"^world_size is .*, rank is not given, and torch.distributed is not initialized: every"
    with pytest.raises(ValueError, match=text):
        StatefulDataLoader(dataset, world_size=world_size)
    one = StatefulDataLoader(dataset, world_size=world_size, rank=1)
    assert one.global_batch_size == world_size

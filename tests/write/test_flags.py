"""Flags of the writing side: no text, whose "False" would be true, removes or takes over files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom_format import StreamNumpyFormat, StreamStorage
from guideloom_write import ShardOptions, write_shards

WRONG: list[Any] = ["no", "False", "", None, [], 0.0, np.zeros(1), 2, -1]


def produce(task: int) -> list[Any]:
    return [{"tokens": np.arange(task, dtype=np.uint16)}]


CALLS: dict[str, Callable[[StreamStorage, Any], object]] = {
    "remove": lambda storage, flag: storage.clean(remove=flag),
    "resume": lambda storage, flag: write_shards(
        storage, {}, produce, workers=0, resume=flag, progress=False
    ),
    "take_over": lambda storage, flag: storage.sync_writer(take_over=flag),
    "take_over of tasks": lambda _, flag: ShardOptions(take_over=flag),
}


@pytest.mark.parametrize("name", CALLS)
def test_only_flags_are_flags(name: str, tmp_path: Path) -> None:
    storage = StreamStorage(tmp_path, StreamNumpyFormat(np.dtype([("tokens", "<u2")])))
    with storage.sync_writer() as writer:
        writer.append(0, {"tokens": np.arange(3, dtype=np.uint16)})
    before = sorted(path for path in tmp_path.rglob("*"))
    argument = name.split()[0]
    for wrong in WRONG:
        with pytest.raises((TypeError, ValueError), match=f"^{argument} is .*expected True or Fal"):
            CALLS[name](storage, wrong)
    for right in (False, np.False_, 0, np.uint8(0)):
        CALLS[name](storage, right)
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_bytes_between_commits_are_a_plain_integer() -> None:
    options = ShardOptions(commit_bytes=np.uint8(200))  # type: ignore[arg-type]
    assert (type(options.commit_bytes), options.commit_bytes) == (int, 200)

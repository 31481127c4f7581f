"""Calls of a writer of any kind: any sequence of them, and shards that all refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from guideloom_read import verify
from write.faulty_files import Watched
from write.known_content import Known, WriterT, garbage

each_wrong_shard = pytest.mark.parametrize(
    ("shard", "kind", "text"),
    [
        (-1, ValueError, "shard is -1; expected between 0 and 1000000000"),
        (10**9 + 1, ValueError, "shard is 1000000001; expected between 0 and 1000000000"),
        (True, TypeError, "shard is True; expected an integer"),
        (1.0, TypeError, r"shard is 1\.0 \(float\); expected an integer"),
        ("1", TypeError, r"shard is '1' \(str\); expected an integer"),
    ],
)


def check_calls(
    known_for: Callable[[str], Known[WriterT]],
    script: Sequence[tuple[Any, ...]],
    shards: int,
    directory: Path,
) -> None:
    """Two dicts say what is committed and what is pending; the writer agrees after each call.

    Args:
        known_for: from the name of an action with a shard and a count to how it appends.
        script: the actions: such ones, and "commit", "rollback", "reopen" and "fail".
        shards: how many there are.
        directory: where.
    """
    committed = dict.fromkeys(range(shards), 0)
    lengths = dict(committed)
    writer = known_for("append").writer(directory, Watched()).open()
    for action, *arguments in script:
        if arguments:
            shard, count = arguments
            known_for(action).append(writer, shard, lengths[shard], lengths[shard] + count)
            lengths[shard] += count
        elif action == "commit":
            writer.commit()
            committed = dict(lengths)
        else:
            if action == "rollback":
                writer.rollback()
            elif action == "reopen":
                writer.close()
                writer = known_for("append").writer(directory, Watched()).open()
            else:
                writer.__exit__(ValueError, ValueError(), None)
                writer.open()
            lengths = dict(committed)
        assert {shard: writer.length(shard) for shard in lengths} == lengths
        visible = known_for("append").visible(directory)
        assert visible == {shard: count for shard, count in committed.items() if count}
    writer.close()
    assert garbage(directory) == set()
    assert verify(directory).clean

"""Writers in several processes, and one with the limits that an operating system sets."""

from __future__ import annotations

import errno
import re
import socket
from pathlib import Path

from guideloom_read import verify
from write.known_content import garbage, storage, visible
from write.writer_processes import (
    ROUNDS,
    at_the_same_time,
    create_and_race,
    in_new_process,
    write_64_mib,
    write_many_shards,
    write_own_shards,
    write_past_the_size_limit,
)

RANKS = 4


def test_processes_that_create_one_dataset_and_fight_for_one_shard(tmp_path: Path) -> None:
    """One header, one winner; each loser is told who won; other shards are not disturbed."""
    outcomes = at_the_same_time(RANKS, create_and_race, tmp_path)
    for number in range(ROUNDS):
        ids = {outcomes[rank][number][0] for rank in range(RANKS)}
        conflicts = [outcomes[rank][number][1] for rank in range(RANKS)]
        winners = [rank for rank in range(RANKS) if conflicts[rank] is None]
        assert len(winners) == 1, f"round {number}: {winners} won"
        place = tmp_path / str(number)
        with storage(place).sync_reader() as reader:
            assert ids == {reader.header.dataset_id}
        own = {rank + 1: 100 + rank for rank in range(RANKS)}
        assert visible(place) == {0: 10 + winners[0], **own}
        assert garbage(place) == set()
        assert verify(place).clean
        record = (place / "commits/0000000-0000.json").read_text(encoding="ascii")
        pid = int(record.split('"pid": ')[1].split(",")[0])
        since = record.split('"since": "')[1].split('"')[0]
        for rank, text in enumerate(conflicts):
            if text is not None:
                assert text == (
                    "shard 0, part 0 was committed by another writer: host "
                    f"{socket.gethostname()}, pid {pid}, writing since {since}. {10 + rank} "
                    "elements of this writer were not committed. Give each shard to one writer; a "
                    "new writer goes on behind what is committed, see length()"
                )


def test_processes_with_shards_of_their_own(tmp_path: Path) -> None:
    pids = at_the_same_time(RANKS, write_own_shards, tmp_path / "x")
    assert len(set(pids)) == RANKS
    assert visible(tmp_path / "x") == dict.fromkeys(range(3 * RANKS), 100)
    report = verify(tmp_path / "x")
    assert (report.clean, report.parts) == (True, 6 * RANKS)
    assert garbage(tmp_path / "x") == set()


def test_many_shards_with_few_descriptors(tmp_path: Path) -> None:
    """300 shards at once with 64 descriptors for the process: parts give theirs back in turn."""
    most = in_new_process(write_many_shards, tmp_path / "x", 300, 64, 16)
    assert 64 // 8 < most <= 2 * (64 // 8) + 2
    assert visible(tmp_path / "x") == dict.fromkeys(range(300), 14)
    assert verify(tmp_path / "x").clean


def test_memory_stays_flat(tmp_path: Path) -> None:
    assert in_new_process(write_64_mib, tmp_path / "x") < 24 * 1024


def test_a_real_limit_on_the_size_of_files(tmp_path: Path) -> None:
    text, number = in_new_process(write_past_the_size_limit, tmp_path / "x")
    assert number == errno.EFBIG
    assert re.match(re.escape(str(tmp_path / "x")) + r": File too large \(errno 27\), file ", text)
    assert visible(tmp_path / "x") == {0: 1000}
    assert garbage(tmp_path / "x") == set()

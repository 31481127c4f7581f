"""What the documentation of `StreamWriter` promises."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guideloom_format import (
    CommitRecord,
    StreamStorage,
    WriteError,
    WriterStateError,
)
from guideloom_read import verify
from guideloom_write import StreamWriter
from write.call_cases import check_calls
from write.faulty_files import Watched
from write.known_content import (
    COMMIT,
    ELEMENT,
    KNOWN_ELEMENTS,
    Returned,
    all_files,
    elements,
    garbage,
    play,
    storage,
    visible,
    writer_at,
)


def test_append_commit_and_length(tmp_path: Path) -> None:
    with writer_at(tmp_path / "x") as writer:
        assert writer.length(0) == 0
        writer.append(0, elements(0, 0, 10))
        writer.append(5, elements(5, 0, 3))
        writer.append(0, elements(0, 10, 12))
        assert [writer.length(shard) for shard in (0, 5, 1)] == [12, 3, 0]
        assert visible(tmp_path / "x") == {}, "visible before the commit"
        writer.commit()
        assert [writer.length(shard) for shard in (0, 5, 1)] == [12, 3, 0]
        assert visible(tmp_path / "x") == {0: 12, 5: 3}
        writer.append(5, elements(5, 3, 4))
        assert writer.length(5) == 4
        assert visible(tmp_path / "x") == {0: 12, 5: 3}
    assert visible(tmp_path / "x") == {0: 12, 5: 4}
    assert garbage(tmp_path / "x") == set()


def test_a_restart_goes_on_from_length(tmp_path: Path) -> None:
    for total in (3, 3, 50, 60_000):
        with writer_at(tmp_path / "x") as writer:
            writer.append(2, elements(2, writer.length(2), total))
            assert writer.length(2) == total
        assert visible(tmp_path / "x") == {2: total}
    assert verify(tmp_path / "x").parts == 3


def test_rollback_forgets_what_was_not_committed(tmp_path: Path) -> None:
    with writer_at(tmp_path / "x") as writer:
        writer.append(0, elements(0, 0, 10))
        writer.commit()
        committed = all_files(tmp_path / "x")
        writer.append(0, elements(0, 10, 99))
        writer.append(1, elements(1, 0, 50_000))
        writer.rollback()
        assert all_files(tmp_path / "x") == committed | {"owners/0000001.json"}
        assert (writer.length(0), writer.length(1)) == (10, 0)
        writer.append(0, elements(0, 10, 15))
        writer.append(1, elements(1, 0, 2))
    assert visible(tmp_path / "x") == {0: 15, 1: 2}
    assert garbage(tmp_path / "x") == set()
    assert verify(tmp_path / "x").clean


def test_close_does_not_commit(tmp_path: Path) -> None:
    writer = writer_at(tmp_path / "x").open()
    writer.append(0, elements(0, 0, 10))
    writer.close()
    writer.close()
    assert visible(tmp_path / "x") == {}
    assert garbage(tmp_path / "x") == set()
    for call in (writer.commit, lambda: writer.length(0), lambda: writer.append(0, {})):
        with pytest.raises(WriterStateError, match="the writer is not open; use it in a with"):
            call()
    assert writer.open() is writer
    writer.append(0, elements(0, 0, 4))
    writer.commit()
    writer.close()
    assert visible(tmp_path / "x") == {0: 4}


def test_interleaved_shards(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lengths = dict.fromkeys(range(9), 0)
    with writer_at(tmp_path / "x") as writer:
        for shard in rng.integers(0, 9, 400).tolist():
            count = int(rng.integers(0, 200))
            writer.append(shard, elements(shard, lengths[shard], lengths[shard] + count))
            lengths[shard] += count
            if count < 4:
                writer.commit()
    assert visible(tmp_path / "x") == lengths


@pytest.mark.parametrize("cut", [1, 7280, 7282, 29_127, 29_128, 29_129, 58_255])
def test_cuts_around_blocks_and_buffer(cut: int, tmp_path: Path) -> None:
    """9-byte elements do not divide 65,536: appends cross every border somewhere."""
    total = 120_000 if cut > 1 else 300
    with writer_at(tmp_path / "x") as writer:
        for start in range(0, total, cut):
            writer.append(0, elements(0, start, min(start + cut, total)))
    assert visible(tmp_path / "x") == {0: total}
    assert verify(tmp_path / "x").clean


def test_the_caller_may_reuse_its_buffer(tmp_path: Path) -> None:
    place = StreamStorage(tmp_path / "x", Returned())
    buffer = np.zeros(1000, dtype="<u4")
    expected = []
    with StreamWriter(place, files=Watched()) as writer:
        for value in range(200):
            buffer[:] = value
            writer.append(0, buffer[: value * 5])
            expected.append(buffer[: value * 5].copy())
            buffer[:] = 12345
    with place.sync_reader() as reader:
        assert np.array_equal(reader.read(0, len(reader)), np.concatenate(expected))


def test_arrays_that_are_not_contiguous(tmp_path: Path) -> None:
    place = StreamStorage(tmp_path / "x", Returned())
    values = np.arange(100, dtype="<u4")
    read_only = values[3:9]
    read_only.flags.writeable = False
    given_arrays = [values[::3], values[::-1], read_only, values.reshape(10, 10)[:, 4]]
    with StreamWriter(place, files=Watched()) as writer:
        for array in given_arrays:
            writer.append(0, array)
    with place.sync_reader() as reader:
        assert np.array_equal(reader.read(0, len(reader)), np.concatenate(given_arrays))


def test_numpy_integers_and_the_largest_shard(tmp_path: Path) -> None:
    with writer_at(tmp_path / "x") as writer:
        writer.append(np.int32(3), elements(3, 0, 2))  # type: ignore[arg-type]
        writer.append(3, elements(3, 2, 4))
        writer.append(np.uint16(3), elements(3, 4, 5))  # type: ignore[arg-type]
        writer.append(10**9, elements(10**9, 0, 1))
        assert writer.length(np.int64(3)) == 5  # type: ignore[arg-type]
    assert visible(tmp_path / "x") == {3: 5, 10**9: 1}
    assert (tmp_path / "x/commits/1000000000-0000.json").exists()


def test_empty_appends_and_a_writer_that_got_nothing(tmp_path: Path) -> None:
    with writer_at(tmp_path / "x"):
        pass
    assert visible(tmp_path / "x") == {}
    with writer_at(tmp_path / "x") as writer:
        writer.append(0, elements(0, 0, 0))
        writer.commit()
        writer.commit()
        writer.append(0, elements(0, 0, 0))
        writer.append(1, elements(1, 0, 2))
        writer.append(1, elements(1, 2, 2))
    assert visible(tmp_path / "x") == {1: 2}
    assert all_files(tmp_path / "x") - garbage(tmp_path / "x") == all_files(tmp_path / "x")
    assert verify(tmp_path / "x").parts == 1


def test_user_object_and_description_in_the_header(tmp_path: Path) -> None:
    user = {"tokenizer": "bpe-50k", "licence": ["CC0", None, 1.5, True], "é": {"ü": "日本"}}
    place = storage(tmp_path / "a/b/x")
    with place.sync_writer(user=user) as writer:
        writer.append(0, elements(0, 0, 1))
    with place.sync_writer(user={"other": 1}):
        pass
    with place.sync_reader() as reader:
        assert reader.header.user == user
        assert reader.header.element_type == ELEMENT
        assert reader.header.storage_format == {"name": "stream-numpy", "parameters": {}}
        assert reader.header.written_by.startswith("guideloom-write ")
    custom = StreamStorage(tmp_path / "y", Returned())
    with custom.sync_writer():
        pass
    with custom.sync_reader() as other:
        assert re.fullmatch(r"\S*known_content\.Returned", other.header.storage_format["class"])
        assert other.header.user == {}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_modes_follow_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        play(tmp_path / "x", Watched(), [(0, 5), COMMIT, (0, 5)])
    finally:
        os.umask(before)
    for path in [tmp_path / "x", *(tmp_path / "x").rglob("*")]:
        allowed = 0o777 if path.is_dir() else 0o644
        assert path.stat().st_mode & 0o7777 == allowed & ~umask, path


def test_published_files_have_one_name_and_are_never_touched_again(tmp_path: Path) -> None:
    seen: dict[str, tuple[int, int, bytes]] = {}
    for _ in range(4):
        play(tmp_path / "x", Watched(), [(0, 5), (1, 7), COMMIT, (1, 2)])
        for name in all_files(tmp_path / "x"):
            path = tmp_path / "x" / name
            stat = path.stat()
            assert stat.st_nlink == 1
            facts = (stat.st_ino, stat.st_mtime_ns, path.read_bytes())
            assert seen.setdefault(name, facts) == facts, name
    assert len([name for name in seen if name.startswith("commits/")]) == 12


def test_names_and_tokens(tmp_path: Path) -> None:
    """Parts of one session share its token, other sessions have others."""
    for _ in range(2):
        play(tmp_path / "x", Watched(), [(0, 5), (1000, 7)])
    tokens = []
    for shard, part in itertools.product((0, 1000), (0, 1)):
        name = f"commits/{shard:07d}-{part:04d}.json"
        with storage(tmp_path / "x").sync_reader() as reader:
            dataset_id = reader.header.dataset_id
        found = CommitRecord.decode(
            (tmp_path / "x" / name).read_bytes(),
            dataset_id=dataset_id,
            kind="stream",
            shard=shard,
            part=part,
        )
        assert found.part.stem == (f"{shard // 1000:04d}/{shard:07d}-{part:04d}-{found.part.token}")
        tokens.append(found.part.token)
    assert tokens[0] == tokens[2] != tokens[1] == tokens[3]


def test_a_relative_directory_and_a_file_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with storage("a/b/c").sync_writer() as writer:
        writer.append(0, elements(0, 0, 3))
    assert visible(tmp_path / "a/b/c") == {0: 3}
    (tmp_path / "file").write_bytes(b"")
    for place in ("file", "file/below"):
        with pytest.raises(WriteError, match=r"errno \d+"):
            storage(place).sync_writer().open()


actions = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 3), st.sampled_from([0, 1, 3, 50, 9000, 30_000])),
    st.tuples(st.sampled_from(["commit", "rollback", "reopen", "fail"])),
)
numbers = itertools.count()


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(script=st.lists(actions, max_size=14))
def test_any_sequence_of_calls_against_lists(script: list[tuple[Any, ...]], tmp_path: Path) -> None:
    """Two dicts say what is committed and what is pending; the writer agrees after each call."""
    check_calls(lambda _: KNOWN_ELEMENTS, script, shards=4, directory=tmp_path / str(next(numbers)))

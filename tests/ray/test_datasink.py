"""`GuideLoomDatasink` without a cluster: its methods are called as Ray calls them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from guideloom import (
    DatasetNotFoundError,
    MismatchError,
    ShardConflictError,
    StreamNumpyFormat,
    StreamStorage,
    WriteError,
    WriterStateError,
    verify,
)
from guideloom_write._files import PosixFiles
from guideloom_write.ray import GuideLoomDatasink

from .sink_cases import block, complete, files_of, read, run, run_task, shards, storage

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")


def test_each_task_writes_its_shard(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is visible before the end; then it is consolidated, and the note is gone."""
    sink = GuideLoomDatasink(storage(tmp_path / "set"), job="a", user={"made": "here"})
    sink.on_write_start()
    two = run_task(sink, 1, block(b"2", b"3"), block(b"4"))
    one = run_task(sink, 0, block(b"0", b"1"))
    assert read(tmp_path / "set") == []
    assert files_of(tmp_path / "set", "jobs") == ["a.running"]
    with caplog.at_level(logging.INFO, "guideloom_write"):
        complete(sink, [two, one])
    assert caplog.messages == ["job a: 2 shards are published, the dataset is at version 1"]
    assert read(tmp_path / "set") == [b"0", b"1", b"2", b"3", b"4"]
    assert files_of(tmp_path / "set", "jobs") == ["a.json"]
    with storage(tmp_path / "set").sync_reader() as reader:
        assert reader.version == 1
        assert reader.header.user == {"made": "here"}
    assert verify(tmp_path / "set").clean


def test_jobs_go_behind_what_is_there(tmp_path: Path) -> None:
    """By commit records and by the manifest alone."""
    directory = tmp_path / "set"
    with storage(directory).sync_writer() as writer:
        writer.append(6, b"before")
    run(GuideLoomDatasink(storage(directory), job="a"), {0: [block(b"0")], 1: [], 2: [block(b"2")]})
    assert shards(directory) == ["0000006-0000", "0000007-0000", "0000009-0000"]
    for path in (directory / "commits").iterdir():
        path.unlink()
    run(GuideLoomDatasink(storage(directory), job="b"), {0: [block(b"later")]})
    assert shards(directory) == ["0000010-0000"]
    assert read(directory) == [b"before", b"0", b"2", b"later"]


def test_a_given_first_shard(tmp_path: Path) -> None:
    """A shard that has data gets another part."""
    directory = tmp_path / "set"
    sink = GuideLoomDatasink(storage(directory), job="a", first_shard=40)
    run(sink, {0: [block(b"0")], 1: [block(b"1")]})
    again = GuideLoomDatasink(storage(directory), job="b", first_shard=41)
    run(again, {0: [block(b"2")]})
    assert shards(directory) == ["0000040-0000", "0000041-0000", "0000041-0001"]
    assert read(directory) == [b"0", b"1", b"2"]


def test_a_task_that_is_run_again_leaves_no_duplicate(tmp_path: Path) -> None:
    """Whichever result Ray hands over; the other is garbage. Also of a task that died half-way."""
    directory = tmp_path / "set"
    sink = GuideLoomDatasink(storage(directory), job="a")
    sink.on_write_start()
    first = run_task(sink, 0, block(b"0", b"1"))
    second = run_task(sink, 0, block(b"0", b"1"))
    assert first != second

    def dies(row: dict[str, Any]) -> Any:
        if row["document"] == b"3":
            raise KeyboardInterrupt
        return row["document"]

    sink._to_data = dies
    with pytest.raises(KeyboardInterrupt):
        run_task(sink, 1, block(b"2", b"3"))
    sink._to_data = lambda row: row["document"]
    complete(sink, [first, run_task(sink, 1, block(b"2", b"3"))])
    assert read(directory) == [b"0", b"1", b"2", b"3"]
    token = json.loads(second.record)["token"]
    orphans = verify(directory).orphans
    assert orphans
    assert all(token in name for name in orphans)


def test_a_complete_job_is_not_run_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "set"
    run(GuideLoomDatasink(storage(directory), job="a"), {0: [block(b"0")]})
    before = files_of(directory, ".")
    with caplog.at_level(logging.INFO, "guideloom_write"):
        run(GuideLoomDatasink(storage(directory), job="a"), {0: [block(b"0")], 1: [block(b"5")]})
    assert "an earlier run of it has written everything" in caplog.messages[0]
    assert files_of(directory, ".") == before
    assert read(directory) == [b"0"]


def test_what_an_earlier_run_decided_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `finish_earlier_run`, without the tasks; by then, nothing else is."""
    directory = tmp_path / "set"
    sink = GuideLoomDatasink(storage(directory), job="a")
    assert not sink.finish_earlier_run()
    assert not directory.exists()
    sink.on_write_start()
    assert not sink.finish_earlier_run()
    records = [run_task(sink, number, block(b"%d" % number)) for number in range(3)]
    link = PosixFiles.link

    def dies(files: PosixFiles, source: str, target: str) -> None:
        link(files, source, target)
        if target.endswith("0000001-0000.json"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PosixFiles, "link", dies)
        with pytest.raises(KeyboardInterrupt):
            complete(sink, records)
    assert shards(directory) == ["0000000-0000", "0000001-0000"]
    again = GuideLoomDatasink(storage(directory), job="a")
    assert again.finish_earlier_run()
    assert read(directory) == [b"0", b"1", b"2"]
    assert again.finish_earlier_run()
    assert not GuideLoomDatasink(storage(directory), job="b").finish_earlier_run()
    assert files_of(directory, "jobs") == ["a.json"]


def test_nothing_to_write(tmp_path: Path) -> None:
    """No part for a task without rows, nor for rows without elements; no task at all is fine."""
    directory = tmp_path / "set"
    form = StreamNumpyFormat(np.dtype([("x", "<u2")]))
    stream = StreamStorage(directory, form)
    sink = GuideLoomDatasink(stream, job="a")
    sink.on_write_start()
    nothing = pa.table({"x": pa.array([[], []], pa.list_(pa.uint16()))})
    records = [
        run_task(sink, 0),
        run_task(sink, 1, nothing.slice(0, 0)),
        run_task(sink, 2, nothing),
    ]
    assert [done.record for done in records] == [b"", b"", b""]
    complete(sink, records)
    complete(GuideLoomDatasink(stream, job="b"), [])  # Ray does not call on_write_start then
    assert shards(directory) == []
    assert files_of(directory, "data") == []
    assert files_of(directory, "jobs") == ["a.json", "b.json"]
    documents = GuideLoomDatasink(storage(tmp_path / "documents"), job="a")
    run(documents, {0: [block(b"", b"")]})
    assert read(tmp_path / "documents") == [b"", b""]


@pytest.mark.parametrize("kept", [(), (1,), (2,), (0, 2), (1, 2), (1, 2, 2), (0, 1, None)])
def test_results_that_ray_has_lost_are_not_taken_for_tasks_without_rows(
    kept: tuple[int | None, ...], tmp_path: Path
) -> None:
    """Ray 2.44 says of a job whose node was killed that all went well, and has no results."""
    directory = tmp_path / "set"
    sink = GuideLoomDatasink(storage(directory), job="a")
    sink.on_write_start()
    returned = {k: run_task(sink, k, block(b"%d" % k)) for k in range(3)} | {None: None}
    with pytest.raises(WriteError, match=rf"gives {len(kept)} results, of .* run the same"):
        complete(sink, [returned[k] for k in kept])
    assert shards(directory) == []
    assert not sink.finish_earlier_run()
    sink.on_write_start()
    complete(sink, [run_task(sink, k, block(b"%d" % k)) for k in range(3)])
    assert read(directory) == [b"0", b"1", b"2"]


def test_a_failed_job_leaves_nothing_visible(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "set"
    sink = GuideLoomDatasink(storage(directory), job="a")
    sink.on_write_start()
    run_task(sink, 0, block(b"0"))
    sink.on_write_failed(ValueError("x"))
    assert "job a did not complete (ValueError); run the same command again" in caplog.messages
    assert shards(directory) == files_of(directory, "jobs") == []
    run(GuideLoomDatasink(storage(directory), job="a"), {0: [block(b"1")]})
    assert read(directory) == [b"1"]


def test_jobs_that_run_at_the_same_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are warned, and the one that ends second is told what to do; then it succeeds."""
    directory = tmp_path / "set"
    one = GuideLoomDatasink(storage(directory), job="one")
    one.on_write_start()
    assert caplog.messages == []
    two = GuideLoomDatasink(storage(directory), job="two")
    two.on_write_start()
    assert "job two: other jobs run or did not end (one); jobs that run at" in caplog.messages[0]
    first, second = run_task(one, 0, block(b"1")), run_task(two, 0, block(b"2"))
    complete(two, [second])
    with pytest.raises(ShardConflictError, match=r"shard 0, part 0 .* Nothing of the job was pub"):
        complete(one, [first])
    run(GuideLoomDatasink(storage(directory), job="one"), {0: [block(b"1")]})
    assert read(directory) == [b"2", b"1"]


def test_the_directory_is_the_same_wherever_a_task_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sink = GuideLoomDatasink(storage(Path("set")), job="a")
    sink.on_write_start()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    complete(sink, [run_task(sink, 0, block(b"0"))])
    assert read(tmp_path / "set") == [b"0"]
    assert list(elsewhere.iterdir()) == []


def test_a_node_that_sees_another_file_system(tmp_path: Path) -> None:
    directory = tmp_path / "set"
    sink = GuideLoomDatasink(storage(directory), job="a")
    sink.on_write_start()
    directory.rename(tmp_path / "moved")
    with pytest.raises(
        DatasetNotFoundError, match=r"not the dataset here .* all nodes of the clus"
    ):
        run_task(sink, 0, block(b"0"))
    assert not directory.exists()
    GuideLoomDatasink(storage(directory), job="a").on_write_start()
    with pytest.raises(
        MismatchError, match=r"is the dataset [0-9a-f]{32} here and .* on the driver"
    ):
        run_task(sink, 0, block(b"0"))


def test_a_task_before_the_start(tmp_path: Path) -> None:
    sink = GuideLoomDatasink(storage(tmp_path / "set"), job="a")
    with pytest.raises(WriterStateError, match="before on_write_start was called"):
        run_task(sink, 0, block(b"0"))


def test_arguments(tmp_path: Path) -> None:
    here = storage(tmp_path / "set")
    with pytest.raises(TypeError, match="storage is str; expected a GuideLoom storage"):
        GuideLoomDatasink("set", job="a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="to_data is int; expected a function of a row"):
        GuideLoomDatasink(here, job="a", to_data=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="without a leading dot"):
        GuideLoomDatasink(here, job="../a")
    with pytest.raises(ValueError, match="first_shard is -1"):
        GuideLoomDatasink(here, job="a", first_shard=-1)
    with pytest.raises(ValueError, match="version"):
        GuideLoomDatasink(here.at_version(3), job="a")
    assert not (tmp_path / "set").exists()
    assert "job='a'" in repr(GuideLoomDatasink(here, job="a"))
    assert GuideLoomDatasink(here, job="a").get_name() == "GuideLoom"


@pytest.mark.parametrize("package", ["guideloom-write", "guideloom-read"])
def test_without_ray(package: str) -> None:
    """The packages import without it, and the error says what to install."""
    module = package.replace("-", "_")
    code = f"""
import sys
sys.modules["ray"] = None
import guideloom, {module}
guideloom.StreamStorage
try:
    import {module}.ray
except guideloom.MissingPackageError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert f'Install it with: pip install "{package}[ray]"' in done.stdout

"""Jobs on a real cluster of two node processes, of which some are killed.

After every kill the same command is run again, or Ray runs the lost tasks again: then every row is
there once, `verify` finds no fault, and what killed tasks left is garbage that nothing refers to.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom import DocumentBytesFormat, DocumentNumpyFormat, DocumentStorage, verify

from .cluster import TwoNodes, two_nodes
from .cluster_host import processes

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "ray.md"
CODE = re.compile(r'^```python title="job.py"\n(.*?)^```', re.MULTILINE | re.DOTALL)
ROWS = 240
BLOCKS = 6
JOB = {"rows": ROWS, "blocks": BLOCKS}


@pytest.fixture(scope="module")
def running() -> Iterator[TwoNodes]:
    with two_nodes() as nodes:
        started = nodes.ask("started")
        yield nodes
        started += nodes.ask("started")
        folder = nodes.folder
    assert len(started) > 4
    now = processes()
    assert [pid for pid, when in started if now.get(pid, (0, ""))[1] == when] == []
    assert not folder.exists()


@pytest.fixture
def cluster(running: TwoNodes) -> TwoNodes:
    """With two nodes, whatever tests before did to them."""
    running.ask("second_node")
    return running


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of the dataset; the folder with ``.told`` behind is for what happens meanwhile."""
    told(tmp_path / "set").mkdir()
    return tmp_path / "set"


def told(directory: Path) -> Path:
    return directory.with_suffix(".told")


def options(directory: Path, **more: Any) -> dict[str, Any]:
    return {"directory": str(directory), **JOB, **more}


def check_complete(directory: Path) -> list[str]:
    """Every row once, all data intact. The files that nothing refers to."""
    storage = DocumentStorage(directory, DocumentBytesFormat())
    with storage.sync_reader() as reader:
        rows = Counter(int(document[:8]) for document in reader)
        assert reader.version is not None, "it is consolidated"
    assert rows == Counter(range(ROWS))
    report = verify(directory)
    assert report.clean, report.faults
    jobs = [path.name for path in (directory / "jobs").iterdir() if path.suffix != ".tmp"]
    assert jobs == ["numbers.json"]
    return list(report.orphans or ())


def owners(directory: Path) -> dict[int, int]:
    """For each shard the process that wrote it."""
    records = [json.loads(path.read_text()) for path in (directory / "commits").glob("*.json")]
    return {record["shard"]: record["owner"]["pid"] for record in records}


def test_nothing_listens_outside_this_machine(cluster: TwoNodes) -> None:
    sockets = cluster.ask("sockets")
    assert len(sockets) >= 4
    assert {address.rpartition(":")[0] for address in sockets} == {"127.0.0.1"}


@pytest.fixture(scope="module")
def done(
    running: TwoNodes, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, Any]]:
    """What needs nobody to watch it, done by one driver: directory and result of each step."""
    steps: dict[str, dict[str, Any]] = {
        "kinds": {"rows": 60},
        "failing": {"rows": 20},
        "no_rows": {},
        "write": {**JOB, "kill_at": ROWS // 2 + 27},
    }
    folder = tmp_path_factory.mktemp("jobs")
    for name, more in steps.items():
        more["directory"] = str(folder / name)
        told(folder / name).mkdir()
    results = running.driver(*steps.items()).result()
    return {name: (folder / name, result) for name, result in zip(steps, results, strict=True)}


def test_every_kind_is_written_and_read_back(done: dict[str, tuple[Path, Any]]) -> None:
    directory, found = done["kinds"]
    assert found == dict.fromkeys(("stream", "spans", "bytes", "numbers", "json"), 60)
    for kind in found:
        assert verify(directory / kind).clean


def test_a_row_that_cannot_be_stored(done: dict[str, tuple[Path, Any]]) -> None:
    """The error arrives with its cause and the place; nothing is visible."""
    _, found = done["failing"]
    assert any("DataError" in types for types in found["row"]["types"])
    assert "DocumentBytesFormat got str; expected bytes" in found["row"]["text"]
    assert "at row 7 of write task 1 of job 'bad', which writes shard 1" in found["row"]["text"]
    assert any("MismatchError" in types for types in found["start"]["types"])
    assert "holds a dataset of kind 'document'" in found["start"]["text"]
    assert found["commits"] == []
    assert found["jobs"] == []


def test_blocks_without_rows(done: dict[str, tuple[Path, Any]]) -> None:
    _, found = done["no_rows"]
    assert found["empty"] == []
    assert found["rows"] == ["6", "7"]
    assert found["jobs"] == ["nothing.json", "some.json"]
    assert len(found["commits"]) == 1


def test_a_worker_process_is_killed(done: dict[str, tuple[Path, Any]]) -> None:
    """Ray runs its task again, which leaves no duplicate."""
    directory, _ = done["write"]
    killed = int((told(directory) / "killed").read_text())
    orphans = check_complete(directory)
    assert orphans, "the killed task left the files of its part"
    written = owners(directory)
    left = {int(Path(name).name.split("-")[0]) for name in orphans}
    assert len(left) == 1
    assert written[left.pop()] != killed
    assert set(written) == set(range(BLOCKS))


def test_the_program_on_the_page(cluster: TwoNodes, tmp_path: Path) -> None:
    program = "".join(CODE.findall(PAGE.read_text(encoding="utf-8")))
    assert program.count("GuideLoomDatasink(") == program.count("GuideLoomDatasource(") == 1
    driver = cluster.program(program, tmp_path)
    status, _ = driver.end()
    assert status == 0, driver.log()
    with DocumentStorage(tmp_path / "corpus", DocumentNumpyFormat("<u2")).sync_reader() as reader:
        texts = {bytes(document.astype(np.uint8)).decode() for document in reader}
        assert len(reader) == 1000
    assert texts == {f"book number {k}" for k in range(1000)}
    assert len(list((tmp_path / "corpus" / "commits").iterdir())) == 8
    assert verify(tmp_path / "corpus").clean


def test_the_driver_is_killed(cluster: TwoNodes, directory: Path) -> None:
    """In the middle of the tasks; again after the decision; then the job is completed, and done."""
    first = cluster.driver(("write", options(directory, wait_at=ROWS // 2 + 30)))
    first.wait_for(told(directory) / "waiting")
    first.kill()
    assert list((directory / "commits").iterdir()) == []
    assert [path.name for path in (directory / "jobs").iterdir()] == ["numbers.running"]

    second = cluster.driver(("write", options(directory, die_at_link=3)))
    assert second.end()[0] == -9
    assert (directory / "jobs" / "numbers.json").exists()
    assert len(list((directory / "commits").glob("*-0000.json"))) == 2
    before = set((directory / "data").rglob("*"))

    again = ("write", options(directory))
    third, fourth = cluster.driver(again, again).result()
    for said in (third["said"], fourth["said"]):
        assert any("has written everything" in line for line in said)
        assert any("6 shards are published" in line for line in said)
    assert check_complete(directory), "the killed runs left files"
    assert set((directory / "data").rglob("*")) == before, "the tasks wrote nothing"


def test_a_node_is_killed(cluster: TwoNodes, directory: Path) -> None:
    """All processes of the node at once, one of them in the middle of a task."""
    node = cluster.ask("second_node")
    driver = cluster.driver(("write", options(directory, on_node=node)))
    driver.wait_for(told(directory) / "waiting")
    killed = cluster.ask("kill_second_node")
    assert int((told(directory) / "waiting").read_text()) in killed
    driver.result()
    assert check_complete(directory), "the killed task left the files of its part"
    assert not set(owners(directory).values()) & set(killed)


@pytest.mark.slow
@pytest.mark.parametrize("links", range(1, 2 + BLOCKS))
def test_the_driver_is_killed_at_every_link(links: int, cluster: TwoNodes, directory: Path) -> None:
    """Right behind the decision, and behind each record."""
    assert cluster.driver(("write", options(directory, die_at_link=links))).end()[0] == -9
    assert len(list((directory / "commits").glob("*-0000.json"))) == links - 1
    before = set((directory / "data").rglob("*"))
    cluster.driver(("write", options(directory))).result()
    assert [name for name in check_complete(directory) if not name.endswith(".tmp")] == []
    assert set((directory / "data").rglob("*")) == before


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_the_driver_is_killed_at_any_time(seed: int, cluster: TwoNodes, directory: Path) -> None:
    """Again and again, until it is complete."""
    rng = random.Random(seed)
    job = ("write", options(directory))
    for _ in range(3):
        driver = cluster.driver(job)
        time.sleep(rng.uniform(3, 25))
        driver.stop()
    cluster.driver(job).result()
    check_complete(directory)


@pytest.mark.slow
@pytest.mark.parametrize("row", [25, 39, 79, 119, 160, 239])
def test_a_worker_process_is_killed_at_other_rows(
    row: int, cluster: TwoNodes, directory: Path
) -> None:
    cluster.driver(("write", options(directory, kill_at=row))).result()
    assert (told(directory) / "killed").exists()
    check_complete(directory)

"""The driver of the cluster tests: ``python drivers.py ADDRESS STEPS``.

The steps are a list of (name, options) in JSON; at the end comes a list of their results. Row k of
a job is document k, and says so; what happens to whom on the way is told by files in a folder.
Functions for tasks are shipped with the job, since this is the main module.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import ray
import ray.data
from numpy.typing import NDArray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from guideloom import (
    DocumentBytesFormat,
    DocumentDataset,
    DocumentJSONFormat,
    DocumentNumpyFormat,
    DocumentStorage,
    StreamDataset,
    StreamNumpyFormat,
    StreamSpansFormat,
    StreamStorage,
    StreamWithMetaStorage,
)
from guideloom_read.ray import GuideLoomDatasource
from guideloom_write._files import PosixFiles
from guideloom_write.ray import GuideLoomDatasink

RESULT = "RESULT "  # as in cluster.py, which a driver cannot import
LENGTH = 16
DOCUMENT_BYTES = 1 << 16
FIELDS = np.dtype([("tokens", "<u2"), ("loss", "?"), ("pair", "<f4", (2,))])


def fields(batch: dict[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
    """Windows of a stream: row k has the tokens from ``16 k`` on."""
    tokens = batch["id"][:, None] * LENGTH + np.arange(LENGTH)
    pair = np.stack([tokens, -tokens], axis=-1).astype(np.float32)
    return {"tokens": tokens, "loss": tokens % 3 == 0, "pair": pair}


def spans(row: dict[str, int]) -> dict[str, Any]:
    """A document of a stream with metadata: 16 tokens, in two spans."""
    k = row["id"]
    return {
        "elements": np.arange(k * LENGTH, (k + 1) * LENGTH),
        "run_lengths": [5, 11],
        "payloads": [{"id": k, "second": False}, {"id": k, "second": True}],
    }


def text(row: dict[str, int]) -> dict[str, Any]:
    return {"document": b"document %d " % row["id"] * (row["id"] % 7)}


def numbers(row: dict[str, int]) -> dict[str, Any]:
    return {"document": np.arange(row["id"] % 5, dtype=np.int64) + row["id"]}


def mixed(row: dict[str, int]) -> dict[str, Any]:
    """Columns of several types: the row itself is a JSON document."""
    return {"id": row["id"], "name": f"n{row['id']}", "values": [row["id"], 1]}


def read(dataset: StreamDataset | DocumentDataset, blocks: int) -> list[dict[str, Any]]:
    source = GuideLoomDatasource(dataset)
    rows: list[dict[str, Any]] = ray.data.read_datasource(
        source, override_num_blocks=blocks
    ).take_all()
    return rows


def kinds(directory: str, rows: int) -> dict[str, int]:
    """Write every kind and read it back; the sizes of what was equal."""
    base = ray.data.range(rows, override_num_blocks=4)
    found = {}

    stream = StreamStorage(f"{directory}/stream", StreamNumpyFormat(FIELDS))
    base.map_batches(fields).write_datasink(GuideLoomDatasink(stream, job="all"))
    expected = fields({"id": np.arange(rows)})
    got = sorted(read(StreamDataset(stream, LENGTH), 3), key=lambda row: int(row["tokens"][0]))
    assert len(got) == rows
    for k, row in enumerate(got):
        assert row["tokens"].dtype == np.uint16
        assert all(np.array_equal(row[name], expected[name][k]) for name in expected)
    found["stream"] = len(got)

    meta = StreamWithMetaStorage(
        f"{directory}/spans", StreamSpansFormat("<u4", DocumentJSONFormat())
    )
    base.map(spans).write_datasink(GuideLoomDatasink(meta, job="all"))
    got = sorted(read(StreamDataset(meta, LENGTH), 3), key=lambda row: int(row["elements"][0]))
    for k, row in enumerate(got):
        wanted = spans({"id": k})
        assert np.array_equal(row["elements"], wanted["elements"])
        assert list(row["run_lengths"]) == wanted["run_lengths"]
        assert list(row["payloads"]) == wanted["payloads"]
    found["spans"] = len(got)

    for name, form, make in (
        ("bytes", DocumentBytesFormat(), text),
        ("numbers", DocumentNumpyFormat("<i8"), numbers),
        ("json", DocumentJSONFormat(), mixed),
    ):
        documents = DocumentStorage(f"{directory}/{name}", form)
        base.map(make).write_datasink(GuideLoomDatasink(documents, job="all"))
        column = [row["document"] for row in read(DocumentDataset(documents), 3)]
        wanted_rows = [make({"id": k}) for k in range(rows)]
        as_written = [row.get("document", row) for row in wanted_rows]
        assert sorted(map(shown, column)) == sorted(map(shown, as_written))
        found[name] = len(column)
    return found


def shown(document: Any) -> str:
    return repr(document.tolist() if isinstance(document, np.ndarray) else document)


class Numbered:
    """From row k to document k, which says so; on the way it may wait, or kill its process.

    Args:
        folder: for the files that tell of it.
        kill_at: the process that comes to this row first kills itself.
        wait_at: tasks that come to these rows wait until the file ``go`` is there, and say so by
            the file ``waiting``.
        on_node: the first task that comes to its 30th row on this node waits, and says so.
    """

    def __init__(
        self,
        folder: str,
        *,
        kill_at: int | None = None,
        wait_at: int | None = None,
        on_node: str | None = None,
    ) -> None:
        self._folder = folder
        self._kill_at = kill_at
        self._wait_at = wait_at
        self._on_node = on_node

    def __call__(self, row: dict[str, Any]) -> bytes:
        number = int(row["id"])
        if number == self._kill_at and self._tell("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._on_node is not None and number % 40 == 30:
            here = ray.get_runtime_context().get_node_id() == self._on_node
            if here and self._tell("waiting"):
                self._wait_for("go")
        elif self._wait_at is not None and number >= self._wait_at:
            self._tell("waiting")
            self._wait_for("go")
        return b"%08d" % number + bytes(DOCUMENT_BYTES)

    def _tell(self, what: str) -> bool:
        """Whether this process is the first to do so."""
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(f"{self._folder}/{what}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(descriptor, b"%d" % os.getpid())
            os.close(descriptor)
            return True
        return False

    def _wait_for(self, what: str) -> None:
        end = time.monotonic() + 120
        while not os.path.exists(f"{self._folder}/{what}"):
            if time.monotonic() > end:
                raise TimeoutError(f"{what} did not come")
            time.sleep(0.02)


def documents(directory: str) -> DocumentStorage:
    return DocumentStorage(directory, DocumentBytesFormat())


def write(
    directory: str, rows: int, blocks: int, die_at_link: int | None = None, **numbered: Any
) -> dict[str, Any]:
    """Write numbered documents with the job ``numbers``; what the library said meanwhile."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("guideloom_write")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    if die_at_link is not None:
        _die_at_link(die_at_link)
    sink = GuideLoomDatasink(
        documents(directory), job="numbers", to_data=Numbered(f"{directory}.told", **numbered)
    )
    where = {}
    if "on_node" in numbered:  # as long as it lives; Ray may leave a node idle for minutes
        on_node = NodeAffinitySchedulingStrategy(numbered["on_node"], soft=True)
        where = {"scheduling_strategy": on_node}
    dataset = ray.data.range(rows, override_num_blocks=blocks)
    dataset.write_datasink(sink, ray_remote_args=where)
    return {"said": said}


def _die_at_link(count: int) -> None:
    """This process kills itself when it has made so many links, the decision being the first."""
    link = PosixFiles.link
    made = 0

    def counted(files: PosixFiles, source: str, target: str) -> None:
        nonlocal made
        link(files, source, target)
        if "/jobs/" in target or "/commits/" in target:
            made += 1
            if made == count:
                os.kill(os.getpid(), signal.SIGKILL)

    PosixFiles.link = counted  # type: ignore[method-assign,assignment]


def failing(directory: str, rows: int) -> dict[str, Any]:
    """A row that cannot be stored, and another kind of data: what arrives, and what is visible."""

    def bad(row: dict[str, Any]) -> Any:
        return "text" if row["id"] == rows - 3 else b"%d" % row["id"]

    base = ray.data.range(rows, override_num_blocks=2)
    stream = StreamStorage(directory, StreamNumpyFormat(FIELDS))
    return {
        "row": error_of(base, GuideLoomDatasink(documents(directory), job="bad", to_data=bad)),
        "start": error_of(base, GuideLoomDatasink(stream, job="other")),
        "jobs": os.listdir(f"{directory}/jobs"),
        "commits": os.listdir(f"{directory}/commits"),
    }


def error_of(dataset: ray.data.Dataset, sink: GuideLoomDatasink) -> dict[str, Any]:
    """The classes of the error that writing raises and of its causes, and their texts."""
    try:
        dataset.write_datasink(sink)
    except Exception as error:  # noqa: BLE001  # the test says which it should be
        chain: list[BaseException] = [error]
        while (cause := chain[-1].__cause__) is not None:
            chain.append(cause)
        return {
            "types": [[base.__name__ for base in type(each).__mro__] for each in chain],
            "text": "\n".join(map(str, chain)),
        }
    raise AssertionError("it was stored")


def no_rows(directory: str) -> dict[str, Any]:
    """A dataset without rows, and one of which some blocks have none."""
    nothing = GuideLoomDatasink(documents(directory), job="nothing")
    ray.data.range(8, override_num_blocks=2).filter(lambda row: row["id"] < 0).write_datasink(
        nothing
    )
    empty = read(DocumentDataset(documents(directory)), 4)
    some = GuideLoomDatasink(
        documents(directory), job="some", to_data=lambda row: b"%d" % row["id"]
    )
    ray.data.range(8, override_num_blocks=4).filter(lambda row: row["id"] >= 6).write_datasink(some)
    found = read(DocumentDataset(documents(directory)), 4)
    return {
        "commits": sorted(os.listdir(f"{directory}/commits")),
        "jobs": sorted(os.listdir(f"{directory}/jobs")),
        "empty": empty,
        "rows": sorted(row["document"].decode() for row in found),
    }


STEPS: dict[str, Callable[..., Any]] = {
    "kinds": kinds,
    "write": write,
    "failing": failing,
    "no_rows": no_rows,
}


def main() -> None:
    address, steps = sys.argv[1:]
    ray.init(
        address=address,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
        logging_level=logging.WARNING,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    print(RESULT + json.dumps([STEPS[name](**options) for name, options in json.loads(steps)]))


if __name__ == "__main__":
    main()

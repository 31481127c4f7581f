"""`GuideLoomDatasource` without a cluster: its read tasks are called as Ray calls them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from ray import cloudpickle
from ray.data.block import BlockAccessor

from guideloom import (
    DatasetNotFoundError,
    DocumentBytesFormat,
    DocumentDataset,
    DocumentJSONFormat,
    DocumentNumpyFormat,
    DocumentPickleFormat,
    DocumentStorage,
    MismatchError,
    StreamDataset,
    StreamNumpyFormat,
    StreamSpansFormat,
    StreamStorage,
    StreamWithMetaStorage,
)
from guideloom_read import ray as module
from guideloom_read.ray import GuideLoomDatasource

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
numbers = itertools.count()


def rows_of(source: GuideLoomDatasource, tasks: int) -> list[dict[str, Any]]:
    """What Ray makes of the read tasks."""
    rows: list[dict[str, Any]] = []
    for task in source.get_read_tasks(tasks):
        shipped = cloudpickle.loads(
            cloudpickle.dumps(task.read_fn)  # type: ignore[no-untyped-call]
        )
        blocks = [BlockAccessor.for_block(block) for block in shipped()]
        assert sum(block.num_rows() for block in blocks) == task.metadata.num_rows
        for block in blocks:
            rows.extend(block.iter_rows(public_row_format=True))
    return rows


def documents_at(directory: Path, form: Any, documents: Sequence[Any]) -> DocumentDataset:
    """Over several shards and parts."""
    storage = DocumentStorage(directory, form)
    with storage.sync_writer() as writer:
        for k, document in enumerate(documents):
            writer.append(k % 3, document)
            if k % 5 == 4:
                writer.commit()
    return DocumentDataset(storage)


def stored(dataset: DocumentDataset | StreamDataset) -> list[Any]:
    with dataset.sync_reader() as reader:
        return list(reader)


DOCUMENTS: dict[str, tuple[Any, list[Any]]] = {
    "bytes": (DocumentBytesFormat(), [b"a" * k for k in range(20)]),
    "JSON": (
        DocumentJSONFormat(),
        [{"a": 1}, {"b": 2.5}, [1, "x"], None, "text", 2**70, {"a": {"c": [{}, None]}}, 0.5],
    ),
    "pickle": (DocumentPickleFormat(), [{1: (2, 3)}, {"x"}, 1 + 2j]),
    "uint16": (DocumentNumpyFormat("<u2"), [np.arange(k) for k in range(9)]),
    "float64": (DocumentNumpyFormat("<f8"), [np.arange(k) / 7 for k in (0, 5, 5)]),
    "records": (
        DocumentNumpyFormat([("a", "u1"), ("b", "<f4", (2,))]),
        [np.zeros(k, [("a", "u1"), ("b", "<f4", (2,))]) for k in range(4)],
    ),
    "text": (DocumentNumpyFormat("S3"), [np.array([b"abc", b"d"]), np.array([b"e"])]),
}


@pytest.mark.parametrize("kind", DOCUMENTS)
@pytest.mark.parametrize("tasks", [1, 2, 7, 1000])
def test_documents(kind: str, tasks: int, tmp_path: Path) -> None:
    dataset = documents_at(tmp_path / "set", *DOCUMENTS[kind])
    rows = rows_of(GuideLoomDatasource(dataset), tasks)
    expected = stored(dataset)
    assert len(rows) == len(expected) == len(DOCUMENTS[kind][1])
    for row, document in zip(rows, expected, strict=True):
        assert list(row) == ["document"]
        assert type(row["document"]) is type(document)
        if isinstance(document, np.ndarray):
            assert row["document"].dtype == document.dtype
            assert np.array_equal(row["document"], document)
        else:
            assert row["document"] == document


FIELDS = np.dtype(
    [("t", "<u2"), ("m", "?"), ("half", "<f2"), ("grid", "<i4", (2, 2)), ("s", "S2"), ("c", "<c8")]
)


def fields(count: int) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(3)
    out = np.zeros(count, FIELDS)
    out["t"], out["m"] = np.arange(count), rng.random(count) < 0.5
    out["half"], out["c"] = rng.random(count), rng.random(count)
    out["grid"], out["s"] = rng.integers(0, 99, (count, 2, 2)), [b"%d" % (k % 90) for k in out["t"]]
    return {name: out[name] for name in FIELDS.names or ()}


@pytest.mark.parametrize(("length", "stride"), [(4, 4), (5, 4), (7, 2), (1, 1)])
@pytest.mark.parametrize("tasks", [1, 3])
def test_streams(length: int, stride: int, tasks: int, tmp_path: Path) -> None:
    """A column for each field, of every type."""
    storage = StreamStorage(tmp_path / "set", StreamNumpyFormat(FIELDS))
    with storage.sync_writer() as writer:
        for shard in (0, 2):
            writer.append(shard, fields(50))
    dataset = StreamDataset(storage, length, stride)
    source = GuideLoomDatasource(dataset)
    rows = rows_of(source, tasks)
    expected = stored(dataset)
    assert len(rows) == len(expected)
    (block, *_) = source.get_read_tasks(1)[0]()
    arrow = {name: "Tensor" in str(block.schema.field(name).type) for name in FIELDS.names or ()}
    assert arrow == {"t": True, "m": True, "half": True, "grid": True, "s": False, "c": False}
    for row, sample in zip(rows, expected, strict=True):
        assert list(row) == list(sample)
        for name, values in sample.items():
            assert row[name].dtype == values.dtype
            assert row[name].shape == values.shape
            assert np.array_equal(row[name], values)


def test_types_that_only_ml_dtypes_has(tmp_path: Path) -> None:
    dtype = np.dtype([("x", ml_dtypes.bfloat16)])
    storage = StreamStorage(tmp_path / "set", StreamNumpyFormat(dtype))
    with storage.sync_writer() as writer:
        writer.append(0, {"x": np.arange(12).astype(ml_dtypes.bfloat16)})
    rows = rows_of(GuideLoomDatasource(StreamDataset(storage, 4)), 2)
    assert [row["x"].dtype for row in rows] == [ml_dtypes.bfloat16] * 3
    assert np.concatenate([row["x"] for row in rows]).tolist() == list(range(12))


PAYLOADS: dict[str, tuple[Any, list[Any]]] = {
    "bytes": (DocumentBytesFormat(), [b"", b"x", b"yy" * 9]),
    "JSON": (DocumentJSONFormat(), [{"id": 1}, None, [{"other": "x"}]]),
}


@pytest.mark.parametrize("kind", PAYLOADS)
@pytest.mark.parametrize("named", [False, True])
def test_streams_with_metadata(kind: str, named: bool, tmp_path: Path) -> None:
    payload_format, payloads = PAYLOADS[kind]
    dtype = np.dtype([("t", "<u4"), ("m", "?")]) if named else np.dtype("<u4")
    storage = StreamWithMetaStorage(tmp_path / "set", StreamSpansFormat(dtype, payload_format))
    with storage.sync_writer() as writer:
        for shard in range(3):
            tokens = np.arange(20) + 100 * shard
            elements = {"t": tokens, "m": tokens % 2 == 0} if named else tokens
            writer.append(shard, (elements, [3, 10, 7], payloads))
    dataset = StreamDataset(storage, 6, 5)
    rows = rows_of(GuideLoomDatasource(dataset), 2)
    expected = stored(dataset)
    assert len(rows) == len(expected) == 11
    for row, window in zip(rows, expected, strict=True):
        stream = window.stream if named else {"elements": window.stream}
        assert set(row) == {*stream, "run_lengths", "payloads"}
        for name, values in stream.items():
            assert np.array_equal(row[name], values)
        assert list(row["run_lengths"]) == np.bincount(window.span_index).tolist()
        assert list(row["payloads"]) == window.payloads


def test_a_field_with_the_name_of_an_added_column(tmp_path: Path) -> None:
    dtype = np.dtype([("payloads", "<u4")])
    form = StreamSpansFormat(dtype, DocumentBytesFormat())
    storage = StreamWithMetaStorage(tmp_path / "set", form)
    with pytest.raises(TypeError, match="field 'payloads', and so is the column for its spans"):
        GuideLoomDatasource(StreamDataset(storage, 4))


class Plain:
    """Elements as they are; a sample is what `make` makes of it."""

    stream_dtype = np.dtype("<u4")

    def pack(self, data: Any) -> Any:
        return np.asarray(data, dtype="<u4")

    def unpack(self, stream: Any, shard_lengths: Any, shards: Any) -> Any:
        return sum(shard_lengths), stream.tolist(), list(shards)


class Batched(Plain):
    def unpack_batch(self, stream: Any) -> Any:
        return stream + 1


class Mapped(Plain):
    def unpack_batch(self, stream: Any) -> Any:
        return {"x": stream[:, 1:], "y": stream[:, 0]}


class Odd(Plain):
    def unpack_batch(self, stream: Any) -> Any:
        return list(stream)


@pytest.mark.parametrize(
    ("form", "second"),
    [
        (Plain(), {"sample": (3, [3, 4, 5], [0])}),
        (Batched(), {"elements": [4, 5, 6]}),
        (Mapped(), {"x": [4, 5], "y": 3}),
        (Odd(), {"sample": (3, [3, 4, 5], [0])}),
    ],
)
def test_storage_formats_of_others(form: Any, second: dict[str, Any], tmp_path: Path) -> None:
    storage = StreamStorage(tmp_path / "set", form)
    with storage.sync_writer() as writer:
        writer.append(0, np.arange(9))
    rows = rows_of(GuideLoomDatasource(StreamDataset(storage, 3)), 2)
    assert len(rows) == 3
    plain = {
        name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in rows[1].items()
    }
    assert plain == second


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(count=st.integers(0, 40), tasks=st.integers(1, 60), step=st.integers(1, 9))
def test_tasks_cover_the_samples_once(
    count: int, tasks: int, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, as many as were asked for, and in even ranges, whatever the batches."""
    monkeypatch.setattr(module, "_BATCH_SAMPLES", step)
    documents = [b"%d" % k for k in range(count)]
    storage = DocumentStorage(tmp_path / str(next(numbers)), DocumentBytesFormat())
    with storage.sync_writer() as writer:
        writer.extend(0, documents)
    source = GuideLoomDatasource(DocumentDataset(storage))
    made = source.get_read_tasks(tasks)
    sizes = [task.metadata.num_rows or 0 for task in made]
    assert len(made) == max(1, min(tasks, count))
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1
    rows = []
    for task in made:
        for block in task():
            assert len(block) <= step
            rows += [row["document"] for row in block.to_pylist()]
    assert rows == documents


def test_the_limit_of_rows(tmp_path: Path) -> None:
    dataset = documents_at(tmp_path / "set", DocumentBytesFormat(), [b"x"] * 20)
    (task,) = GuideLoomDatasource(dataset).get_read_tasks(1, per_task_row_limit=7)
    assert sum(len(block) for block in task()) == 7


@pytest.mark.parametrize("kind", ["stream", "documents", "spans"])
def test_the_estimated_size_is_near_the_real_one(kind: str, tmp_path: Path) -> None:
    dataset: StreamDataset | DocumentDataset
    if kind == "documents":
        texts = [b"x" * (20 * k % 500) for k in range(60)]
        dataset = documents_at(tmp_path / "set", DocumentBytesFormat(), texts)
    elif kind == "stream":
        form = StreamNumpyFormat([("t", "<u4"), ("m", "u1")])
        storage = StreamStorage(tmp_path / "set", form)
        with storage.sync_writer() as writer:
            writer.append(0, {"t": np.arange(6400), "m": np.zeros(6400, "u1")})
        dataset = StreamDataset(storage, 64)
    else:
        spans = StreamWithMetaStorage(
            tmp_path / "set", StreamSpansFormat("<u2", DocumentBytesFormat())
        )
        with spans.sync_writer() as meta:
            meta.append(0, (np.arange(6400), [64] * 100, [b"payload" * 9] * 100))
        dataset = StreamDataset(spans, 64)
    source = GuideLoomDatasource(dataset)
    tasks = source.get_read_tasks(4)
    blocks = [block for task in tasks for block in task()]
    real = sum(BlockAccessor.for_block(block).size_bytes() for block in blocks)
    assert 0.7 * real <= source.estimate_inmemory_data_size() <= 1.3 * real
    sizes = [task.metadata.size_bytes or 0 for task in tasks]
    assert abs(sum(sizes) - source.estimate_inmemory_data_size()) <= len(tasks)


def test_a_dataset_that_grew(tmp_path: Path) -> None:
    """An error in every task, unless the datasource was made of a manifest version."""
    dataset = documents_at(tmp_path / "set", DocumentBytesFormat(), [b"1", b"2"])
    loose = GuideLoomDatasource(dataset)
    dataset.storage.consolidate()
    pinned = GuideLoomDatasource(dataset)
    with dataset.storage.sync_writer() as writer:
        writer.append(7, b"3")
    for task in loose.get_read_tasks(2):
        with pytest.raises(MismatchError, match=r"has 3 samples and .* on the driver it had 2 and"):
            list(task())
    assert [row["document"] for row in rows_of(pinned, 2)] == [b"1", b"2"]
    assert len(rows_of(GuideLoomDatasource(dataset), 2)) == 3
    assert len(rows_of(GuideLoomDatasource(dataset.at_version(1)), 2)) == 2


def test_another_dataset_at_the_same_place(tmp_path: Path) -> None:
    """As many samples, and yet not these."""
    dataset = documents_at(tmp_path / "set", DocumentBytesFormat(), [b"1", b"2"])
    source = GuideLoomDatasource(dataset)
    (tmp_path / "set").rename(tmp_path / "moved")
    (task,) = source.get_read_tasks(1)
    with pytest.raises(DatasetNotFoundError):
        list(task())
    documents_at(tmp_path / "set", DocumentBytesFormat(), [b"1", b"2"])
    with pytest.raises(MismatchError, match="this node sees another file system"):
        list(task())


def test_the_directory_is_the_same_wherever_a_task_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = GuideLoomDatasource(documents_at(Path("set"), DocumentBytesFormat(), [b"1"]))
    monkeypatch.chdir("/")
    assert [row["document"] for row in rows_of(source, 1)] == [b"1"]


def test_arguments(tmp_path: Path) -> None:
    storage = DocumentStorage(tmp_path / "set", DocumentBytesFormat())
    with pytest.raises(
        TypeError, match="DocumentStorage; expected a StreamDataset or DocumentData"
    ):
        GuideLoomDatasource(storage)  # type: ignore[arg-type]
    with pytest.raises(DatasetNotFoundError):
        GuideLoomDatasource(DocumentDataset(storage))
    source = GuideLoomDatasource(documents_at(tmp_path / "set", DocumentBytesFormat(), [b"1"]))
    assert repr(source).endswith(", 1 samples")
    assert source.get_name() == "GuideLoom"

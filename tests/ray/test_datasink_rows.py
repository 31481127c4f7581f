"""What rows of a Ray dataset become, and what happens with rows that cannot be stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from ray.data.block import BlockAccessor

from guideloom import (
    DataError,
    DocumentJSONFormat,
    DocumentNumpyFormat,
    DocumentStorage,
    StreamNumpyFormat,
    StreamSpansFormat,
    StreamStorage,
    StreamWithMetaStorage,
)
from guideloom_write.ray import GuideLoomDatasink

from .sink_cases import block, files_of, run, run_task, storage

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")


@pytest.mark.parametrize(
    ("to_data", "error"),
    [(lambda row: row["document"].decode(), DataError), (lambda row: row["x"], KeyError)],
)
def test_errors_of_rows(
    to_data: Callable[[dict[str, Any]], Any], error: type[Exception], tmp_path: Path
) -> None:
    """They arrive as they are, and say where."""
    directory = tmp_path / "set"

    def third(row: dict[str, Any]) -> Any:
        return to_data(row) if row["document"] == b"2" else row["document"]

    sink = GuideLoomDatasink(storage(directory), job="a", first_shard=7, to_data=third)
    sink.on_write_start()
    with pytest.raises(error) as caught:
        run_task(sink, 4, block(b"0", b"1"), block(b"2"))
    assert "at row 2 of write task 4 of job 'a', which writes shard 11" in caught.value.__notes__
    assert files_of(directory, "data") == []


TOKENS = StreamNumpyFormat(np.dtype([("tokens", "<u2"), ("mask", "?")]))


def test_rows_of_streams(tmp_path: Path) -> None:
    """Arrays and lists; integers of another width are converted where they fit."""
    stream = StreamStorage(tmp_path / "set", TOKENS)
    tokens = np.arange(12).reshape(3, 4)
    arrays = BlockAccessor.batch_to_block({"tokens": tokens, "mask": tokens % 2 == 0})
    lists = pa.table({"tokens": [[1, 2], [], [3]], "mask": [[True, False], [], [True]]})
    run(GuideLoomDatasink(stream, job="a"), {0: [arrays, lists]})
    with stream.sync_reader() as reader:
        found = reader.read(0, len(reader))
    assert found["tokens"].tolist() == [*range(12), 1, 2, 3]
    assert found["mask"].tolist() == [True, False] * 6 + [True, False, True]


@pytest.mark.parametrize("named", [False, True])
def test_rows_of_streams_with_metadata(named: bool, tmp_path: Path) -> None:
    dtype = np.dtype([("tokens", "<u2")]) if named else np.dtype("<u2")
    name = "tokens" if named else "elements"
    form = StreamSpansFormat(dtype, DocumentJSONFormat())
    meta = StreamWithMetaStorage(tmp_path / "set", form)
    rows = pa.table(
        {name: [[1, 2, 3], [4]], "run_lengths": [[2, 1], [1]], "payloads": [["a", "b"], ["c"]]}
    )
    run(GuideLoomDatasink(meta, job="a"), {0: [rows]})
    with meta.sync_reader() as reader:
        window = reader.read(0, 4)
    stream = window.stream["tokens"] if named else window.stream
    assert stream.tolist() == [1, 2, 3, 4]
    assert window.span_index.tolist() == [0, 0, 1, 2]
    assert window.payloads == ["a", "b", "c"]
    for missing in rows.column_names:
        other = GuideLoomDatasink(meta, job=f"without-{missing}")
        other.on_write_start()
        match = missing if missing != "tokens" else "expected a mapping with the fields"
        with pytest.raises(DataError, match=match):
            run_task(other, 0, rows.drop_columns([missing]))


def test_rows_of_documents(tmp_path: Path) -> None:
    """The column `document`, or the whole row."""
    objects = DocumentStorage(tmp_path / "json", DocumentJSONFormat())
    run(
        GuideLoomDatasink(objects, job="a"),
        {0: [pa.table({"document": ["x", "y"], "id": [1, 2]}), pa.table({"id": [3], "s": ["t"]})]},
    )
    with objects.sync_reader() as reader:
        assert list(reader) == ["x", "y", {"id": 3, "s": "t"}]
    numbers = DocumentStorage(tmp_path / "numbers", DocumentNumpyFormat("<u2"))
    arrays = pa.table({"document": [[1, 2], [], [65535]]})
    run(GuideLoomDatasink(numbers, job="a"), {0: [arrays]})
    with numbers.sync_reader() as other:
        assert [document.tolist() for document in other] == [[1, 2], [], [65535]]

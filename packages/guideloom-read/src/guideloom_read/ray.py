"""`GuideLoomDatasource`: the samples of a dataset as a Ray dataset.

The driver opens the dataset, notes its fingerprint and number of samples, and cuts the samples into
contiguous ranges. Each read task opens it again, sees that it is the same, and reads its range in
batches, each a block.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_format import (
    DocumentBytesFormat,
    DocumentNumpyFormat,
    MismatchError,
    MissingPackageError,
    StreamSpansFormat,
    _names,
)
from guideloom_format._parts import DOCUMENTS, PAYLOADS, SPAN_BYTES, SPANS
from guideloom_read._batches import Ragged, SpanBatch
from guideloom_read._document_dataset import DocumentDataset
from guideloom_read._document_reader import DocumentReader
from guideloom_read._stream_dataset import StreamDataset, StreamDatasetReader

try:
    import pyarrow as pa
    from ray.data import Datasource, ReadTask
    from ray.data.block import Block, BlockMetadata
    from ray.data.extensions import (
        ArrowPythonObjectArray,
        ArrowTensorArray,
        ArrowVariableShapedTensorArray,
    )
except ImportError as _error:
    raise MissingPackageError(
        f"guideloom_read.ray needs Ray Data, which cannot be imported ({_error}). Install it "
        'with: pip install "guideloom-read[ray]"'
    ) from _error

__all__ = ["GuideLoomDatasource"]

Dataset = StreamDataset | DocumentDataset
SampleReader = StreamDatasetReader | DocumentReader

_BATCH_BYTES = 16 << 20
_BATCH_SAMPLES = 1 << 16
_NUMBERS = "biuf"
_ADDED = ("run_lengths", "payloads")


class GuideLoomDatasource(Datasource):
    """Reads the samples of a dataset: ``ray.data.read_datasource(GuideLoomDatasource(dataset))``.

    ::

        StreamDataset, StreamNumpyFormat     a column for each field, (sequence_length,) in a row
        StreamDataset, StreamSpansFormat     likewise, or the column elements; and run_lengths and
                                             payloads, a list for the spans that the row touches
        DocumentDataset                      the column document: bytes, an array, or the object
        another storage format               columns if its unpack_batch gives arrays by name,
                                             else the column sample with the object

    Rows come in the order of the samples if Ray is told to keep it, see ``preserve_order`` there.
    They are what was there when the datasource was made: if that is a manifest version (see
    `Storage.consolidate`), also when the dataset grows meanwhile; if not, growth is an error.

    Every node must see the dataset's directory on one file system.

    Args:
        dataset: a `StreamDataset` or `DocumentDataset`.

    Raises:
        TypeError: something else.
        DatasetNotFoundError, MismatchError, DatasetError: see the reader's `open`.
    """

    def __init__(self, dataset: Dataset) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if not isinstance(dataset, StreamDataset | DocumentDataset):
            raise TypeError(
                f"dataset is {type(dataset).__name__}; expected a StreamDataset or DocumentDataset"
            )
        form = dataset.storage.storage_format
        if isinstance(form, StreamSpansFormat) and form.stream_format is not None:
            for name in _ADDED:
                if name in form.stream_format.fields():
                    raise TypeError(
                        f"the stream has a field {name!r}, and so is the column for its spans "
                        "called; read it with a StreamDatasetReader"
                    )
        with dataset.sync_reader() as reader:
            self._samples = len(reader)
            self._identity = reader.identity()
            self._sample_bytes = _sample_bytes(dataset, reader)
            version = reader.version
        self._dataset = _absolute(dataset.at_version(version))

    def estimate_inmemory_data_size(self) -> int:
        """Bytes of all samples in memory, about."""
        return int(self._samples * self._sample_bytes)

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: Any = None,
    ) -> list[ReadTask]:
        """The read tasks: as many as asked for, if there are so many samples.

        Args:
            parallelism: how many are wanted.
            per_task_row_limit: the most rows that each should give.
            data_context: not used.
        """
        del data_context
        count = max(1, min(parallelism, self._samples))
        limit = {} if per_task_row_limit is None else {"per_task_row_limit": per_task_row_limit}
        tasks = []
        for k in range(count):
            start, stop = self._samples * k // count, self._samples * (k + 1) // count
            read = functools.partial(
                _read,
                self._dataset,
                self._identity,
                self._samples,
                range(start, stop),
                self._sample_bytes,
            )
            nbytes = int((stop - start) * self._sample_bytes)
            tasks.append(ReadTask(read, _metadata(stop - start, nbytes), **limit))
        return tasks

    def __repr__(self) -> str:
        return f"GuideLoomDatasource({self._dataset!r}), {self._samples} samples"


def _read(
    dataset: Dataset,
    identity: Mapping[str, Any],
    samples: int,
    ids: range,
    sample_bytes: float,
) -> Iterator[Block]:
    """In a task: the blocks of a range of samples."""
    step = int(min(max(_BATCH_BYTES / max(sample_bytes, 1), 1), _BATCH_SAMPLES))
    with dataset.sync_reader() as reader:
        if reader.identity() != identity or len(reader) != samples:
            raise MismatchError(
                f"{dataset.storage.directory} has {len(reader)} samples and the fingerprint "
                f"{reader.identity()['dataset']} here; on the driver it had {samples} and "
                f"{identity['dataset']}. It has grown since the datasource was made, or this node "
                "sees another file system. Make the datasource again; to read a dataset that "
                "grows meanwhile, consolidate it first"
            )
        columns = _columns(dataset, reader)
        for start in range(ids.start, ids.stop, step):
            batch = np.arange(start, min(start + step, ids.stop), dtype=np.int64)
            yield pa.table(columns(batch))


def _columns(
    dataset: Dataset, reader: SampleReader
) -> Callable[[NDArray[np.int64]], dict[str, Any]]:
    """The function from ids to the columns of a block."""
    form = dataset.storage.storage_format
    if isinstance(reader, DocumentReader):
        if type(form) is DocumentBytesFormat:
            return lambda ids: {"document": _binary(reader.gather(ids))}
        if type(form) is DocumentNumpyFormat:
            return lambda ids: {"document": _arrays(reader.gather(ids).arrays())}
        return lambda ids: {"document": _objects(reader.read_many(ids))}
    if isinstance(form, StreamSpansFormat):
        return lambda ids: _span_columns(form, reader.gather(ids))
    if reader.gathers:
        return lambda ids: _stream_columns(reader.gather(ids), reader, ids)
    return lambda ids: {"sample": _objects(reader[ids])}


def _stream_columns(
    batch: Any, reader: StreamDatasetReader, ids: NDArray[np.int64]
) -> dict[str, Any]:
    """What `unpack_batch` of any storage format made."""
    columns = {"elements": batch} if isinstance(batch, np.ndarray) else batch
    if isinstance(columns, Mapping) and all(
        isinstance(values, np.ndarray) and values.shape[:1] == ids.shape
        for values in columns.values()
    ):
        return {str(name): _stacked(values) for name, values in columns.items()}
    return {"sample": _objects(reader[ids])}  # also spans, whose payloads only the format can read


def _span_columns(form: StreamSpansFormat, batch: SpanBatch) -> dict[str, Any]:
    stream = batch.stream if isinstance(batch.stream, Mapping) else {"elements": batch.stream}
    columns = {name: _stacked(values) for name, values in stream.items()}
    offsets = batch.offsets.astype(np.int32)  # a batch has far fewer pieces than int32 holds
    columns["run_lengths"] = pa.ListArray.from_arrays(offsets, batch.lengths)
    index = batch.payload_index.tolist()
    payloads = form.unpack_payloads(batch.payloads)
    of_pieces = [payloads[k] for k in index]
    if type(form.payload_format) is DocumentBytesFormat:
        values = pa.array(of_pieces, type=pa.large_binary())
        columns["payloads"] = pa.ListArray.from_arrays(offsets, values)
    else:
        bounds = offsets.tolist()
        columns["payloads"] = _objects(
            [of_pieces[bounds[k] : bounds[k + 1]] for k in range(len(bounds) - 1)]
        )
    return columns


def _stacked(values: NDArray[Any]) -> Any:
    """An array with a row for each sample."""
    if _is_plain(values.dtype) and values.ndim > 1:
        return ArrowTensorArray.from_numpy(np.ascontiguousarray(values))
    return _objects(list(values))


def _arrays(arrays: Sequence[NDArray[Any]]) -> Any:
    """1-d arrays of various lengths."""
    if arrays and _is_plain(arrays[0].dtype):
        return ArrowVariableShapedTensorArray.from_numpy(list(arrays))
    return _objects(arrays)


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether Arrow has this type of numbers."""
    return dtype.kind in _NUMBERS and dtype.type.__module__ == "numpy" and dtype.itemsize <= 8


def _objects(values: Sequence[Any]) -> Any:
    """Any Python objects, pickled: Arrow's own types would change what is of several types."""
    return ArrowPythonObjectArray.from_objects(list(values))


def _binary(documents: Ragged) -> Any:
    values, offsets = (np.ascontiguousarray(array) for array in documents)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    )


def _metadata(rows: int, nbytes: int) -> BlockMetadata:
    members: dict[str, Any] = dict.fromkeys(
        field.name for field in dataclasses.fields(BlockMetadata)
    )
    return BlockMetadata(**{**members, "num_rows": rows, "size_bytes": nbytes})


def _sample_bytes(dataset: Dataset, reader: SampleReader) -> float:
    """How much memory a sample takes, about."""
    if isinstance(reader, DocumentReader):
        documents = reader._opened().table.nbytes[DOCUMENTS]
        return 8 + float(documents.sum()) / max(len(reader), 1)
    stream = reader.stream
    length = dataset.sequence_length if isinstance(dataset, StreamDataset) else 1
    nbytes = float(length * stream.storage.element_type.itemsize)
    table = stream._opened().table
    if PAYLOADS in table.nbytes:
        spans, payloads = float(table.nbytes[SPANS].sum()), float(table.nbytes[PAYLOADS].sum())
        share = min(length / max(len(stream), 1), 1.0)
        nbytes += share * (payloads + spans) + SPAN_BYTES
    return nbytes


def _absolute(dataset: Dataset) -> Dataset:
    """The dataset with the whole path of its folder: tasks run in other folders."""
    directory = os.path.abspath(dataset.storage.directory)
    if not os.path.exists(os.path.join(directory, _names.HEADER)):
        return dataset  # which a backend finds elsewhere
    moved = copy.copy(dataset)
    moved.storage = copy.copy(dataset.storage)
    moved.storage.directory = Path(directory)
    return moved

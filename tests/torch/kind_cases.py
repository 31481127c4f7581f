"""Documents and streams with metadata whose samples say who they are, as a loader delivers them."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from guideloom import (
    DocumentBytesFormat,
    DocumentJSONFormat,
    DocumentNumpyFormat,
    DocumentStorage,
    Padded,
    SpanBatch,
    StatefulDataLoader,
    StreamSpansFormat,
    StreamWithMetaStorage,
)
from read.span_cases import Cut, model_of, write_spans

from .loader_cases import Delivered

LENGTH = 3
WIDTH, PAD = 7, 60_000
Row = Hashable
"""A sample in plain values. No two samples of a dataset are the same row."""


@dataclass(frozen=True)
class Kind:
    """How samples are stored and loaded.

    Attributes:
        write: makes a dataset of so many samples in a directory.
        storage: over such a directory.
        table: the rows of a dataset of so many samples.
        rows: those of a batch; everything else in it is checked.
        options: for the loader.
    """

    write: Callable[[Path, int], None]
    storage: Callable[[Path], Any]
    table: Callable[[int], list[Row]]
    rows: Callable[[Any], Iterable[Row]]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Samples:
    """A dataset of one kind."""

    kind: Kind
    directory: Path
    count: int
    number: Mapping[Row, int]

    @classmethod
    def written(cls, kind: Kind, directory: Path, count: int) -> Samples:
        kind.write(directory, count)
        number = {row: i for i, row in enumerate(kind.table(count))}
        assert len(number) == count
        return cls(kind, directory, count, number)

    def loader(
        self,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *,
        seed: int | None = None,
        **options: Any,
    ) -> StatefulDataLoader:
        """A loader of fresh objects all the way down; it shuffles if there is a seed."""
        return StatefulDataLoader.from_storage(
            self.kind.storage(self.directory),
            collate_fn,
            shuffle=seed is not None,
            shuffle_seed=seed,
            **{**self.kind.options, **options},
        )

    def ids_of(self, batch: Any) -> list[int]:
        """Which samples these are."""
        return [self.number[row] for row in self.kind.rows(batch)]

    def deliver(
        self, loader: StatefulDataLoader, *, until_epoch: int, states: list[str] | None = None
    ) -> list[Delivered]:
        """Everything up to the start of an epoch; and the states, before and after each batch."""
        delivered: list[Delivered] = []
        if states is not None:
            states.append(json.dumps(loader.state_dict()))
        for _ in range(until_epoch + 1):
            if loader.epoch >= until_epoch:
                return delivered
            epoch = loader.epoch
            for batch in loader:
                delivered.append((epoch, self.ids_of(batch)))
                if states is not None:
                    states.append(json.dumps(loader.state_dict()))
        raise AssertionError(f"epoch {until_epoch} does not come; the loader is in {loader.epoch}")


# Documents: of 1 to 5 values, the last one empty.


def _values(i: int, count: int) -> tuple[int, ...]:
    return tuple(range(10 * i, 10 * i + 1 + i % 5)) if i < count - 1 else ()


def _value_table(count: int) -> list[Row]:
    return [_values(i, count) for i in range(count)]


def _writer_of(
    storage: Callable[[Path], DocumentStorage], document: Callable[[int, int], Any]
) -> Callable[[Path, int], None]:
    def write(directory: Path, count: int) -> None:
        """In three shards; the first one in two parts."""
        documents = [document(i, count) for i in range(count)]
        first, second, third = (count // 3, count // 2, count - count // 4)
        parts = [
            [(0, documents[: first // 2]), (8, documents[second:third])],
            [(0, documents[first // 2 : first]), (3, documents[first:second])],
            [(8, documents[third:])],
        ]
        for part in parts:
            with storage(directory).sync_writer() as writer:
                for shard, some in part:
                    writer.extend(shard, some)

    return write


def _token_storage(directory: Path) -> DocumentStorage:
    return DocumentStorage(directory, DocumentNumpyFormat("<u2"))


def _token_rows(batch: Any) -> list[Row]:
    assert type(batch) is list
    for document in batch:
        assert type(document) is torch.Tensor
        assert document.dtype == torch.uint16
        assert document.ndim == 1
    return [tuple(document.tolist()) for document in batch]


def _padded_rows(batch: Any) -> list[Row]:
    assert type(batch) is Padded
    assert batch.values.dtype == torch.uint16
    assert batch.lengths.dtype == torch.int64
    assert batch.values.shape == (len(batch.lengths), WIDTH)
    return _cut_rows(batch)


def _longest_rows(batch: Any) -> list[Row]:
    assert type(batch) is Padded
    assert batch.values.shape == (len(batch.lengths), max(batch.lengths.tolist(), default=0))
    return _cut_rows(batch)


def _cut_rows(batch: Padded) -> list[Row]:
    rows: list[Row] = []
    for values, length in zip(batch.values.tolist(), batch.lengths.tolist(), strict=True):
        assert values[length:] == [PAD] * (len(values) - length)
        rows.append(tuple(values[:length]))
    return rows


def _json_storage(directory: Path) -> DocumentStorage:
    return DocumentStorage(directory, DocumentJSONFormat())


def _json_rows(batch: Any) -> list[Row]:
    assert type(batch) is list
    return [json.dumps(document) for document in batch]


def _json_document(i: int, count: int) -> Any:
    """Values of every type of JSON."""
    values = [None, True, i, i + 0.5, f"document {i}", list(range(i % 4)), {"id": i, "x": [{}]}]
    return [i, values[i % len(values)]] if i < count - 1 else None


def _bytes_storage(directory: Path) -> DocumentStorage:
    return DocumentStorage(directory, DocumentBytesFormat())


def _bytes_document(i: int, count: int) -> bytes:
    return b"%d;" % i * (1 + i % 4) if i < count - 1 else b""


def _bytes_rows(batch: Any) -> list[Row]:
    assert type(batch) is list
    assert all(type(document) is bytes for document in batch)
    return list(batch)


# Streams with metadata: windows of LENGTH elements, each its own number, and spans across them.


def cut_of(samples: int) -> Cut:
    """Spans of 0 to 5 elements in three shards, the first one of two parts.

    LENGTH - 1 elements behind the last sample belong to none.
    """
    sizes = (2, 0, 5, 1, 4, 0, 3)
    shards: list[list[tuple[int, bytes]]] = []
    number = 0
    for elements in np.array_split(np.arange(samples * LENGTH + LENGTH - 1), 3):
        left, spans = len(elements), []
        while left:
            count = min(sizes[number % len(sizes)], left)
            spans.append((count, b"%d;" % number * (number % 3)))
            left -= count
            number += 1
        shards.append(spans)
    return {0: [[shards[0][:2]], [shards[0][2:]]], 3: [[shards[1]]], 1000: [[shards[2]]]}


def _write_windows(directory: Path, samples: int) -> None:
    elements = np.arange(samples * LENGTH + LENGTH - 1, dtype="<u4")
    write_spans(_span_storage(directory), cut_of(samples), elements)


def _span_storage(directory: Path) -> StreamWithMetaStorage:
    return StreamWithMetaStorage(directory, StreamSpansFormat("<u4", DocumentBytesFormat()))


def _window_table(samples: int) -> list[Row]:
    model = model_of(cut_of(samples), np.arange(samples * LENGTH + LENGTH - 1))
    table: list[Row] = []
    for start in range(0, samples * LENGTH, LENGTH):
        pieces = [(one.span, one.length, one.payload) for one in model.window(start, LENGTH)]
        table.append((start, *pieces))
    return table


def _window_rows(batch: Any) -> list[Row]:
    assert isinstance(batch, SpanBatch)
    assert batch.stream.dtype == torch.uint32
    assert batch.stream.shape == (len(batch.offsets) - 1, LENGTH)
    bounds, starts, lengths = batch.offsets.tolist(), batch.starts.tolist(), batch.lengths.tolist()
    spans, index = batch.spans.tolist(), batch.payload_index.tolist()
    assert batch.payloads is not None
    payloads = [payload.numpy().tobytes() for payload in batch.payloads.arrays()]
    assert set(index) == set(range(len(payloads)))
    assert bounds[-1] == len(starts) == len(lengths) == len(spans) == len(index)
    rows: list[Row] = []
    for k, elements in enumerate(batch.stream.tolist()):
        assert elements == list(range(elements[0], elements[0] + LENGTH))
        mine = range(bounds[k], bounds[k + 1])
        at = 0
        for p in mine:
            assert starts[p] == at
            at += lengths[p]
        assert at == LENGTH
        rows.append((elements[0], *((spans[p], lengths[p], payloads[index[p]]) for p in mine)))
    return rows


_write_tokens = _writer_of(_token_storage, _values)
KINDS: dict[str, Kind] = {
    "documents": Kind(_write_tokens, _token_storage, _value_table, _token_rows),
    "padded": Kind(
        _write_tokens,
        _token_storage,
        _value_table,
        _padded_rows,
        {"pad_to": WIDTH, "pad_value": PAD},
    ),
    "longest": Kind(
        _write_tokens,
        _token_storage,
        _value_table,
        _longest_rows,
        {"pad_to": "longest", "pad_value": PAD},
    ),
    "bytes": Kind(
        _writer_of(_bytes_storage, _bytes_document),
        _bytes_storage,
        lambda count: [_bytes_document(i, count) for i in range(count)],
        _bytes_rows,
    ),
    "json": Kind(
        _writer_of(_json_storage, _json_document),
        _json_storage,
        lambda count: [json.dumps(_json_document(i, count)) for i in range(count)],
        _json_rows,
    ),
    "spans": Kind(
        _write_windows, _span_storage, _window_table, _window_rows, {"sequence_length": LENGTH}
    ),
}

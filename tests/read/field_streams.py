"""Streams with fields of any type, with and without metadata, and what should be read of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from format.field_cases import assert_same_bits, big_endian, laid_out
from guideloom import (
    DocumentBytesFormat,
    StreamNumpyFormat,
    StreamSpansFormat,
    StreamStorage,
    StreamWithMetaStorage,
)
from guideloom_write import StreamWithMetaWriter, StreamWriter
from write.faulty_files import Watched

each_kind = pytest.mark.parametrize("kind", ["stream", "spans"])
Fields = Mapping[str, NDArray[Any]]
Storage = StreamStorage | StreamWithMetaStorage

ALIGNED = np.dtype([("tokens", "<u4"), ("loss", "?")])  # 5 bytes
CONCEPTS = np.dtype(
    [("tokens", "<u2"), ("loss", "?"), ("concepts", "<u4", (3,)), ("weights", ml_dtypes.bfloat16)]
)


def storage_of(kind: str, directory: Path, dtype: Any) -> Storage:
    if kind == "stream":
        return StreamStorage(directory, StreamNumpyFormat(dtype))
    return StreamWithMetaStorage(directory, StreamSpansFormat(dtype, DocumentBytesFormat()))


def write(storage: Storage, parts: list[Fields]) -> None:
    """Deal the parts to two shards; every second append is committed by itself."""
    plain = isinstance(storage, StreamStorage)
    writer = (StreamWriter if plain else StreamWithMetaWriter)(storage, files=Watched())
    with writer:
        for number, part in enumerate(parts):
            size = len(next(iter(part.values())))
            spans = ([size], [b"payload"])
            writer.append(number % 2, part if plain else (part, *spans))
            if number % 4 > 1:
                writer.commit()


def in_order(parts: list[Any]) -> list[Any]:
    """As they lie in the stream: those of shard 0 first."""
    return [*parts[::2], *parts[1::2]]


def given_as(
    values: NDArray[Any], fields: Mapping[str, Any], orders: list[bool], layout: str
) -> Fields:
    """The fields of records as arrays of their own, in some byte order and layout."""
    data = {}
    order = itertools.cycle(orders)
    for name, (base, shape) in fields.items():
        swapped = next(order)
        column = np.empty((len(values), *shape), dtype=big_endian(base) if swapped else base)
        column[...] = values[name]
        data[name] = laid_out(column, layout)
    return data


def fields_of(sample: Any) -> Fields:
    """The elements of a sample or batch of either kind."""
    fields: Fields = getattr(sample, "stream", sample)
    return fields


def check(found: Any, expected: Any, fields: Mapping[str, Any]) -> None:
    """The fields of a sample or batch against records of the same shape."""
    found = fields_of(found)
    assert list(found) == list(fields)
    for name, (base, shape) in fields.items():
        array = found[name]
        assert type(array) is np.ndarray
        assert array.dtype == base
        assert array.shape == (*expected.shape, *shape)
        assert array.flags.carray  # contiguous, aligned, writable
        assert_same_bits(array, expected[name])


def empty_out(fields: Mapping[str, Any], *lead: int) -> dict[str, NDArray[Any]]:
    return {name: np.empty((*lead, *shape), base) for name, (base, shape) in fields.items()}

"""Documents of every type that is stored, as tensors, one by one and padded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from format.field_cases import EXTENSIONS, any_bits
from guideloom import DocumentNumpyFormat, DocumentStorage, Padded, StatefulDataLoader

from .tensor_cases import KNOWN, check

SIZES = [0, 3, 1, 4, 0, 2]


def write_documents(directory: Path, values: NDArray[Any]) -> DocumentStorage:
    storage = DocumentStorage(directory, DocumentNumpyFormat(values.dtype))
    with storage.sync_writer() as writer:
        writer.extend(0, np.split(values, np.cumsum(SIZES)[:-1]))
    return storage


def document_types() -> list[np.dtype[Any]]:
    plain = [dtype for dtype in KNOWN if dtype not in EXTENSIONS]
    records = [
        np.dtype([("a", "u1"), ("b", "<f4"), ("c", "<u2", (3,))]),  # odd size
        np.dtype([("a", "<i4"), ("b", "<f4")]),  # strides of whole values
        np.dtype([("a", "?"), ("b", [("c", "<i8"), ("d", "u1")])]),
        np.dtype({"names": ["a", "b"], "formats": ["u1", "<f4"], "offsets": [0, 1], "itemsize": 8}),
    ]
    return [*plain, *records]


@pytest.mark.parametrize("dtype", document_types(), ids=str)
def test_documents_become_tensors(dtype: np.dtype[Any], tmp_path: Path) -> None:
    """Empty ones, too; records as a mapping."""
    values = any_bits(dtype, (sum(SIZES),), np.random.default_rng(0))
    documents = np.split(values, np.cumsum(SIZES)[:-1])
    storage = write_documents(tmp_path, values)
    loader = StatefulDataLoader.from_storage(storage, local_batch_size=3)
    found = [document for batch in loader for document in batch]
    assert len(found) == len(SIZES)
    for tensor, document in zip(found, documents, strict=True):
        check(tensor, document)
    padded = StatefulDataLoader.from_storage(storage, local_batch_size=3, pad_to=5)
    for k, batch in enumerate(padded):
        assert isinstance(batch, Padded)
        assert batch.lengths.tolist() == SIZES[3 * k : 3 * k + 3]
        expected = np.zeros((3, 5), dtype=dtype.newbyteorder("<"))
        for row, document in zip(expected, documents[3 * k : 3 * k + 3], strict=True):
            row[: len(document)] = document
        check(batch.values, expected)


@pytest.mark.parametrize("dtype", ["S3", "<U2", "V3", [("x", "S3")], [("x", [("x", "V1")])]])
def test_documents_that_torch_cannot_hold(dtype: Any, tmp_path: Path) -> None:
    storage = write_documents(tmp_path, np.zeros(sum(SIZES), dtype))
    loader = StatefulDataLoader.from_storage(storage, local_batch_size=3)
    with pytest.raises(TypeError, match=r"^(the batch|field 'x') has dtype .*; pass a collate_fn"):
        next(iter(loader))

"""`DocumentNumpyFormat`: any type of values and any bytes."""

from __future__ import annotations

import json

import numpy as np

from guideloom_format import DamagedFileError, DataError, DocumentNumpyFormat
from targets.base import Target, attempt
from targets.taking import Taking, mutate_plain

SHARD = 3
DTYPES = [
    "|u1",
    "<u2",
    "<i8",
    "<f2",
    "<f4",
    "<c16",
    "|b1",
    "|S5",
    "<U2",
    "|V3",
    [["a", "<u2"], ["", "|V3"], ["b", "|b1", [2, 2]]],
    [["a", [["b", "<f8"], ["c", "<U1"]], [3]]],
]


def feed(data: bytes) -> None:
    taking = Taking(data)
    described = json.loads(json.dumps(DTYPES[taking.below(len(DTYPES))]))
    form = DocumentNumpyFormat.from_header({"dtype": described}, "folder/guideloom.json")
    assert form.parameters() == {"dtype": described}
    size = form.document_dtype.itemsize
    count = taking.below(4)
    cuts = sorted(taking.below(16) for _ in range(count))
    content = taking.rest()
    one = attempt(
        lambda: [form.unpack(memoryview(bytearray(content)), SHARD)],
        DamagedFileError,
        names=f"shard {SHARD}",
    )
    assert (one is None) == (len(content) % size != 0)
    if one is None:
        return
    array = one[0]
    assert array.tobytes() == content
    assert array.flags.writeable or not content
    offsets = np.array([0, *[min(cut, array.size) for cut in cuts], array.size], dtype=np.int64)
    batch = form.unpack_batch(array, offsets)
    assert b"".join(document.tobytes() for document in batch) == content
    packed = attempt(lambda: form.pack(array).tobytes(), DataError)
    assert packed is not None
    assert len(packed) == len(content)
    again = form.unpack(memoryview(bytearray(packed)), SHARD)
    assert form.pack(again).tobytes() == packed


def seeds() -> list[bytes]:
    return [bytes([k, 2, 1, 3]) + bytes(range(240)) for k in range(len(DTYPES))]


TARGET = Target("document_numpy", feed, mutate_plain, seeds)

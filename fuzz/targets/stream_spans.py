"""`StreamSpansFormat`: payloads of any bytes in every payload format."""

from __future__ import annotations

import itertools

import numpy as np

from guideloom_format import (
    DamagedFileError,
    DocumentBytesFormat,
    DocumentJSONFormat,
    DocumentNumpyFormat,
    DocumentStorageFormat,
    StreamSpansFormat,
)
from guideloom_read import Ragged
from targets.base import Target, attempt
from targets.taking import Taking, mutate_plain

PAYLOADS: list[DocumentStorageFormat] = [
    DocumentBytesFormat(),
    DocumentJSONFormat(),
    DocumentNumpyFormat("<u2"),
]
STREAMS = [np.dtype("<u2"), np.dtype([("a", "<u2"), ("b", "?")])]


def feed(data: bytes) -> None:
    taking = Taking(data)
    form = StreamSpansFormat(
        STREAMS[taking.below(len(STREAMS))], PAYLOADS[taking.below(len(PAYLOADS))]
    )
    offsets = taking.numbers(taking.below(6), 32)
    if taking.below(4):
        offsets = np.sort(np.append(offsets, 0))
    content = taking.rest()
    bounds = offsets.tolist()
    fits = all(0 <= a <= b <= len(content) for a, b in itertools.pairwise(bounds))
    found = attempt(
        lambda: form.unpack_payloads(Ragged(np.frombuffer(content, np.uint8), offsets)),
        DamagedFileError,
        *(() if fits else (IndexError,)),
    )
    if not fits:
        assert found is None
        return
    payloads = [content[a:b] for a, b in itertools.pairwise(bounds)]
    stream = np.zeros(5, dtype=form.stream_dtype)
    index = np.zeros(5, dtype=np.int64)
    sample = attempt(
        lambda: form.unpack(stream, [7] * len(payloads), index, payloads),
        DamagedFileError,
        names="shard 7",
    )
    assert (sample is None) == (found is None)
    if sample is not None and isinstance(form.payload_format, DocumentBytesFormat):
        assert found == sample.payloads == payloads


def seeds() -> list[bytes]:
    return [
        bytes([0, 0, 3, 2, 5, 9, 1]) + b"any bytes at all",
        bytes([1, 1, 2, 2, 9, 1]) + b'[]{"a":0}',
        bytes([0, 2, 3, 4, 8, 10, 1]) + bytes(range(30)),
        bytes([1, 2, 3, 200, 8, 10, 0]) + bytes(range(30)),
    ]


TARGET = Target("stream_spans", feed, mutate_plain, seeds)

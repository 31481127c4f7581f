"""`StreamNumpyFormat` as a header describes it: any views of fields, then any bytes."""

from __future__ import annotations

import json

import numpy as np

from guideloom_format import DamagedFileError, StreamNumpyFormat, UnsupportedFormatError
from guideloom_format._dtypes import described_dtype
from targets.base import Target, attempt
from targets.mutation import mutate_json

WHERE = "folder/guideloom.json"
MOST = 1 << 16


def feed(data: bytes) -> None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(value, dict):
        return
    dtype = attempt(
        lambda: described_dtype(value.get("element_type"), WHERE), DamagedFileError, names=WHERE
    )
    parameters = value.get("parameters")
    if dtype is None or not isinstance(parameters, dict) or dtype.itemsize > MOST:
        return
    if not dtype.names:
        return  # `built_in_format` refuses the header, see the target `header`
    form = attempt(
        lambda: StreamNumpyFormat.from_header(parameters, dtype, WHERE),
        DamagedFileError,
        UnsupportedFormatError,
        names=WHERE,
    )
    if form is None:
        return
    assert form.stream_dtype == dtype
    assert form.parameters().get("views", {}) == parameters.get("views", {})
    content = str(value.get("content", "")).encode("utf-8", "replace")
    content = (content * 6 * dtype.itemsize)[: 6 * dtype.itemsize].ljust(6 * dtype.itemsize, b"\1")
    elements = np.frombuffer(bytearray(content), dtype)
    for shape in ((6,), (2, 3), (6, 1), (0,)):
        stream = elements[: int(np.prod(shape))].reshape(shape)
        batch = form.unpack_batch(stream)
        assert set(batch) == set(form.fields())
        for name, (base, inner) in form.fields().items():
            assert batch[name].shape == (*shape, *inner)
            assert batch[name].dtype == base
    whole = form.unpack(elements, [6], [0])
    packed = form.pack(whole)
    assert form.pack(form.unpack(packed, [6], [0])).tobytes() == packed.tobytes()


def seeds() -> list[bytes]:
    record = [["tokens", "<u2"], ["", "|V1"], ["half", "<u2", [2, 3]], ["odd", "|u1"]]
    views = {"half": "bfloat16", "odd": "float8_e4m3fn"}
    values: list[object] = [
        {"element_type": record, "parameters": {"views": views}, "content": "abcdefg"},
        {"element_type": record, "parameters": {}, "content": ""},
        {"element_type": [["only", "<u2"]], "parameters": {"views": {"only": "bfloat16"}}},
        {"element_type": [["only", "<U3"]], "parameters": {}, "content": "x"},
        {"element_type": [["a", [["b", "|u1"]]]], "parameters": {"views": {"a": "int4"}}},
        {"element_type": [["a", "|u1"]], "parameters": {"views": {"a": "finfo"}}},
    ]
    return [json.dumps(value).encode() for value in values]


TARGET = Target("stream_numpy", feed, mutate_json, seeds)

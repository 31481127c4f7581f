"""`StreamSpansFormat`: elements of any type, payloads in any document format."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from guideloom_format import (
    DamagedFileError,
    DataError,
    DocumentBytesFormat,
    DocumentJSONFormat,
    DocumentNumpyFormat,
    DocumentPickleFormat,
    DocumentStorageFormat,
    SpanWindow,
    StreamNumpyFormat,
    StreamSpansFormat,
    StreamWithMetaStorageFormat,
)

PLAIN = ["<u2", "<i8", "|u1", "?", "<f4", "<f8", "<c16", "S3", "<U2", "V5"]
FIELDS: dict[str, Any] = {
    "one field": [("token", "<u4")],
    "five bytes": [("token", "<u4"), ("mask", "?")],
    "a shape": [("pair", "<i2", (2, 3)), ("text", "S3")],
    "nested": [("inner", [("a", "<u2"), ("b", "?")]), ("c", "u1")],
    "padded": np.dtype([("a", "u1"), ("b", "<u4")], align=True),
}
BFLOAT16 = np.dtype([("token", "<u2"), ("weight", ml_dtypes.bfloat16)])


def values_of(dtype: np.dtype[Any], count: int, seed: int = 0) -> NDArray[Any]:
    """Elements with bytes from 1 to 99 at random, zeros for padding, booleans 0 or 1."""
    rng = np.random.default_rng(seed)
    out = np.zeros(count, dtype)
    if dtype.names is not None:
        for name in dtype.names:
            base, shape = dtype[name].base, dtype[name].shape
            flat = values_of(base, count * math.prod(shape), seed + 1)
            out[name] = flat.reshape(count, *shape)
    elif dtype.kind == "b":
        out[:] = rng.random(count) < 0.5
    elif dtype.kind == "U":
        out[:] = ["xy"] * count
    else:
        raw = rng.integers(1, 100, count * dtype.itemsize, dtype=np.uint8)
        out = raw.view(dtype)
    return out


def parts_of(form: StreamSpansFormat, elements: NDArray[Any]) -> Any:
    """Elements as the format takes them."""
    if form.stream_format is None:
        return elements
    return {name: elements[name] for name in elements.dtype.names or ()}


def check_same(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert isinstance(found, dict)
        assert list(found) == list(expected)
        for name, values in expected.items():
            check_same(found[name], values)
        return
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("dtype", PLAIN)
def test_plain_elements(dtype: str) -> None:
    form = StreamSpansFormat(dtype, DocumentBytesFormat())
    assert form.stream_dtype == np.dtype(dtype)
    assert form.stream_format is None
    elements = values_of(np.dtype(dtype), 7)
    stream, lengths, payloads = form.pack((elements, [3, 0, 4], [b"a", b"", b"bc"]))
    check_same(stream, elements)
    assert (lengths, payloads) == ([3, 0, 4], [b"a", b"", b"bc"])
    index = np.array([0, 0, 0, 1, 1, 1, 1])
    window = form.unpack(stream, [4, 5], index, [b"a", b"bc"])
    assert isinstance(window, SpanWindow)
    check_same(window.stream, elements)
    assert window.span_index is index
    assert (window.payloads, window.shards) == ([b"a", b"bc"], [4, 5])
    batch = elements[:6].reshape(2, 3)
    assert form.unpack_batch(batch) is batch


@pytest.mark.parametrize("name", FIELDS)
def test_elements_with_fields(name: str) -> None:
    """They go in and come out as with `StreamNumpyFormat`."""
    dtype = np.dtype(FIELDS[name])
    form = StreamSpansFormat(dtype, DocumentBytesFormat())
    plain = StreamNumpyFormat(dtype)
    assert form.stream_dtype == plain.stream_dtype
    elements = values_of(dtype, 6)
    stream, _, _ = form.pack((parts_of(form, elements), [6], [b""]))
    check_same(stream, plain.pack(parts_of(form, elements)))
    assert stream.dtype == form.stream_dtype
    window = form.unpack(stream, [0], np.zeros(6, np.int64), [b""])
    check_same(window.stream, plain.unpack(stream, [6], [0]))
    check_same(form.unpack_batch(stream.reshape(2, 3)), plain.unpack_batch(stream.reshape(2, 3)))


def test_fields_of_bfloat16_are_stored_as_bits() -> None:
    form = StreamSpansFormat(BFLOAT16, DocumentJSONFormat())
    assert form.stream_dtype == np.dtype([("token", "<u2"), ("weight", "<u2")])
    weights = np.array([1.5, -2.0, 0.25], dtype=ml_dtypes.bfloat16)
    stream, _, payloads = form.pack(({"token": [1, 2, 3], "weight": weights}, [3], [{"id": 1}]))
    assert stream["weight"].tolist() == weights.view(np.uint16).tolist()
    window = form.unpack(stream, [0], np.zeros(3, np.int64), payloads)
    check_same(window.stream["weight"], weights)
    check_same(form.unpack_batch(stream.reshape(1, 3))["weight"], weights.reshape(1, 3))
    assert window.payloads == [{"id": 1}]


def test_a_plain_stream_of_bfloat16_says_how_to_store_it() -> None:
    with pytest.raises(TypeError, match="bfloat16"):
        StreamSpansFormat(ml_dtypes.bfloat16, DocumentBytesFormat())


class Upper:
    """A payload format of a user's own."""

    def pack(self, data: str) -> bytes:
        return data.upper().encode()

    def unpack(self, buffer: memoryview, shard: int) -> tuple[str, int]:
        return bytes(buffer).decode().lower(), shard


def is_document_format(form: DocumentStorageFormat) -> DocumentStorageFormat:
    """Checked by mypy: what is above fits the protocol."""
    return form


def is_spans_format(form: StreamWithMetaStorageFormat) -> StreamWithMetaStorageFormat:
    """Checked by mypy: the built-in format fits its protocol."""
    return form


PAYLOADS: list[tuple[Any, list[Any]]] = [
    (DocumentBytesFormat(), [b"x", b"", b"\0\xff"]),
    (DocumentJSONFormat(), [{"a": [1, 2.5, None]}, "ä", 0]),
    (DocumentPickleFormat(), [(1, "x"), {2: 3}, None]),
    (DocumentNumpyFormat("<u4"), [[1, 2], [], [3]]),
    (DocumentNumpyFormat([("a", "<u2"), ("b", "?")]), [np.zeros(2, [("a", "<u2"), ("b", "?")])]),
]


@pytest.mark.parametrize(
    ("payload_format", "payloads"), PAYLOADS, ids=lambda value: repr(value)[:40]
)
def test_every_payload_format(payload_format: Any, payloads: list[Any]) -> None:
    """Each payload is what the document format makes of it, alone."""
    form = is_spans_format(StreamSpansFormat("<u2", payload_format))
    count = len(payloads)
    packed: Any = form.pack((np.arange(count), [1] * count, payloads))
    buffers = [bytes(memoryview(payload)) for payload in packed[2]]
    assert buffers == [bytes(memoryview(payload_format.pack(each))) for each in payloads]
    index = np.arange(count, dtype=np.int64)
    window = form.unpack(packed[0], list(range(count)), index, buffers)
    for found, given_payload in zip(window.payloads, payloads, strict=True):
        if isinstance(found, np.ndarray):
            assert found.dtype == payload_format.document_dtype
            assert found.tolist() == np.asarray(given_payload, found.dtype).tolist()
        else:
            assert found == given_payload


def test_a_payload_format_is_told_the_shard_of_each_payload() -> None:
    form = StreamSpansFormat("<u2", is_document_format(Upper()))
    stream, _, payloads = form.pack(([1, 2, 3], [2, 1], ["ab", "c"]))
    assert payloads == [b"AB", b"C"]
    window = form.unpack(stream, [7, 9], np.array([0, 0, 1]), payloads)
    assert window.payloads == [("ab", 7), ("c", 9)]
    with pytest.raises(ValueError, match="zip"):
        form.unpack(stream, [7], np.array([0, 0, 1]), payloads)


@settings(max_examples=100, deadline=None)
@given(
    runs=st.lists(st.tuples(st.integers(0, 4), st.text(max_size=5)), max_size=9),
    kind=st.sampled_from([list, tuple, np.array, iter]),
)
def test_runs_go_through_unchanged(runs: list[tuple[int, str]], kind: Any) -> None:
    """Also from iterators, of which only the payloads are looked at."""
    form = StreamSpansFormat("<i4", DocumentJSONFormat())
    lengths = [count for count, _ in runs]
    texts = [text for _, text in runs]
    stream, given_lengths, payloads = form.pack(
        (np.arange(sum(lengths)), kind(lengths), iter(texts))
    )
    assert list(given_lengths) == lengths
    assert stream.tolist() == list(range(sum(lengths)))
    index = np.repeat(np.arange(len(runs)), lengths)
    window = form.unpack(stream, [0] * len(runs), index, payloads)
    assert window.payloads == texts


BAD: list[tuple[Any, str]] = [
    (None, r"StreamSpansFormat got None; expected a tuple \(elements, run_lengths, payloads\)"),
    (5, r"StreamSpansFormat got 5; expected a tuple \(elements, run_lengths, payloads\)"),
    ("abc", r"StreamSpansFormat got 'abc'; expected a tuple \(elements"),
    ([[1], [1], [b""]], r"StreamSpansFormat got \[\[1\], .*; expected a tuple \(elements"),
    ((), r"StreamSpansFormat got \(\); expected a tuple \(elements"),
    (([1], [1]), r"StreamSpansFormat got \(\[1\], \[1\]\); expected a tuple \(elements"),
    (([1], [1], [b""], 4), r"StreamSpansFormat got .*; expected a tuple \(elements"),
    (([1], [1], "a"), "StreamSpansFormat got payloads of type str; expected a list with a payload"),
    (([1], [1], b"a"), "got payloads of type bytes; expected a list"),
    (([1], [1], bytearray(1)), "got payloads of type bytearray; expected a list"),
    (([1], [1], memoryview(b"a")), "got payloads of type memoryview; expected a list"),
    (([1], [1], None), "got payloads of type NoneType; expected a list"),
    (([1], [1], 7), "got payloads of type int; expected a list"),
    (([1], [1], ["a"]), "DocumentBytesFormat got str; expected bytes"),
    (([70_000], [1], [b""]), "the stream holds 70000 at position 0; uint16 holds 0 to 65535"),
    (([-1], [1], [b""]), "the stream holds -1 at position 0"),
    (([1.5], [1], [b""]), "the stream has dtype float64; expected uint16"),
    (([[1]], [1], [b""]), r"the stream has shape \(1, 1\); expected \(n,\)"),
    ((3, [1], [b""]), r"the stream has shape \(\); expected \(n,\)"),
    ((None, [1], [b""]), r"the stream has shape \(\)"),
    ((np.ma.masked_array([1], [True]), [1], [b""]), "the stream is a masked array"),
    (({"token": [1]}, [1], [b""]), r"the stream has shape \(\)"),
]


def without_address(value: object) -> str:
    """The same in every process, as running tests on several of them needs it."""
    return repr(value).partition(" at 0x")[0][:40]


@pytest.mark.parametrize(("data", "text"), BAD, ids=without_address)
def test_what_is_not_elements_runs_and_payloads(data: Any, text: str) -> None:
    with pytest.raises(DataError, match=text):
        StreamSpansFormat("<u2", DocumentBytesFormat()).pack(data)


def test_elements_with_fields_that_are_no_mapping() -> None:
    form = StreamSpansFormat(FIELDS["five bytes"], DocumentBytesFormat())
    with pytest.raises(DataError, match=r"expected a mapping with the fields \['mask', 'token'\]"):
        form.pack(([1, 2], [2], [b""]))
    with pytest.raises(DataError, match=r"lengths \{'token': 2, 'mask': 1\}; expected one length"):
        form.pack(({"token": [1, 2], "mask": [True]}, [2], [b""]))


CLASSES: dict[str, Any] = {
    "StreamSpansFormat": StreamSpansFormat,
    "DocumentJSONFormat": DocumentJSONFormat,
}
BAD_FORMATS: list[Any] = [None, "document-json", DocumentJSONFormat, Upper, 5, object()]


@pytest.mark.parametrize("payload_format", BAD_FORMATS, ids=without_address)
def test_a_payload_format_that_is_none(payload_format: Any) -> None:
    """Its class in place of an instance is the usual slip."""
    with pytest.raises(
        TypeError,
        match=r"payload_format is .*; expected a document format with pack and unpack, such as "
        r"DocumentJSONFormat\(\)",
    ):
        StreamSpansFormat("<u2", payload_format)


@pytest.mark.parametrize(
    "form", [StreamNumpyFormat([("a", "<u2")]), StreamSpansFormat("<u2", DocumentBytesFormat())]
)
def test_a_format_of_streams_is_not_one_of_payloads(form: Any) -> None:
    with pytest.raises(TypeError, match=r"a format of streams; expected a document format"):
        StreamSpansFormat("<u2", form)


def test_payloads_are_writable_memory_of_their_own() -> None:
    """As `DocumentStorageFormat` promises, whatever the reader hands over."""
    form = StreamSpansFormat("<u2", DocumentNumpyFormat("<u4"))
    data = [b"\1\0\0\0", b"\2\0\0\0"]
    for _ in range(2):
        window = form.unpack(np.zeros(2, np.uint16), [0, 0], np.array([0, 1]), data)
        assert [payload.tolist() for payload in window.payloads] == [[1], [2]]
        for payload in window.payloads:
            payload[:] = 7


@pytest.mark.parametrize("dtype", [object, "M8[s]", ("<u2", (3,)), [("a", object)], "V0", "<f16"])
def test_types_of_elements_that_are_not_stored(dtype: Any) -> None:
    with pytest.raises(TypeError, match=r"stored|of 0 bytes; expected 1 to"):
        StreamSpansFormat(dtype, DocumentBytesFormat())


def test_big_endian_elements_are_stored_little_endian() -> None:
    form = StreamSpansFormat(">u2", DocumentBytesFormat())
    assert form.stream_dtype.str == "<u2"
    stream, _, _ = form.pack((np.array([1, 258], ">u2"), [2], [b""]))
    assert stream.tobytes() == b"\1\0\2\1"


@pytest.mark.parametrize("dtype", ["<u2", FIELDS["five bytes"], BFLOAT16], ids=str)
def test_a_format_can_be_pickled_and_shown(dtype: Any) -> None:
    form = StreamSpansFormat(dtype, DocumentJSONFormat())
    batch = np.zeros((2, 3), form.stream_dtype)
    again = pickle.loads(pickle.dumps(form))
    assert again.stream_dtype == form.stream_dtype
    for each in (form, again):
        shown = eval(repr(each), {"dtype": np.dtype, "bfloat16": ml_dtypes.bfloat16} | CLASSES)
        assert shown.stream_dtype == form.stream_dtype
        assert shown.payload_format.name == "document-json"
        check_same(shown.unpack_batch(batch), form.unpack_batch(batch))


def test_a_payload_that_is_damaged_is_named() -> None:
    form = StreamSpansFormat("<u2", DocumentJSONFormat())
    shards: Sequence[int] = [3, 4]
    with pytest.raises(DamagedFileError, match="a document of shard 4 is not JSON"):
        form.unpack(np.zeros(2, np.uint16), shards, np.array([0, 1]), [b"1", b"{"])

"""Types of ml_dtypes: stored as unsigned integers, named in the header, back bit by bit."""

from __future__ import annotations

import json
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format.field_cases import (
    EXTENSIONS,
    any_bits,
    assert_same_bits,
    big_endian,
    every_value,
    field_dtypes,
    laid_out,
    layouts,
    little_endian_bytes,
)
from guideloom_format import (
    DataError,
    DocumentBytesFormat,
    DocumentNumpyFormat,
    Header,
    StreamNumpyFormat,
    StreamSpansFormat,
    StreamStorage,
)
from guideloom_format._bit_views import is_extension, with_extensions, without_extensions
from guideloom_format._built_in import built_in_format, describe

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
WIDE = [np.dtype(ml_dtypes.complex32), np.dtype(ml_dtypes.bcomplex32)]
each_type = pytest.mark.parametrize("dtype", EXTENSIONS, ids=str)


def one_field(dtype: Any, *shape: int) -> np.dtype[Any]:
    return np.dtype([("x", dtype, shape)])


def bits_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"<u{dtype.itemsize}")


def through_the_header(form: Any, kind: str = "stream") -> Any:
    """The format that a header of this one describes, after JSON."""
    element_type = form.stream_dtype
    header = Header(kind, element_type, json.loads(json.dumps(describe(form))))
    return built_in_format(Header.decode(header.encode()), "there")


# Values


@each_type
@pytest.mark.parametrize("beside", [[], [("y", "u1")]], ids=["alone", "beside another"])
@pytest.mark.parametrize("order", ["little", "big"])
def test_every_bit_pattern_comes_back(dtype: np.dtype[Any], beside: list[Any], order: str) -> None:
    values = every_value(dtype)
    given_values = values if order == "little" else values.byteswap().view(big_endian(dtype))
    assert_same_bits(given_values, values)
    form = StreamNumpyFormat(np.dtype([*beside, ("x", dtype)]))
    stream = form.pack({"x": given_values, **{name: [7] * len(values) for name, _ in beside}})
    assert stream["x"].dtype == bits_of(dtype)
    assert stream["x"].tolist() == list(range(len(values)))
    for sample in (
        form.unpack(stream, [len(values)], [0])["x"],
        form.unpack_batch(stream.reshape(2, -1))["x"].reshape(-1),
    ):
        assert sample.dtype == dtype
        assert sample.flags.c_contiguous
        assert_same_bits(sample, values)


@settings(max_examples=300, deadline=None)
@given(
    dtype=field_dtypes(),
    n=st.integers(0, 5),
    orders=st.lists(st.booleans(), min_size=4, max_size=4),
    layout=layouts,
    seed=st.integers(0, 2**32 - 1),
)
def test_any_fields_in_any_layout_and_byte_order(
    dtype: np.dtype[Any], n: int, orders: list[bool], layout: str, seed: int
) -> None:
    """The stored type has the layout of the one given; what is read has its types."""
    form = StreamNumpyFormat(dtype)
    values = any_bits(dtype, (n,), np.random.default_rng(seed))
    data = {}
    for (name, (base, shape)), swapped in zip(form.fields().items(), orders, strict=False):
        other_order = big_endian(base) if swapped else base
        column = np.empty((n, *shape), dtype=other_order)
        column[...] = values[name]
        data[name] = laid_out(column, layout)
    before = {name: little_endian_bytes(column) for name, column in data.items()}
    stream = form.pack(data)
    assert {name: little_endian_bytes(column) for name, column in data.items()} == before
    assert stream.dtype == form.stream_dtype
    assert stream.dtype.itemsize == dtype.itemsize
    assert form.stream_dtype.names == dtype.names
    sample = form.unpack(stream, [n], [0])
    assert list(sample) == list(dtype.names or ())
    for name, column in sample.items():
        given_type, offset = dtype.fields[name][:2]  # type: ignore[index]
        assert form.stream_dtype.fields is not None
        assert form.stream_dtype.fields[name][1] == offset
        assert column.dtype == given_type.base.newbyteorder("<")
        assert column.shape == (n, *given_type.shape)
        assert column.flags.c_contiguous
        assert_same_bits(column, values[name])


@pytest.mark.parametrize("given_type", ["f4", "f8", "f2", "i8", "u2", "i2", "u1", "?", "c8"])
@each_type
def test_other_types_are_converted_by_the_caller(dtype: np.dtype[Any], given_type: str) -> None:
    """Not even those that would fit; what the message advises works."""
    form = StreamNumpyFormat(one_field(dtype))
    with pytest.raises(DataError, match=rf"^field 'x' has dtype .*; expected {dtype}\. ") as caught:
        form.pack({"x": np.ones(3, dtype=given_type)})
    advised = re.search(r"\.astype\('(\w+)'\)", str(caught.value))
    assert advised is not None
    if given_type != "c8":
        ones = np.ones(3, dtype=given_type).astype(advised[1])
        assert form.unpack_batch(form.pack({"x": ones}))["x"].tobytes() == ones.tobytes()


def test_a_list_of_numbers_is_named() -> None:
    with pytest.raises(DataError, match=r"^field 'x' has dtype float64; expected bfloat16\. "):
        StreamNumpyFormat(one_field(BFLOAT16)).pack({"x": [1.0, 2.0]})
    assert StreamNumpyFormat(one_field(BFLOAT16)).pack({"x": []}).size == 0


@each_type
@pytest.mark.parametrize("field", ["<f4", "<f8", "<f2", "<u2", "u1", "<i4", "V1", "V2", "?"])
def test_a_field_of_another_type_takes_no_extension(dtype: np.dtype[Any], field: str) -> None:
    """Nor does another extension type of the same size; the bits by hand are accepted."""
    form = StreamNumpyFormat(one_field(field))
    with pytest.raises(DataError, match=rf"^field 'x' has dtype {dtype}; expected .*\.view\("):
        form.pack({"x": every_value(dtype)})
    for other in EXTENSIONS:
        if other != dtype:
            with pytest.raises(DataError, match=rf"^field 'x' has dtype {dtype}; expected {other}"):
                StreamNumpyFormat(one_field(other)).pack({"x": every_value(dtype)})
    by_hand = StreamNumpyFormat(one_field(bits_of(dtype)))
    stream = by_hand.pack({"x": every_value(dtype).view(bits_of(dtype))})
    assert_same_bits(by_hand.unpack_batch(stream)["x"].view(dtype), every_value(dtype))


@pytest.mark.parametrize(
    "value, message",
    [
        (np.zeros((3, 2), BFLOAT16), r"has shape \(3, 2\); expected \(n,\)"),
        (np.zeros((), BFLOAT16), r"has shape \(\); expected \(n,\)"),
        (np.ma.masked_array(np.zeros(3, BFLOAT16), [False, True, False]), "is a masked array"),
    ],
)
def test_the_form_is_checked_as_for_other_types(value: Any, message: str) -> None:
    with pytest.raises(DataError, match=f"^field 'x' {message}"):
        StreamNumpyFormat(one_field(BFLOAT16)).pack({"x": value})


# Types


@settings(max_examples=200, deadline=None)
@given(dtype=field_dtypes())
def test_types_are_taken_out_and_put_back(dtype: np.dtype[Any]) -> None:
    stored, views = without_extensions(dtype)
    fields: Any = dtype.fields
    assert views == {
        name: fields[name][0].base
        for name in dtype.names or ()
        if is_extension(fields[name][0].base)
    }
    if not views:
        assert stored is dtype
    for name in dtype.names or ():
        assert not is_extension(stored[name].base)
        assert stored[name].shape == dtype[name].shape
    assert with_extensions(stored, {name: view.name for name, view in views.items()}, "") == dtype


@settings(max_examples=200, deadline=None)
@given(dtype=field_dtypes())
def test_the_header_tells_what_the_fields_hold(dtype: np.dtype[Any]) -> None:
    form = StreamNumpyFormat(dtype)
    spans = StreamSpansFormat(dtype, DocumentBytesFormat())
    expected = {}
    for name, (base, _) in form.fields().items():
        if is_extension(base):
            expected[name] = base.name
    assert form.parameters() == ({"views": expected} if expected else {})
    for described in (
        through_the_header(form),
        through_the_header(spans, "stream-with-meta").stream_format,
    ):
        assert described.stream_dtype == form.stream_dtype
        assert described.fields() == form.fields()
        assert described.parameters() == form.parameters()


@each_type
def test_byte_order_does_not_matter(dtype: np.dtype[Any]) -> None:
    """A format is for values of a type, and stores them little-endian."""
    swapped = StreamNumpyFormat(one_field(big_endian(dtype), 2))
    form = StreamNumpyFormat(one_field(dtype, 2))
    assert swapped.fields() == form.fields() == {"x": (dtype, (2,))}
    assert swapped.fields()["x"][0].isnative
    assert swapped.parameters() == form.parameters() == {"views": {"x": dtype.name}}
    values = every_value(dtype).reshape(-1, 2)
    assert swapped.pack({"x": values}).tobytes() == values.tobytes()
    assert_same_bits(swapped.unpack_batch(swapped.pack({"x": values}))["x"], values)


@each_type
def test_repr_shows_the_type(dtype: np.dtype[Any]) -> None:
    assert dtype.name in repr(StreamNumpyFormat(one_field(dtype)))
    assert dtype.name in repr(StreamSpansFormat(one_field(dtype), DocumentBytesFormat()))


@pytest.mark.parametrize("dtype", [*EXTENSIONS, *WIDE], ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda dtype: StreamNumpyFormat(np.dtype([("a", "u1"), ("b", one_field(dtype))])),
        lambda dtype: StreamNumpyFormat(np.dtype([("a", "u1"), ("b", one_field(dtype), 2)])),
        lambda dtype: StreamSpansFormat(dtype, DocumentBytesFormat()),
        DocumentNumpyFormat,
        lambda dtype: DocumentNumpyFormat(one_field(dtype)),
        lambda dtype: StreamStorage("nowhere", Custom(dtype)),
        lambda dtype: StreamStorage("nowhere", Custom(one_field(dtype))),
    ],
    ids=["nested", "nested array", "spans", "documents", "document records", "own", "own records"],
)
def test_where_they_are_not_stored_the_message_says_so(make: Any, dtype: np.dtype[Any]) -> None:
    with pytest.raises(TypeError, match=rf"holds {dtype.name}, .*ml_dtypes.*\.view\("):
        make(dtype)


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_wider_types_are_refused_by_name(dtype: np.dtype[Any]) -> None:
    for form in (StreamNumpyFormat, lambda dt: StreamSpansFormat(dt, DocumentBytesFormat())):
        text = rf"holds {dtype.name}, a type of ml_dtypes; those of 1 or 2 bytes are stored as "
        with pytest.raises(TypeError, match=text):
            form(np.dtype([("a", "u1"), ("x", dtype)]))


def test_titles_are_refused_beside_them_too() -> None:
    for fields in ([(("t", "x"), BFLOAT16)], [(("t", "x"), "u1"), ("y", BFLOAT16)]):
        with pytest.raises(TypeError, match=r"field 'x' has a title; titles are not stored"):
            StreamNumpyFormat(np.dtype(fields))


class Custom:
    """A storage format of a user."""

    def __init__(self, dtype: Any) -> None:
        self.stream_dtype = dtype

    def pack(self, data: Any) -> Any:
        return data

    def unpack(self, stream: Any, shard_lengths: Any, shards: Any) -> Any:
        del shard_lengths, shards
        return stream

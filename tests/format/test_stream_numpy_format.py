"""StreamNumpyFormat: exactly the stated dtype in, exactly the same values out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from format.dtype_cases import PLAIN, assert_same_values, random_values, structured_dtypes
from guideloom_format import DataError, StreamNumpyFormat, StreamStorageFormat

TOKENS = StreamNumpyFormat([("tokens", "<u2")])
MASKED = StreamNumpyFormat([("tokens", "<u2"), ("loss", "?")])
INTEGERS = [f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)]


@settings(max_examples=300, deadline=None)
@given(dtype=structured_dtypes, n=st.integers(0, 7), seed=st.integers(0, 2**32 - 1))
def test_what_is_packed_is_unpacked(dtype: np.dtype[Any], n: int, seed: int) -> None:
    """Any fields, sub-arrays, nesting, alignment and byte order."""
    data = random_values(dtype, n, np.random.default_rng(seed))
    form = StreamNumpyFormat(dtype)
    stream = form.pack({name: data[name] for name in dtype.names or ()})
    assert stream.dtype == form.stream_dtype == dtype.newbyteorder("<")
    assert stream.shape == (n,)
    assert_same_values(stream, data)
    sample = form.unpack(stream, [n], [0])
    assert list(sample) == list(dtype.names or ())
    for name, values in sample.items():
        assert values.flags.c_contiguous
        assert_same_values(values, data[name])
        base = form.stream_dtype[name].base
        assert values.dtype == base
        assert values.shape == (n, *form.stream_dtype[name].shape)


@settings(max_examples=200, deadline=None)
@given(dtype=structured_dtypes, seed=st.integers(0, 2**32 - 1), shape=st.sampled_from(
    [(0, 3), (1, 1), (2, 3), (3, 0), (2, 3, 2)]))  # fmt: skip
def test_batches_are_unpacked_like_samples(
    dtype: np.dtype[Any], seed: int, shape: tuple[int, ...]
) -> None:
    form = StreamNumpyFormat(dtype)
    count = int(np.prod(shape))
    stream = random_values(form.stream_dtype, count, np.random.default_rng(seed)).reshape(shape)
    batch = form.unpack_batch(stream)
    for name, values in batch.items():
        assert values.flags.c_contiguous
        assert values.shape == (*shape, *form.stream_dtype[name].shape)
        assert_same_values(values, stream[name])
        for k in range(shape[0]):
            sample = form.unpack_batch(stream[k])
            np.testing.assert_array_equal(sample[name], values[k])


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("n", [0, 1, 5])
def test_the_fast_path_of_one_field_gives_what_the_slow_one_gives(name: str, n: int) -> None:
    """The same values beside a second field take the slow path."""
    values = random_values(np.dtype(name), n, np.random.default_rng(n))
    fast = StreamNumpyFormat([("a", name)])
    slow = StreamNumpyFormat([("a", name), ("b", "u1")])
    layouts = [values, np.repeat(values, 2)[::2], values[::-1].copy()[::-1], frozen(values)]
    for same in [*layouts, values.astype(values.dtype.newbyteorder("<"))]:
        one = fast.pack({"a": same})
        other = slow.pack({"a": same, "b": np.zeros(n, dtype="u1")})
        assert one.dtype == fast.stream_dtype
        assert one.flags.c_contiguous
        assert one["a"].dtype == other["a"].dtype
        assert one["a"].tobytes() == other["a"].tobytes()
        assert_same_values(fast.unpack(one, [n], [0])["a"], values)


def frozen(values: NDArray[Any]) -> NDArray[Any]:
    copied = values.copy()
    copied.flags.writeable = False
    return copied


def test_one_field_is_packed_and_unpacked_without_a_copy() -> None:
    values = np.arange(1000, dtype="<u2")
    stream = TOKENS.pack({"tokens": values})
    assert np.shares_memory(stream, values)
    assert np.shares_memory(TOKENS.unpack(stream, [1000], [0])["tokens"], values)


@pytest.mark.parametrize("given_type", INTEGERS)
@pytest.mark.parametrize("field_type", INTEGERS)
@pytest.mark.parametrize("order", "<>")
def test_integers_of_another_width_are_converted_if_every_value_fits(
    given_type: str, field_type: str, order: str
) -> None:
    form = StreamNumpyFormat([("x", "u1"), ("n", field_type)])
    have, hold = np.iinfo(given_type), np.iinfo(field_type)
    borders = {b + d for info in (have, hold) for b in (info.min, 0, info.max) for d in (-1, 0, 1)}
    for value in sorted(b for b in borders if have.min <= b <= have.max):
        numbers = np.array([1, 0, value, value], dtype=order + given_type)
        data = {"n": numbers, "x": np.zeros(4, dtype="u1")}
        if hold.min <= value <= hold.max:
            assert form.pack(data)["n"].tolist() == [1, 0, value, value]
        else:
            with pytest.raises(
                DataError,
                match=rf"^field 'n' holds {value} at position 2; {np.dtype(field_type)} holds "
                rf"{hold.min} to {hold.max}\. Choose a wider dtype$",
            ):
                form.pack(data)


def test_a_value_that_does_not_fit_is_named_inside_a_sub_array() -> None:
    form = StreamNumpyFormat([("n", "i1", (2, 2))])
    numbers = np.zeros((5, 2, 2), dtype=np.int64)
    numbers[3, 1, 0] = 128
    with pytest.raises(DataError, match=r"^field 'n' holds 128 at position 3; int8 holds -128 to "):
        form.pack({"n": numbers})


@pytest.mark.parametrize(
    "field, values",
    [
        *(("<u2", [given]) for given in (1.0, float("nan"), "1", b"1", None, 1j, 2**70)),
        ("<u2", np.zeros(0)),
        ("<u2", np.array([1], dtype=object)),
        ("<u2", np.zeros(1, dtype="m8[s]")),
        *(("?", [given]) for given in (1, 0, 2, 1.0, "x")),
        ("<f4", [1.0]),
        ("<f2", np.zeros(1, dtype="f4")),
        ("<f4", np.zeros(1, dtype="i4")),
        ("<f8", np.zeros(1, dtype="c8")),
        ("<f4", [1j]),
        ("S3", [b"abcd"]),
        ("U3", ["abcd"]),
        ("S3", ["abc"]),
        ("V3", [b"abcd"]),
        ("<i4", np.zeros(1, dtype=[("a", "<i4")])),
    ],
    ids=repr,
)  # fmt: skip
def test_a_conversion_that_can_lose_something_is_refused(field: str, values: Any) -> None:
    """Also for a field alone, where the fast path is."""
    for form, more in (
        (StreamNumpyFormat([("a", field)]), {}),
        (StreamNumpyFormat([("a", field), ("b", "u1")]), {"b": [0] * len(values)}),
    ):
        with pytest.raises(
            DataError,
            match=r"^field 'a' has dtype .*; expected .*\. Convert it with \.astype\('.*'\) if no "
            r"value is lost$",
        ):
            form.pack({"a": values, **more})


def test_large_integers_are_not_rounded_into_a_float() -> None:
    """2**53 + 1 is no float64."""
    form = StreamNumpyFormat([("a", "<f8"), ("b", "u1")])
    with pytest.raises(DataError, match="field 'a'"):
        form.pack({"a": np.array([2**53 + 1]), "b": [0]})


@pytest.mark.parametrize("field", ["U30", "S30", "V8"])
def test_numbers_do_not_become_text_or_raw_bytes(field: str) -> None:
    form = StreamNumpyFormat([("a", field), ("b", "u1")])
    with pytest.raises(DataError, match="field 'a'"):
        form.pack({"a": np.array([1]), "b": [0]})


@pytest.mark.parametrize(
    "field, values, stored",
    [
        ("<f8", np.array([1.5], dtype=">f8"), [1.5]),
        ("<f8", np.array([1.5], dtype="f4"), [1.5]),
        ("<f4", np.array([1.5], dtype="f2"), [1.5]),
        ("<c16", [1.5], [1.5 + 0j]),
        ("<u2", [True, False], [1, 0]),
        ("S5", [b"abc"], [b"abc"]),
        ("<U5", np.array(["abc"], dtype=">U3"), ["abc"]),
        ("?", [True, False], [True, False]),
        ("<u2", [1, 2, 65535], [1, 2, 65535]),
        ("<u2", (1, 2), [1, 2]),
        ("<u2", range(3), [0, 1, 2]),
        ("<i8", [np.uint8(3), np.int32(-4)], [3, -4]),
        ("<u8", [2**64 - 1], [2**64 - 1]),
        ("<u2", [], []),
        ("?", [], []),
        ("S3", (), []),
    ],
    ids=repr,
)
def test_what_loses_nothing_is_converted(field: str, values: Any, stored: list[Any]) -> None:
    form = StreamNumpyFormat([("a", field)])
    assert form.pack({"a": values})["a"].tolist() == stored
    both = StreamNumpyFormat([("a", field), ("b", "u1")])
    packed = both.pack({"a": values, "b": [7] * len(stored)})
    assert packed["a"].tolist() == stored
    assert packed["b"].tolist() == [7] * len(stored)


@pytest.mark.parametrize(
    "field, shape, wanted",
    [
        ("<u2", (), r"\(n,\)"),
        ("<u2", (1, 1), r"\(n,\)"),
        ("<u2", (0, 0), r"\(n,\)"),
        ("<u2", (2, 3, 4), r"\(n,\)"),
        (("<u2", (3,)), (), r"\(n, 3\)"),
        (("<u2", (3,)), (3,), r"\(n, 3\)"),
        (("<u2", (3,)), (4, 2), r"\(n, 3\)"),
        (("<u2", (3,)), (0, 2), r"\(n, 3\)"),
        (("<u2", (3,)), (4, 3, 1), r"\(n, 3\)"),
        (("<u2", (2, 3)), (4, 3, 2), r"\(n, 2, 3\)"),
        (("<u2", (2, 3)), (4, 6), r"\(n, 2, 3\)"),
    ],
)
def test_other_shapes_are_refused(field: Any, shape: tuple[int, ...], wanted: str) -> None:
    form = StreamNumpyFormat(np.dtype([("a", np.dtype(field))]))
    given_shape = str(shape).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(
        DataError,
        match=rf"^field 'a' has shape {given_shape}; expected {wanted}"
        r"(, n positions with the field's own shape behind)?$",
    ):
        form.pack({"a": np.zeros(shape, dtype="<u2")})


@pytest.mark.parametrize("lengths", [(0, 1), (1, 0), (3, 4), (4, 1)])
def test_unequal_lengths_are_shown(lengths: tuple[int, int]) -> None:
    data = {"tokens": np.zeros(lengths[0], "u2"), "loss": np.zeros(lengths[1], "?")}
    with pytest.raises(
        DataError,
        match=rf"^the fields have the lengths {{'tokens': {lengths[0]}, 'loss': {lengths[1]}}}; "
        r"expected one length$",
    ):
        MASKED.pack(data)


@pytest.mark.parametrize(
    "data, shown",
    [
        ({}, r"\[\]"),
        ({"tokens": [1]}, r"\['tokens'\]"),
        ({"loss": [True]}, r"\['loss'\]"),
        ({"tokens": [1], "loss": [True], "more": [1]}, r"\['loss', 'more', 'tokens'\]"),
        ({"tokens": [1], "Loss": [True]}, r"\['Loss', 'tokens'\]"),
        ({1: [1], 2: [2]}, r"\[1, 2\]"),
        ({1: [1], "tokens": [2]}, r"\[.*\]"),
        ({None: [1], "tokens": [2]}, r"\[.*\]"),
        ([1, 2], "list"),
        ([("tokens", [1])], "list"),
        (5, "int"),
        (None, "NoneType"),
        ("tokens", "str"),
        ("t", "str"),
        (b"t", "bytes"),
        (np.zeros(1, "<u2"), "ndarray"),
        (np.zeros(3, "<u2"), "ndarray"),
        ([np.zeros(3, "<u2")], "list"),
        ({"tokens"}, "set"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("form", [TOKENS, MASKED], ids=["one field", "two fields"])
def test_other_fields_and_other_things_are_refused(
    data: Any, shown: str, form: StreamNumpyFormat
) -> None:
    if isinstance(data, dict) and list(data) == list(form.stream_dtype.names or ()):
        assert form.pack(data).size == 1
        return
    fields = sorted(form.stream_dtype.names or ())
    with pytest.raises(
        DataError,
        match=rf"^StreamNumpyFormat got {shown}; expected a mapping with the fields "
        rf"{fields!r}$".replace(repr(fields), repr(fields).replace("[", r"\[").replace("]", r"\]")),
    ):
        form.pack(data)


def test_any_mapping_will_do() -> None:
    class Own(Mapping[str, Any]):
        def __getitem__(self, name: str) -> Any:
            return {"tokens": np.arange(3, dtype="<u2")}[name]

        def __len__(self) -> int:
            return 1

        def __iter__(self) -> Any:
            return iter(["tokens"])

    for data in (Own(), MappingProxyType({"tokens": np.arange(3, dtype="<u2")})):
        assert TOKENS.pack(data)["tokens"].tolist() == [0, 1, 2]


def test_the_callers_data_are_not_changed() -> None:
    data = {"tokens": np.arange(5, dtype=">u4"), "loss": np.ones(5, dtype="?")}
    before = {name: values.copy() for name, values in data.items()}
    stream = MASKED.pack(data)
    stream["tokens"][:] = 9
    stream["loss"][:] = False
    for name, values in data.items():
        np.testing.assert_array_equal(values, before[name])
        assert values.dtype == before[name].dtype


def test_padding_is_written_as_zeros() -> None:
    """So that the same data give the same bytes."""
    dtype = np.dtype([("a", "u1"), ("b", "<u4")], align=True)
    stream = StreamNumpyFormat(dtype).pack({"a": [255, 255], "b": [2**32 - 1] * 2})
    assert stream.tobytes() == (b"\xff\0\0\0" + b"\xff" * 4) * 2


def test_read_only_streams_are_unpacked() -> None:
    stream = frozen(np.zeros(4, dtype=MASKED.stream_dtype))
    assert MASKED.unpack(stream, [4], [0])["tokens"].tolist() == [0, 0, 0, 0]
    strided = np.zeros(8, dtype=MASKED.stream_dtype)[::2]
    assert MASKED.unpack(strided, [1, 3], [0, 5])["loss"].flags.c_contiguous


@pytest.mark.parametrize("dtype", ["<u2", "?", "S4", "V3"])
def test_a_dtype_without_fields_is_refused(dtype: str) -> None:
    with pytest.raises(
        TypeError, match=r"^StreamNumpyFormat got the dtype .*; expected named field"
    ):
        StreamNumpyFormat(dtype)


@pytest.mark.parametrize(
    "dtype",
    ["O", [("a", "O")], [("a", "M8[s]")], [("a", "S0")], [], [("a", [("b", "O")])]],
    ids=str,
)
def test_a_dtype_that_is_not_stored_is_refused(dtype: Any) -> None:
    with pytest.raises(TypeError, match=r"is not stored|of 0 bytes"):
        StreamNumpyFormat(dtype)


def test_a_dtype_of_padding_alone_is_refused() -> None:
    nothing = np.dtype({"names": [], "formats": [], "offsets": [], "itemsize": 3})
    with pytest.raises(TypeError, match="expected named fields"):
        StreamNumpyFormat(nothing)


def test_what_it_says_of_itself() -> None:
    assert isinstance(MASKED, StreamStorageFormat)
    assert (MASKED.name, MASKED.parameters()) == ("stream-numpy", {})
    assert repr(TOKENS) == "StreamNumpyFormat(dtype([('tokens', '<u2')]))"
    assert StreamNumpyFormat([("a", ">i4")]).stream_dtype == np.dtype([("a", "<i4")])
    form = StreamNumpyFormat([("a", "<i4", (2, 3)), ("b", "?")])
    assert form.fields() == {"a": (np.dtype("<i4"), (2, 3)), "b": (np.dtype("?"), ())}

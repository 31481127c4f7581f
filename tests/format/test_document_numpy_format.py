"""DocumentNumpyFormat: 1-d arrays of exactly the stated type, whatever the type."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from format.document_cases import round_trip, stored, write, writer_at
from format.dtype_cases import NOT_STORED, PLAIN, assert_same_values, dtypes, random_values
from guideloom_format import (
    DamagedFileError,
    DataError,
    DocumentNumpyFormat,
    DocumentStorage,
    DocumentStorageFormat,
)
from write.known_content import garbage

TOKENS = DocumentNumpyFormat("<u2")
INTEGERS = [f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)]
numbers = itertools.count()


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    dtype=dtypes,
    lengths=st.lists(st.sampled_from([0, 0, 1, 2, 5]), max_size=6),
    seed=st.integers(0, 2**32 - 1),
)
def test_arrays_come_back(
    dtype: np.dtype[Any], lengths: list[int], seed: int, tmp_path: Path
) -> None:
    """Any plain or structured type, of odd sizes, padded, aligned, of either byte order."""
    rng = np.random.default_rng(seed)
    form = DocumentNumpyFormat(dtype)
    assert form.document_dtype == dtype.newbyteorder("<")
    documents = [random_values(dtype, length, rng) for length in lengths]
    found = round_trip(tmp_path / str(next(numbers)), form, documents)
    assert len(found) == len(documents)
    for values, document in zip(found, documents, strict=True):
        assert type(values) is np.ndarray
        assert values.dtype == form.document_dtype
        assert values.shape == document.shape
        assert_same_values(values, document)
        assert values.flags.c_contiguous
        assert values.flags.aligned
        assert values.flags.writeable


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("n", [0, 1, 5])
def test_arrays_of_every_layout(name: str, n: int) -> None:
    values = random_values(np.dtype(name), n, np.random.default_rng(n))
    form = DocumentNumpyFormat(name)
    frozen = values.copy()
    frozen.flags.writeable = False
    raw = np.zeros(values.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(values.dtype)
    unaligned[...] = values
    for same in (
        values,
        frozen,
        unaligned,
        np.repeat(values, 2)[::2],
        values[::-1].copy()[::-1],
        values.view(np.recarray)
        if values.dtype.names
        else values.view(type("Own", (np.ndarray,), {})),
        values.astype(values.dtype.newbyteorder("<")),
    ):
        packed = form.pack(same)
        assert packed.dtype == np.uint8
        assert packed.ndim == 1
        assert type(packed) is np.ndarray
        assert_same_values(packed.view(form.document_dtype), values)


def test_an_array_of_the_type_is_packed_without_a_copy() -> None:
    values = np.arange(1000, dtype="<u2")
    assert np.shares_memory(TOKENS.pack(values), values)


def dirty(dtype: np.dtype[Any], n: int, byte: int) -> NDArray[Any]:
    """Elements with the same values whose padding is full of `byte`."""
    out = np.full(n * dtype.itemsize, byte, np.uint8).view(dtype)
    count_up(out)
    return out


def count_up(values: NDArray[Any]) -> None:
    for name in values.dtype.names or ():
        count_up(values[name])
    if values.dtype.names is None:
        values[...] = np.arange(values.size).reshape(values.shape)


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype([("a", "u1"), ("b", "<u4")], align=True),
        np.dtype([("a", "u1"), ("b", ">f8"), ("c", "?")], align=True),
        np.dtype({"names": ["a"], "formats": ["<i2"], "offsets": [3], "itemsize": 7}),
        np.dtype([("a", np.dtype([("x", "u1"), ("y", "<u2")], align=True), (2,))]),
    ],
    ids=str,
)
def test_padding_is_written_as_zeros(dtype: np.dtype[Any], tmp_path: Path) -> None:
    """So that the same data give the same bytes, and nothing else of the memory gets out."""
    form = DocumentNumpyFormat(dtype)
    documents = [dirty(dtype, n, byte) for n in (0, 1, 5) for byte in (0, 0xEE)]
    write(tmp_path / "x", form, documents)
    contents = stored(tmp_path / "x", form)
    for clean, other in zip(contents[::2], contents[1::2], strict=True):
        assert clean == other
        assert b"\xee" not in other


@pytest.mark.parametrize(
    "values, expected",
    [
        ([], []),
        ((), []),
        ([1, 2, 65535], [1, 2, 65535]),
        ((1, 2), [1, 2]),
        (range(3), [0, 1, 2]),
        ([True, False], [1, 0]),
        (np.array([7, 65535], ">i8"), [7, 65535]),
        (np.zeros(0, np.int64), []),
        ([np.uint8(3), np.int32(4)], [3, 4]),
    ],
    ids=repr,
)
def test_what_loses_nothing_is_converted(values: Any, expected: list[int]) -> None:
    assert TOKENS.pack(values).view("<u2").tolist() == expected


@pytest.mark.parametrize("given_type", INTEGERS)
@pytest.mark.parametrize("stored_type", INTEGERS)
def test_integers_of_another_width_are_converted_if_every_value_fits(
    given_type: str, stored_type: str
) -> None:
    form = DocumentNumpyFormat(stored_type)
    have, hold = np.iinfo(given_type), np.iinfo(stored_type)
    borders = {b + d for info in (have, hold) for b in (info.min, 0, info.max) for d in (-1, 0, 1)}
    for value in sorted(b for b in borders if have.min <= b <= have.max):
        array = np.array([1, 0, value, value], dtype=given_type)
        if hold.min <= value <= hold.max:
            assert form.pack(array).view(form.document_dtype).tolist() == [1, 0, value, value]
        else:
            with pytest.raises(
                DataError,
                match=rf"^the document holds {value} at position 2; {np.dtype(stored_type)} holds "
                rf"{hold.min} to {hold.max}\. Choose a wider dtype",
            ):
                form.pack(array)


@pytest.mark.parametrize(
    "values, text",
    [
        (np.zeros((2, 2), "<u2"), r"has shape \(2, 2\); expected \(n,\)"),
        (np.zeros((), "<u2"), r"has shape \(\); expected \(n,\)"),
        (7, r"has shape \(\); expected \(n,\)"),
        ([[1, 2], [3, 4]], r"has shape \(2, 2\); expected \(n,\)"),
        ([[1], [2, 3]], "is not an array that NumPy can take: "),
        (None, r"has shape \(\); expected"),
        ("text", r"has shape \(\); expected"),
        (b"ab", r"has shape \(\); expected"),
        (np.zeros(2), "has dtype float64; expected uint16"),
        ([0.0, 1.0], "has dtype float64; expected uint16"),
        (np.zeros(0), "has dtype float64; expected uint16"),
        (["1"], "has dtype <U1; expected uint16"),
        ([None], "has dtype object; expected uint16"),
        ([65536], "holds 65536 at position 0; uint16 holds 0 to 65535"),
        ([3, -1], "holds -1 at position 1; uint16 holds 0 to 65535"),
        ([2**70], "has dtype object; expected uint16"),
        (np.zeros(2, "<V2"), r"has dtype \|V2; expected uint16"),
        (np.zeros(2, [("a", "<u2")]), r"has dtype \[\('a', '<u2'\)\]; expected uint16"),
        (np.ma.masked_array([1, 2], [True, False]), r"is a masked array; give values to all with"),
    ],
    ids=repr,
)
def test_other_arrays_are_refused(values: Any, text: str, tmp_path: Path) -> None:
    """One message for each slip, and nothing is written."""
    with writer_at(tmp_path / "x", TOKENS) as writer:
        for append in (writer.append, lambda shard, one: writer.extend(shard, [one])):
            with pytest.raises(DataError, match=f"^the document {text}"):
                append(0, values)
        assert writer.length(0) == 0
    assert garbage(tmp_path / "x") == set()
    assert list((tmp_path / "x/commits").iterdir()) == []


@pytest.mark.parametrize(
    "stored_type, values",
    [("?", [1]), ("<f4", [1.0]), ("<f2", np.zeros(1, "f4")), ("<f4", np.zeros(1, "i4")),
     ("<f8", np.zeros(1, "i8")), ("<f8", np.zeros(1, "c8")), ("S3", [b"abcd"]), ("U30", [1]),
     ("V8", [1]), ("u1", [True, 2.0])],
    ids=str,
)  # fmt: skip
def test_a_conversion_that_can_lose_something_is_refused(stored_type: str, values: Any) -> None:
    with pytest.raises(
        DataError, match=r"^the document has dtype .*; expected .*\. Convert it wit"
    ):
        DocumentNumpyFormat(stored_type).pack(values)


@pytest.mark.parametrize("dtype", NOT_STORED, ids=str)
def test_a_type_that_is_not_stored_is_refused(dtype: Any) -> None:
    with pytest.raises(TypeError, match=r"stored|of 0 bytes|expected 1 to"):
        DocumentNumpyFormat(dtype)


@pytest.mark.parametrize("dtype", ["<u2", "V5", [("a", "u1"), ("b", "<u8")]], ids=str)
def test_a_size_that_is_no_multiple_is_damaged(dtype: Any) -> None:
    form = DocumentNumpyFormat(dtype)
    size = form.document_dtype.itemsize
    for count in range(1, 3 * size):
        buffer = memoryview(bytearray(count))
        if count % size == 0:
            assert form.unpack(buffer, 3).shape == (count // size,)
        else:
            with pytest.raises(
                DamagedFileError,
                match=f"^a document of shard 3 has {count} bytes; expected a multiple of {size}, "
                "the size of ",
            ):
                form.unpack(buffer, 3)


def test_a_single_document_is_a_view_of_its_buffer() -> None:
    buffer = bytearray(b"\1\0\2\0")
    values = TOKENS.unpack(memoryview(buffer), 0)
    assert values.tolist() == [1, 2]
    values[0] = 513
    assert buffer == b"\1\2\2\0"


def test_documents_of_a_batch_are_views_that_do_not_overlap() -> None:
    values = np.arange(10, dtype="<u2")
    documents = TOKENS.unpack_batch(values, np.array([0, 3, 3, 10]))
    assert [document.tolist() for document in documents] == [[0, 1, 2], [], [*range(3, 10)]]
    assert all(np.shares_memory(document, values) for document in documents if document.size)
    documents[0][:] = 9
    assert documents[2].tolist() == [*range(3, 10)]


def test_the_callers_data_are_not_changed(tmp_path: Path) -> None:
    given_values = np.arange(5, dtype=">u4")
    write(tmp_path / "x", TOKENS, [given_values, given_values])
    assert given_values.dtype == np.dtype(">u4")
    assert given_values.tolist() == [0, 1, 2, 3, 4]


def test_what_it_says_of_itself() -> None:
    fits: object = isinstance(TOKENS, DocumentStorageFormat)
    assert fits
    assert (TOKENS.name, TOKENS.parameters()) == ("document-numpy", {"dtype": "<u2"})
    assert repr(TOKENS) == "DocumentNumpyFormat(dtype('<u2'))"
    assert DocumentNumpyFormat(">i4").document_dtype == np.dtype("<i4")
    structured = DocumentNumpyFormat([("a", "<i4", (2,)), ("b", "?")])
    assert structured.parameters() == {"dtype": [["a", "<i4", [2]], ["b", "|b1"]]}
    assert DocumentStorage("x", structured).element_type == structured.document_dtype

"""Custom document formats: everything that `pack` can get wrong has a message of its own.

It comes with the first append, nothing of the document is written, and the writer goes on.
"""

from __future__ import annotations

import array
import ctypes
import decimal
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from format.document_cases import (
    Kept,
    Plain,
    Typed,
    is_document_format,
    stored,
    without_address,
    writer_at,
)
from guideloom_format import DataError, DocumentStorage
from write.known_content import all_files, garbage

FOR_BYTES: list[tuple[Any, str]] = [
    ("text", r'str; expected bytes: encode it, for example with \.encode\("utf-8"\)$'),
    ("", "str; expected bytes: encode it"),
    (None, "NoneType; expected bytes$"),
    (5, "int; expected bytes$"),
    (5.5, "float; expected bytes$"),
    ([1, 2], "list; expected bytes$"),
    ([b"a"], "list; expected bytes$"),
    ((b"a", b"b"), "tuple; expected bytes$"),
    ({"a": b"b"}, "dict; expected bytes$"),
    (iter([b"a"]), "list_iterator; expected bytes$"),
    (decimal.Decimal(1), "Decimal; expected bytes$"),
    (np.zeros((2, 3), np.uint8), r"an array of shape \(2, 3\) and dtype uint8; expected bytes, or"),
    (np.zeros((), np.uint8), r"an array of shape \(\) and dtype uint8; expected bytes, or"),
    (np.uint8(7), "a buffer of 0 dimensions and items of 1 bytes"),
    (np.zeros(3), r"an array of shape \(3,\) and dtype float64; expected bytes, or a 1-d array of"),
    (
        np.zeros(3, np.int8),
        r"an array of shape \(3,\) and dtype int8; expected bytes, or a 1-d arr",
    ),
    (
        np.zeros(0, "O"),
        r"an array of shape \(0,\) and dtype object; expected bytes, or a 1-d array",
    ),
    (
        np.ma.masked_array(np.zeros(2, np.uint8), [True, False]),
        "a masked array; give values to all with",
    ),
    (memoryview(b"abcd")[::2], "buffer of 1 dimensions and items of 1 bytes, not contiguous; expe"),
    (memoryview(bytes(6)).cast("B", (2, 3)), "a buffer of 2 dimensions and items of 1 bytes"),
    (array.array("H", [1, 2]), "a buffer of 1 dimensions and items of 2 bytes, contiguous; expect"),
    ((ctypes.c_int * 2)(1, 2), "a buffer of 1 dimensions and items of 4 bytes, contiguous; expect"),
]
FOR_VALUES: list[tuple[Any, str]] = [
    ("text", "str; expected bytes"),
    (None, "NoneType; expected bytes$"),
    ([1, 2], "list; expected bytes$"),
    (b"123", "3 bytes; expected a multiple of 4, the size of uint32$"),
    (bytearray(6), "6 bytes; expected a multiple of 4, the size of uint32$"),
    (np.zeros(5, np.uint8), "5 bytes; expected a multiple of 4, the size of uint32$"),
    (np.zeros((2, 3), "<u4"), r"an array of shape \(2, 3\) and dtype uint32; expected bytes, or a"),
    (np.zeros((), "<u4"), r"an array of shape \(\) and dtype uint32; expected bytes, or a 1-d arr"),
    (np.zeros(2, "<i4"), r"of shape \(2,\) and dtype int32; expected .*a 1-d array of uint32$"),
    (np.zeros(2, ">u4"), r"of shape \(2,\) and dtype >u4; expected .*a 1-d array of uint32$"),
    (np.zeros(2, "<u8"), "and dtype uint64; expected"),
    (np.zeros(0, "<f4"), "and dtype float32; expected"),
]
CASES = [(Plain(), *case) for case in FOR_BYTES] + [(Typed("<u4"), *case) for case in FOR_VALUES]


@pytest.mark.parametrize(
    "form, bad, text",
    CASES,
    ids=lambda value: "" if isinstance(value, Plain) else without_address(value)[:30],
)
def test_what_pack_can_get_wrong(form: Plain, bad: Any, text: str, tmp_path: Path) -> None:
    name = type(form).__name__
    with writer_at(tmp_path / "x", form) as writer:
        before = all_files(tmp_path / "x")
        with pytest.raises(DataError, match=rf"^{name}\.pack returned .*{text}"):
            writer.append(0, bad)
        with pytest.raises(DataError, match=rf"^{name}\.pack returned") as raised:
            writer.extend(0, [bad])
        assert raised.value.__notes__ == ["at document 0 of those given to extend"]
        assert all_files(tmp_path / "x") == before, "something was written"
        assert writer.length(0) == 0
        for _ in range(2):
            writer.append(1, b"good")
            with pytest.raises(DataError, match=rf"^{name}\.pack returned"):
                writer.append(1, bad)
        assert writer.length(1) == 2
    assert stored(tmp_path / "x", form) == [b"good"] * 2
    assert garbage(tmp_path / "x") == set()


def buffers(content: bytes) -> Iterator[Any]:
    """The same bytes in everything that `pack` may return."""
    yield content
    yield bytearray(content)
    yield memoryview(content)
    yield memoryview(bytearray(content)).cast("c")
    yield array.array("b", content)
    yield (ctypes.c_char * len(content))(*[content[k : k + 1] for k in range(len(content))])
    yield np.frombuffer(content, np.uint8)
    yield np.repeat(np.frombuffer(content, np.uint8), 2)[::2]
    yield np.frombuffer(content, np.uint8).view(np.recarray)
    yield memoryview(b"x" + content)[1:]


def test_every_buffer_of_bytes_is_taken(tmp_path: Path) -> None:
    documents = [same for content in (b"", b"a", b"abcdefgh") for same in buffers(content)]
    expected = [bytes(same) for same in documents]
    with writer_at(tmp_path / "x", is_document_format(Plain())) as writer:
        for document in documents:
            writer.append(0, document)
        writer.extend(0, documents)
    assert stored(tmp_path / "x", Plain()) == expected * 2


def test_values_of_the_type_are_taken_as_an_array_or_as_bytes(tmp_path: Path) -> None:
    values = np.arange(6, dtype="<u4")
    documents = [values, values[::2], values[::-1], values.tobytes(), values.view(np.uint8), b""]
    with writer_at(tmp_path / "x", is_document_format(Typed("<u4"))) as writer:
        for document in documents:
            writer.append(0, document)
        writer.extend(0, documents)
    expected = [same.tobytes() if isinstance(same, np.ndarray) else same for same in documents]
    assert stored(tmp_path / "x", Typed("<u4")) == expected * 2


def test_padding_of_a_custom_type_is_written_as_zeros(tmp_path: Path) -> None:
    dtype = np.dtype([("a", "u1"), ("b", "<u4")], align=True)
    values = np.full(3 * dtype.itemsize, 0xEE, np.uint8).view(dtype)
    with writer_at(tmp_path / "x", Typed(dtype)) as writer:
        writer.append(0, values)
        writer.extend(0, [values])
    assert stored(tmp_path / "x", Typed(dtype)) == [(b"\xee\0\0\0" + b"\xee" * 4) * 3] * 2


def test_what_pack_returned_may_change_afterwards(tmp_path: Path) -> None:
    """A format may use one buffer for all documents."""

    class Reusing(Plain):
        buffer = bytearray(3)

        def pack(self, data: int) -> Any:
            self.buffer[:] = bytes([data] * 3)
            return memoryview(self.buffer)

    with writer_at(tmp_path / "x", Reusing()) as writer:
        writer.append(0, 1)
        writer.append(0, 2)
        writer.extend(0, [3, 4, 5])
    assert stored(tmp_path / "x", Plain()) == [bytes([k] * 3) for k in range(1, 6)]


def test_unpack_is_given_a_writable_buffer_of_its_own_and_the_shard(tmp_path: Path) -> None:
    with writer_at(tmp_path / "x", Plain()) as writer:
        for shard in (7, 2, 1000):
            writer.append(shard, b"of %d" % shard)
            writer.append(shard, b"")
    with DocumentStorage(tmp_path / "x", Plain()).sync_reader() as reader:
        expected = [(b"of 2", 2), (b"", 2), (b"of 7", 7), (b"", 7), (b"of 1000", 1000), (b"", 1000)]
        assert reader.read_many(range(6)) == expected
        assert [reader.read(k) for k in range(6)] == expected
        assert all(type(shard) is int for _, shard in reader[:])
    with DocumentStorage(tmp_path / "x", is_document_format(Kept())).sync_reader() as reader:
        first, second, again = reader.read_many([0, 2, 0])
    for buffer in (first, second, again):
        assert isinstance(buffer, memoryview)
        assert not buffer.readonly
        assert buffer.format == "B"
        assert buffer.contiguous
    first[:] = b"xxxx"
    assert (bytes(first), bytes(second), bytes(again)) == (b"xxxx", b"of 7", b"of 2")


def test_a_batch_of_a_custom_format_is_unpacked_together(tmp_path: Path) -> None:
    class Together(Typed):
        def unpack_batch(self, values: Any, offsets: Any) -> list[int]:
            assert values.dtype == self.document_dtype
            assert offsets.dtype == np.int64
            return [int(values[a:b].sum()) for a, b in itertools.pairwise(offsets)]

    with writer_at(tmp_path / "x", Together()) as writer:
        writer.extend(0, [np.arange(k, dtype="<u4") for k in range(5)])
    with DocumentStorage(tmp_path / "x", Together()).sync_reader() as reader:
        assert reader.read_many([4, 0, 3, 4]) == [6, 0, 3, 6]
        assert reader.read(4) == reader[-1] == 6
        assert reader[1:3] == [0, 1]
        assert list(reader) == [0, 0, 1, 3, 6]


def test_an_error_of_the_format_itself_comes_out_unchanged(tmp_path: Path) -> None:
    class Broken(Plain):
        def pack(self, data: Any) -> Any:
            if data is None:
                raise LookupError("no such document")
            return data

        def unpack(self, buffer: memoryview, shard: int) -> Any:
            if bytes(buffer) == b"bad":
                raise ArithmeticError(f"of shard {shard}")
            return bytes(buffer)

    with writer_at(tmp_path / "x", Broken()) as writer:
        writer.append(0, b"1")
        with pytest.raises(LookupError, match="no such document"):
            writer.append(0, None)
        with pytest.raises(LookupError, match="no such document") as raised:
            writer.extend(0, [b"2", b"bad", None, b"never"])
        assert raised.value.__notes__ == ["at document 2 of those given to extend"]
        assert writer.length(0) == 3, "those before it were appended"
        writer.append(0, b"3")
    with DocumentStorage(tmp_path / "x", Broken()).sync_reader() as reader:
        assert reader.read_many([0, 1, 3]) == [b"1", b"2", b"3"]
        for read in (lambda: reader.read(2), lambda: reader[:], lambda: list(reader)):
            with pytest.raises(ArithmeticError, match="of shard 0"):
                read()


@pytest.mark.parametrize("method", ["pack", "unpack"])
def test_a_format_without_a_method_is_refused(method: str, tmp_path: Path) -> None:
    form = type("Half", (), {"pack": None, "unpack": None})()
    delattr(type(form), method)
    with pytest.raises(
        TypeError,
        match=f"^the storage format Half has no '{method}'; DocumentStorage needs an object with "
        "pack, unpack, see guideloom.types$",
    ):
        DocumentStorage(tmp_path, form)


def test_a_class_in_place_of_a_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="the storage format Plain is a class and not an instance"):
        DocumentStorage(tmp_path, Plain)


@pytest.mark.parametrize("dtype", ["O", "M8[s]", "S0"])
def test_a_type_that_is_not_stored_is_refused(dtype: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"is not stored|of 0 bytes"):
        DocumentStorage(tmp_path, Typed(dtype))

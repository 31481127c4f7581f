"""The document formats for bytes and JSON: what goes in comes out, or an error."""

from __future__ import annotations

import array
import collections
import ctypes
import itertools
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from format.document_cases import Level, circular, nested, round_trip, stored, write, writer_at
from guideloom_format import (
    DamagedFileError,
    DataError,
    DocumentBytesFormat,
    DocumentJSONFormat,
    DocumentPickleFormat,
    DocumentStorage,
    DocumentStorageFormat,
)

BYTES, JSON, PICKLE = DocumentBytesFormat(), DocumentJSONFormat(), DocumentPickleFormat()
numbers = itertools.count()
into_one_folder = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def fresh(tmp_path: Path) -> Path:
    return tmp_path / str(next(numbers))


@pytest.mark.parametrize("form", [BYTES, JSON, PICKLE], ids=repr)
def test_what_they_say_of_themselves(form: Any) -> None:
    fits: object = isinstance(form, DocumentStorageFormat)
    assert fits
    assert form.parameters() == {}
    assert DocumentStorage("x", form).element_type == np.uint8
    assert repr(form) == f"{type(form).__name__}()"
    assert form.name == "document-" + type(form).__name__[8:-6].lower()


# Bytes


class Subclass(bytes):
    pass


def as_any_buffer(document: bytes) -> list[Any]:
    """The same bytes as everything that is taken."""
    plain = np.frombuffer(document, np.uint8)
    spread = np.repeat(plain, 3)[::3]
    return [
        document,
        bytearray(document),
        memoryview(document),
        memoryview(bytearray(b"x" + document + b"x"))[1:-1],
        memoryview((ctypes.c_uint8 * len(document))(*document)),
        memoryview(array.array("b", document)),
        plain.view(np.int8).data,
        plain,
        spread,
        plain[::-1].copy()[::-1],
        Subclass(document),
        plain.view(np.recarray),
    ]


@into_one_folder
@given(documents=st.lists(st.binary(max_size=20), max_size=5))
def test_bytes_come_back(documents: list[bytes], tmp_path: Path) -> None:
    given_as = [same for document in documents for same in as_any_buffer(document)]
    expected = [document for document in documents for _ in as_any_buffer(document)]
    found = round_trip(fresh(tmp_path), BYTES, given_as)
    assert found == expected
    assert all(type(document) is bytes for document in found)


@pytest.mark.parametrize(
    "document, text",
    [
        ("text", r'got str; expected bytes: encode it, for example with \.encode\("utf-8"\)'),
        ("", "got str; expected bytes: encode it"),
        (None, "got NoneType; expected bytes, or a 1-d uint8 array. Use DocumentNumpyFormat"),
        (7, "got int; expected bytes"),
        ([1, 2], "got list; expected bytes"),
        (np.zeros((2, 2), np.uint8), r"got an array of shape \(2, 2\) and dtype uint8; expected"),
        (np.zeros((), np.uint8), r"got an array of shape \(\) and dtype uint8; expected"),
        (np.zeros(3, np.uint16), r"of shape \(3,\) and dtype uint16; expected .*NumpyFormat\(dt"),
        (np.zeros(3, "S1"), r"dtype \|S1; expected"),
        (memoryview(b"abcd")[::2], "1 dimensions and items of 1 bytes, not contiguous; expected"),
        (memoryview(array.array("H", [1])), "items of 2 bytes, contiguous; expected bytes in a ro"),
        (memoryview(bytes(6)).cast("B", (2, 3)), "a buffer of 2 dimensions"),
        (np.array(3, np.uint8).data, "a buffer of 0 dimensions"),
    ],
    ids=lambda value: repr(value).partition(" at 0x")[0],
)
def test_what_is_not_bytes_is_refused(document: Any, text: str, tmp_path: Path) -> None:
    with writer_at(tmp_path / "x", BYTES) as writer:
        for append in (writer.append, lambda shard, one: writer.extend(shard, [one])):
            with pytest.raises(DataError, match=f"^DocumentBytesFormat.*{text}"):
                append(0, document)
        assert writer.length(0) == 0
        writer.append(0, b"good")
    assert stored(tmp_path / "x", BYTES) == [b"good"]


def test_masked_bytes_are_refused() -> None:
    """What is under a mask is nobody's data."""
    with pytest.raises(
        DataError, match=r"^the document is a masked array; give values to all with"
    ):
        BYTES.pack(np.ma.masked_array(np.zeros(2, np.uint8), [True, False]))


def test_a_buffer_may_be_used_again_after_append(tmp_path: Path) -> None:
    shared = bytearray(b"one")
    values = np.arange(3, dtype=np.uint8)
    with writer_at(tmp_path / "x", BYTES) as writer:
        writer.append(0, shared)
        writer.append(0, values)
        writer.extend(0, [shared, values.data])
        shared[:] = b"two"
        values[:] = 9
    assert stored(tmp_path / "x", BYTES) == [b"one", b"\0\1\2"] * 2


# JSON


def has_pair(text: str) -> bool:
    """Two halves of a surrogate pair in a row, which JSON cannot tell from one character."""
    return any("\ud800" <= a <= "\udbff" and "\udc00" <= b <= "\udfff"
               for a, b in itertools.pairwise(text))  # fmt: skip


texts = st.text(st.characters(codec=None, exclude_categories=[]), max_size=8).filter(
    lambda text: not has_pair(text)
)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**64), 10**400, 0, -1])
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@into_one_folder
@given(documents=st.lists(json_values, max_size=6))
def test_json_values_come_back(documents: list[Any], tmp_path: Path) -> None:
    """Also types (1, 1.0 and True), the order of keys, and the sign of zero."""
    directory = fresh(tmp_path)
    assert repr(round_trip(directory, JSON, documents)) == repr(documents)
    for content, document in zip(stored(directory, JSON), documents, strict=True):
        assert repr(json.loads(content.decode("utf-8"))) == repr(document)


@pytest.mark.parametrize(
    "value, content",
    [
        ({"a": [1, 2.5, None, True], "b": {}}, '{"a":[1,2.5,null,true],"b":{}}'),
        ('Straße, 東京, 😀, \0\n"\\\x7f\u2028', None),
        ((1, (2, 3)), "[1,[2,3]]"),
        ("\ud800", '"\\ud800"'),
        (["é", "\udfff"], '["\\u00e9","\\udfff"]'),
        (-0.0, "-0.0"),
        (1e308, "1e+308"),
        (np.float64(0.1), "0.1"),
        ("", '""'),
    ],
    ids=repr,
)
def test_json_is_utf_8_without_spaces(value: Any, content: str | None) -> None:
    packed = JSON.pack(value)
    assert type(packed) is bytes
    if content is None:
        content = json.dumps(value, ensure_ascii=False)
    assert packed == content.encode("utf-8")
    as_lists = json.loads(json.dumps(value))
    assert repr(JSON.unpack(memoryview(bytearray(packed)), 0)) == repr(as_lists)


class Word(str):
    __slots__ = ()


class Point(NamedTuple):
    x: int
    y: int


def test_what_python_takes_for_json_types() -> None:
    """Subclasses come back as what they stand for."""
    point = Point(1, 2)
    value = {Word("key"): [Level.HIGH, point, collections.OrderedDict(a=Word("b"))]}
    assert JSON.unpack(memoryview(JSON.pack(value)), 0) == {"key": [3, [1, 2], {"a": "b"}]}


@pytest.mark.parametrize(
    "value, text",
    [
        (math.nan, "not JSON compliant"),
        (math.inf, "not JSON compliant"),
        ([1, {"a": (-math.inf,)}], "not JSON compliant"),
        ({1: 2}, "the key 1 is int"),
        ({None: 2}, "the key None is NoneType"),
        ({True: 2}, "the key True is bool"),
        ([({"a": [{1.5: 0}]},)], "the key 1.5 is float"),
        ({b"a": 1}, "the key b'a' is bytes"),
        (b"bytes", "Object of type bytes is not JSON serializable"),
        ({1, 2}, "Object of type set is not JSON serializable"),
        ([np.int64(1)], "Object of type int64 is not JSON serializable"),
        (np.zeros(2), "Object of type ndarray is not JSON serializable"),
        (1j, "Object of type complex is not JSON serializable"),
        (object(), "Object of type object is not JSON serializable"),
        (10**5000, "limit"),
        (nested(100_000), "it is nested more than 256 deep, or contains itself"),
        (nested(257), "it is nested more than 256 deep"),
        (circular(), "it is nested more than 256 deep, or contains itself"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else None,
)
def test_what_json_does_not_have_is_refused(value: Any, text: str, tmp_path: Path) -> None:
    with writer_at(tmp_path / "x", JSON) as writer:
        with pytest.raises(
            DataError,
            match=rf"^DocumentJSONFormat got what JSON cannot hold: .*({text}).*\. Expected dicts "
            "with str keys, lists, str, finite numbers, bool and None$",
        ):
            writer.append(0, value)
        assert writer.length(0) == 0


@pytest.mark.parametrize("depth", [1, 100, 255, 256])
def test_what_is_nested_comes_back_if_it_is_taken(depth: int) -> None:
    """Also far down in the stack, where fewer levels are left."""
    for value in (nested(depth - 1), {"a": nested(depth - 2)} if depth > 1 else {}):
        packed = JSON.pack(value)
        assert JSON.unpack(memoryview(packed), 0) == value


def test_json_of_another_writer_that_is_nested_deeper() -> None:
    """It is read as long as Python can; beyond that it is an error with a name."""
    assert JSON.unpack(memoryview(b"[" * 500 + b"]" * 500), 0) == nested(499)
    with pytest.raises(
        DamagedFileError,
        match=r"^a document of shard 3 is nested too deep to be read here; this format writes at m",
    ):
        JSON.unpack(memoryview(b"[" * 100_000 + b"]" * 100_000), 3)


@pytest.mark.parametrize("text", ["\ud83d\ude00", "a\ud83d\ude00", "\ud83d\ud83d\ude00"], ids=ascii)
def test_two_halves_of_a_pair_are_refused(text: str) -> None:
    """JSON would give them back as one character; written as such it is fine."""
    for value in (text, [1, {"a": text}], {text: None}, {"\ud800": text}):
        with pytest.raises(
            DataError, match="two halves of a surrogate pair side by side, which JSON gives back"
        ):
            JSON.pack(value)
    assert JSON.unpack(memoryview(JSON.pack("\ud83d" + "\U0001f600")), 0) == "\ud83d\U0001f600"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1,]", b"{'a': 1}", b"1 2", b"\xff", b'"\xc3"', b"\0", b"nul", b"[" * 9,
     b"1" * 5000, b"NaN", b"[1,-Infinity]", b"Infinity", "[1]".encode("utf-16"),
     "[1]".encode("utf-32"), "[1]".encode("utf-8-sig")],
    ids=lambda content: repr(content[:9]),
)  # fmt: skip
def test_what_is_not_json_is_damaged(content: bytes) -> None:
    with pytest.raises(
        DamagedFileError,
        match=r"(?s)^a document of shard 3 is not JSON: .*It was written with another storage",
    ):
        JSON.unpack(memoryview(content), 3)


def test_formats_do_not_change_what_they_are_given(tmp_path: Path) -> None:
    value = {"b": [1, (2, {"c": 3})], "a": "x"}
    before = repr(value)
    for form in (JSON, PICKLE):
        write(fresh(tmp_path), form, [value, value])
        assert repr(value) == before

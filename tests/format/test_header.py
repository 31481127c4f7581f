"""The header: what was written is read, all else is a named error."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format.dtype_cases import dtypes
from format.sealed_cases import (
    assert_all_damage_is_found,
    members_of,
    raw_values,
    sealed_text,
    with_member,
    with_raw_value,
    without_member,
    wrong_values,
)
from guideloom_format import (
    DamagedFileError,
    DataError,
    Header,
    MismatchError,
    UnsupportedFormatError,
)
from guideloom_format._dtypes import storable_dtype
from guideloom_format._header import KINDS, MAX_HEADER_BYTES
from guideloom_format._sealed import seal

ID = "00112233445566778899aabbccddeeff"
HEADER = Header(
    kind="stream",
    element_type=np.dtype([("tokens", "<u2"), ("loss", "?")]),
    storage_format={"name": "stream-numpy", "parameters": {}},
    dataset_id=ID,
    user={"tokenizer": "é", "n": [1, None, 2.5]},
    optional_features=("some-feature",),
    written_by="a program 1.2",
)
DATA = HEADER.encode()
TYPES = {
    "format": ["string"],
    "type": ["string"],
    "version": ["string"],
    "kind": ["string"],
    "dataset_id": ["string"],
    "element_type": ["string", "array"],
    "storage_format": ["object"],
    "required_features": ["array"],
    "optional_features": ["array"],
    "written_by": ["string"],
    "user": ["object"],
}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)


def test_the_members_are_those_of_the_format() -> None:
    assert set(members_of(DATA)) == set(TYPES)
    assert Header.decode(DATA) == HEADER


@settings(max_examples=300, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    dtype=dtypes,
    dataset_id=st.integers(0, 2**128 - 1).map("{:032x}".format),
    storage_format=OBJECTS,
    user=OBJECTS,
    optional_features=st.lists(st.text(), max_size=3).map(tuple),
    written_by=st.text(max_size=40),
)
def test_headers_come_back(kind: str, dtype: np.dtype[Any], **members: Any) -> None:
    header = Header(kind=kind, element_type=storable_dtype(dtype), **members)
    data = header.encode()
    back = Header.decode(data)
    assert back == header
    assert back.encode() == data


def test_ids_are_random() -> None:
    ids = {Header("stream", np.dtype("u1"), {}).dataset_id for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(one) == 32 and set(one) <= set("0123456789abcdef") for one in ids)


def test_all_damage_is_found() -> None:
    assert assert_all_damage_is_found(DATA, Header.decode) > 10 * len(DATA)


@pytest.mark.parametrize("name", sorted(TYPES))
def test_a_missing_member_is_named(name: str) -> None:
    with pytest.raises(
        DamagedFileError,
        match=rf"^guideloom\.json: the member '{name}' is missing\. "
        r"The file is damaged or was not written by GuideLoom$",
    ):
        Header.decode(without_member(DATA, (name,)))


@pytest.mark.parametrize("name", sorted(TYPES))
def test_a_member_of_another_type_is_named(name: str) -> None:
    for value in wrong_values(*TYPES[name]):
        with pytest.raises(DamagedFileError, match=rf"^guideloom\.json: {name} is ") as caught:
            Header.decode(with_member(DATA, (name,), value))
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["required_features", "optional_features"])
def test_features_are_strings(name: str) -> None:
    for value in wrong_values("string"):
        with pytest.raises(
            DamagedFileError, match=rf"^guideloom\.json: {name} is .*expected a list of strings"
        ):
            Header.decode(with_member(DATA, (name,), ["x", value]))


@pytest.mark.parametrize("name", sorted(TYPES))
@pytest.mark.parametrize("value", raw_values(), ids=lambda value: repr(value[:20]))
def test_hostile_text_in_a_member_is_refused(name: str, value: bytes) -> None:
    with pytest.raises(DamagedFileError, match=r"^guideloom\.json"):
        Header.decode(with_raw_value(DATA, (name,), value))


@pytest.mark.parametrize(
    "name, value",
    [
        *(("format", value) for value in ("", "Guideloom", "guideloom ", "guideloom\n")),
        *(("type", value) for value in ("", "commit", "manifest", "Header")),
        *(("kind", value) for value in ("", "Stream", "stream ", "streams", "x" * 10**5)),
        *(
            ("dataset_id", value)
            for value in ("", ID[1:], ID + "0", ID.upper(), ID + "\n", "g" * 32, "\u0661" * 32)
        ),
        *(
            ("version", value)
            for value in ("", "1", "1.", ".0", "1.0.0", "v1.0", "1.0\n", " 1.0", "-1.0", "01.0",
                          "1.x", "1.00", "\u0661.0", "1.0000000", "1e0.0", "1" * 5000 + ".0")
        ),
        ("written_by", "x" * 1025),
    ],
)  # fmt: skip
def test_a_wrong_text_is_named(name: str, value: str) -> None:
    with pytest.raises(DamagedFileError, match=rf"^guideloom\.json: {name} is ") as caught:
        Header.decode(with_member(DATA, (name,), value))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("version", ["0.9", "2.0", "2.7", "10.0", "999999.0"])
def test_another_major_version_is_refused_before_anything_below_it(version: str) -> None:
    data = seal({"format": "guideloom", "type": "header", "version": version})
    major = version.split(".")[0]
    with pytest.raises(
        UnsupportedFormatError,
        match=rf"^guideloom\.json: the dataset has format version {version}; this release of "
        rf"guideloom-format reads version 1\.x\. Install a guideloom-format release that reads "
        rf"version {major}\.x$",
    ):
        Header.decode(data)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.7", "1.999999"])
def test_every_minor_version_is_accepted(version: str) -> None:
    assert Header.decode(with_member(DATA, ("version",), version)).version == version


def test_an_unknown_required_feature_is_named_with_the_way_out() -> None:
    data = with_member(DATA, ("required_features",), ["zebra", "holes"])
    with pytest.raises(
        UnsupportedFormatError,
        match=r"^guideloom\.json: the dataset requires 'holes', 'zebra', which this release of "
        r"guideloom-format does not know \(it knows: none\)\. It was written by 'a program 1\.2': "
        r"install a guideloom-format release at least as new$",
    ):
        Header.decode(data)


def test_an_unknown_optional_feature_is_accepted() -> None:
    data = with_member(DATA, ("optional_features",), ["zebra", "holes"])
    assert Header.decode(data).optional_features == ("zebra", "holes")


def test_unknown_members_are_ignored() -> None:
    data = with_member(DATA, ("new_member",), {"anything": [1]})
    assert Header.decode(data) == HEADER
    data = with_member(data, ("storage_format", "new_member"), 1)
    assert Header.decode(data).storage_format["new_member"] == 1


@pytest.mark.parametrize(
    "user",
    [
        {"a": {1, 2}},
        {"a": b"bytes"},
        {"a": object()},
        {"a": math.nan},
        {"a": [math.inf]},
        {"a": np.int64(1)},
        {("a",): 1},
        {"a": {1: "x", "1": "y"}},
        {"a": 10**5000},
    ],
    ids=["set", "bytes", "object", "NaN", "Infinity", "NumPy", "tuple", "twice", "5001 digits"],
)
def test_a_user_object_that_is_not_json_is_refused(user: dict[str, Any]) -> None:
    header = Header("stream", np.dtype("u1"), {}, user=user)
    with pytest.raises(DataError, match=r"^the header's user object cannot be written as JSON \("):
        header.encode()


def test_a_user_object_that_nests_without_end_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(10**5):
        deep = {"a": deep}
    circle: dict[str, Any] = {}
    circle["a"] = circle
    for user in (deep, circle):
        with pytest.raises(DataError, match="user object cannot be written as JSON"):
            Header("stream", np.dtype("u1"), {}, user=user).encode()
    while deep:  # give it back level by level
        deep = deep["a"]


def test_a_header_is_written_only_if_it_can_be_read() -> None:
    """Up to 1 MiB a header is written and read; one byte more is refused by the writer."""
    empty = len(Header("stream", np.dtype("u1"), {}, user={"a": ""}).encode())
    longest = MAX_HEADER_BYTES - empty
    header = Header("stream", np.dtype("u1"), {}, user={"a": "x" * longest})
    assert len(header.encode()) == MAX_HEADER_BYTES
    assert Header.decode(header.encode()) == header
    header = Header("stream", np.dtype("u1"), {}, user={"a": "x" * (longest + 1)})
    with pytest.raises(DataError, match=r"^the header would have 1048577 bytes, at most 1048576 "):
        header.encode()


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[", b'{"format":"guideloom"', b"null", b'"', b"{}", b"\x00" * 100]
)
def test_other_content_under_a_correct_seal_is_refused(body: bytes) -> None:
    with pytest.raises(DamagedFileError, match=r"^guideloom\.json"):
        Header.decode(sealed_text(body))


def test_a_dataset_opened_as_another_kind_shows_both() -> None:
    with pytest.raises(
        MismatchError,
        match=r"^/data holds a dataset of kind 'stream', it was opened as 'document'; "
        r"open it with the storage class for 'stream'$",
    ):
        HEADER.check_opened_as("document", HEADER.element_type, "/data")


def test_a_dataset_opened_with_another_dtype_shows_both() -> None:
    with pytest.raises(
        MismatchError,
        match=r"^/data holds elements of type \[\['tokens', '<u2'\], \['loss', '\|b1'\]\], it was "
        r"opened with a storage format of type <i4; open it with the format that it was written "
        r"with$",
    ):
        HEADER.check_opened_as("stream", np.dtype("<i4"), "/data")
    HEADER.check_opened_as("stream", HEADER.element_type, "/data")


@settings(max_examples=300, deadline=None)
@given(one=dtypes, other=dtypes)
def test_exactly_other_dtypes_are_a_mismatch(one: np.dtype[Any], other: np.dtype[Any]) -> None:
    one, other = storable_dtype(one), storable_dtype(other)
    header = Header("stream", one, {})
    if one == other:
        header.check_opened_as("stream", other, "/data")
    else:
        with pytest.raises(MismatchError, match="holds elements of type"):
            header.check_opened_as("stream", other, "/data")

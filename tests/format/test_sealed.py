"""Sealed JSON: every changed byte is found, and only strict JSON comes back."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from format.sealed_cases import assert_all_damage_is_found, members_of, raw_values, sealed_text
from guideloom_format import DamagedFileError, crc32c
from guideloom_format._sealed import seal, unseal

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


NAMES = st.text().filter(lambda name: name != "crc32c")


@settings(max_examples=300, deadline=None)
@given(members=st.dictionaries(NAMES, JSON, min_size=1, max_size=6), compact=st.booleans())
def test_a_sealed_object_comes_back(members: dict[str, Any], compact: bool) -> None:
    data = seal(members, compact=compact)
    assert unseal(data, "x.json") == members
    assert data.isascii()
    body, tail = data[:-25], data[-25:]
    assert tail == b',\n"crc32c": "%08x"\n}\n' % crc32c(body)
    # The whole file is JSON too, for tools that know nothing of seals.
    assert json.loads(data) == members | {"crc32c": f"{crc32c(body):08x}"}


def test_the_checksum_is_castagnoli() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283


@pytest.mark.parametrize("compact", [False, True])
def test_every_damaged_byte_is_found(compact: bool) -> None:
    data = seal({"format": "guideloom", "n": [1, 2, {"a": None}], "text": "é"}, compact=compact)
    assert assert_all_damage_is_found(data, lambda copy: unseal(copy, "x.json")) > 10 * len(data)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DamagedFileError, match="do not end with the checksum of a GuideLoom file"):
        unseal(data, "x.json")


@settings(max_examples=300, deadline=None)
@given(body=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_garbage_under_a_correct_seal_is_refused(body: bytes) -> None:
    assume(body != b"{")  # an object without members is no file of any kind
    try:
        wanted = json.loads((body + b"}").decode("ascii"))
    except ValueError:
        with pytest.raises(DamagedFileError, match="is not the JSON that GuideLoom writes"):
            unseal(sealed_text(body), "x.json")
    else:
        assert unseal(sealed_text(body), "x.json") == wanted


@pytest.mark.parametrize("value", raw_values(), ids=lambda value: repr(value[:20]))
def test_hostile_values_under_a_correct_seal_are_refused(value: bytes) -> None:
    with pytest.raises(DamagedFileError, match=r"^x\.json is not the JSON that GuideLoom writes: "):
        unseal(sealed_text(b'{"a": ' + value), "x.json")


@pytest.mark.parametrize(
    "body, message",
    [
        (b'{"a":0,"a":0', r"the member 'a' stands twice"),
        (b'{"b":{"a":0,"a":1}', r"the member 'a' stands twice"),
        (b'{"a":NaN', r"NaN is not JSON"),
        (b'{"a":-Infinity', r"-Infinity is not JSON"),
        (b'{"a":1e400', r"the number 1e400 is beyond those of 64 bits"),
        (b'{"a":[-2.5E999]', r"the number -2.5E999 is beyond those of 64 bits"),
        (b'{"a":0}{"b":0', r"Extra data"),
        (b'{"a":0} x {"b":0', r"Extra data"),
        (b"", r"Expecting value"),
        (b"[", r"Expecting value"),
        (b"\xef\xbb\xbf{", r"codec can't decode"),
    ],
)
def test_the_message_says_what_is_wrong(body: bytes, message: str) -> None:
    with pytest.raises(DamagedFileError, match=message):
        unseal(sealed_text(body), "x.json")


def test_messages_of_the_seal() -> None:
    data = seal({"a": 1})
    with pytest.raises(
        DamagedFileError,
        match=r"^commits/x: 33 bytes do not end with the checksum of a GuideLoom file; the file is "
        r"truncated, damaged, or something else\. Restore it from a copy$",
    ):
        unseal(data[:-1], "commits/x")
    with pytest.raises(
        DamagedFileError,
        match=r"^commits/x: the checksum over bytes 0 to 9 is [0-9a-f]{8}, the file states "
        r"[0-9a-f]{8}; the file is damaged\. Restore it from a copy$",
    ):
        unseal(data.replace(b"1", b"2", 1), "commits/x")


@pytest.mark.parametrize("opening, closing", [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_around_the_recursion_limit_gives_the_object_or_a_named_error(
    opening: bytes, closing: bytes
) -> None:
    outcomes = set()
    limit = sys.getrecursionlimit()
    for depth in (10, *range(limit - 250, limit + 50), 10**5):
        body = b'{"a":' + opening * depth + b"0" + closing * depth
        try:
            unseal(sealed_text(body), "x.json")
            outcomes.add("read")
        except DamagedFileError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_finding_a_duplicate_takes_no_quadratic_time() -> None:
    """A header of 1 MiB has room for 100,000 names; a hostile one must not stall its reader."""
    count = 30_000
    body = b"{" + b",".join(b'"%d":0' % k for k in range(count)) + b',"%d":1' % (count - 1)
    before = time.process_time()
    with pytest.raises(DamagedFileError, match="the member '29999' stands twice"):
        unseal(sealed_text(body), "x.json")
    assert time.process_time() - before < 1.5, "30,000 members took more than 1.5 s"


def test_a_seal_inside_the_object_is_only_a_member() -> None:
    inner = seal({"a": 1}).decode()
    assert unseal(seal({"text": inner}), "x.json") == {"text": inner}
    assert members_of(seal({"text": inner})) == {"text": inner}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_json_is_not_sealed(value: float) -> None:
    with pytest.raises(ValueError, match="Out of range float values"):
        seal({"a": [value]})


def test_a_second_checksum_is_refused() -> None:
    """The file as a whole would have a member twice."""
    with pytest.raises(
        DamagedFileError, match=r"^x\.json is not the JSON .*: the member 'crc32c' stands twice$"
    ):
        unseal(seal({"crc32c": "00000000", "a": 1}), "x.json")
    assert unseal(seal({"a": {"crc32c": 1}}), "x.json") == {"a": {"crc32c": 1}}

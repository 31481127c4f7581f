"""Sealed files that are hostile, yet sealed correctly; and what a reader must refuse in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from guideloom_format import DamagedFileError, crc32c
from guideloom_format._sealed import seal

TAIL_BYTES = 25

# Values of every JSON type. A member of one type must refuse all others.
JSON_VALUES: dict[str, list[Any]] = {
    "null": [None],
    "boolean": [True, False],
    "integer": [0, 1, -1, 2**31, 2**63, 2**64, 10**4000, -(10**4000)],
    "float": [0.0, 1.0, -1.5, 1e300],
    "string": ["", "0", "true", "x" * 5000, "\ud800", "\x00"],
    "array": [[], [None], [[]]],
    "object": [{}, {"a": 1}],
}

HOSTILE_PATHS = [
    "",
    "/",
    "/etc/passwd",
    "//host/share",
    ".",
    "..",
    "../x",
    "a/..",
    "a/../b",
    "a/../../b",
    "a/./b",
    "./a",
    "a//b",
    "a/",
    "/a",
    "a/.hidden",
    ".hidden",
    "~/a",
    "a\\b",
    "..\\a",
    "\\\\host\\share",
    "C:",
    "C:a",
    "C:\\a",
    "c:/a",
    "a\x00b",
    "a\x00",
    "a\nb",
    "a\n",
    "\ta",
    "a b",
    "a\x7f",
    "file:///etc/passwd",
    "file://a",
    "local://a",
    "zip://a",
    "s3://bucket/a",
    "a://b",
    "://",
    "%2e%2e/a",
    "a%2fb",
    "%2e",
    "a?b",
    "a*b",
    "a$b",
    "$(a)",
    "a|b",
    "a;b",
    "a'b",
    'a"b',
    "\uff0e\uff0e/a",  # full-width full stops
    "a\u2215b",  # division slash
    "a\uff0fb",  # full-width solidus
    "\u2024\u2024/a",  # one dot leaders
    "\u202ea",  # right-to-left override
    "e\u0301",  # e with a combining accent
    "\u0661",  # an Arabic digit
    "\ud800",
    "a" * 256,
    "a" * 100_000,
    "/".join("a" * 5),
    "a/" * 5000 + "a",
]


def sealed_text(body: bytes) -> bytes:
    """A correct seal around any bytes; `body` lacks the closing brace."""
    return body + b',\n"crc32c": "%08x"\n}\n' % crc32c(body)


def members_of(sealed: bytes) -> dict[str, Any]:
    members: dict[str, Any] = json.loads(sealed[:-TAIL_BYTES] + b"}")
    return members


def with_member(sealed: bytes, path: tuple[str, ...], value: Any) -> bytes:
    """The file with one member, however deep, replaced or added; sealed again."""
    members = members_of(sealed)
    inner = members
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return seal(members)


def without_member(sealed: bytes, path: tuple[str, ...]) -> bytes:
    members = members_of(sealed)
    inner = members
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return seal(members)


def with_raw_value(sealed: bytes, path: tuple[str, ...], value: bytes) -> bytes:
    """The same with a value that Python's encoder would not write."""
    mark = "THE-RAW-VALUE"
    text = with_member(sealed, path, mark)[:-TAIL_BYTES]
    assert text.count(mark.encode()) == 1
    return sealed_text(text.replace(b'"%s"' % mark.encode(), value))


def wrong_values(*right_types: str) -> list[Any]:
    """Values of all JSON types but these."""
    return [
        value for name, values in JSON_VALUES.items() if name not in right_types for value in values
    ]


def raw_values() -> list[bytes]:
    """Values that are hostile as text: constants, giant integers, nesting, duplicates."""
    return [
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e400",
        b"-1E999",
        b"9" * 5000,
        b"-" + b"9" * 5000,
        b"[" * 10**5 + b"]" * 10**5,
        b'{"a":' * 10**5 + b"0" + b"}" * 10**5,
        b'{"a":0,"a":0}',
        b'{"a":0,"\\u0061":0}',
        b"",
        b"nul",
        b"'x'",
        b"01",
        b"1.",
        b"0x10",
        b"+1",
        b'"\n"',
        b'"\xff"',
        b'"\xc3\xa9"',
        b'"\\x"',
        b"1 2",
        b"/**/1",
        b'1,"b"',
        b'"',
    ]


def damaged_copies(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Every bit flipped, every truncation, every byte left out or doubled, and additions."""
    for k in range(len(data)):
        for bit in range(8):
            yield f"bit {bit} of byte {k}", data[:k] + bytes([data[k] ^ 1 << bit]) + data[k + 1 :]
        yield f"truncated to {k} bytes", data[:k]
        yield f"begins at byte {k + 1}", data[k + 1 :]
        if k + 1 < len(data) and data[k] != data[k + 1]:
            yield f"without byte {k}", data[:k] + data[k + 1 :]
        yield f"zero at byte {k}", data[:k] + b"\0" + data[k + 1 :]
        yield f"byte inserted at {k}", data[:k] + b"x" + data[k:]
    for tail in (b"\0", b"\n", b" ", b"}", data, bytes(4096)):
        yield f"followed by {tail[:10]!r}", data + tail
        yield f"preceded by {tail[:10]!r}", tail + data


def assert_all_damage_is_found(data: bytes, decode: Callable[[bytes], object]) -> int:
    """Every damaged copy of `data` raises `DamagedFileError`; how many there were."""
    decode(data)
    count = 0
    for what, copy in damaged_copies(data):
        try:
            decode(copy)
        except DamagedFileError:
            count += 1
        else:
            pytest.fail(f"{what}: not noticed")
    return count

"""Sealed JSON: the one shape of header, commit records and manifests.

A JSON object in ASCII whose last member is the CRC32C of everything before it::

    {
     "format": "guideloom",
     ...,
    "crc32c": "9ae0daaf"
    }

The last 25 bytes are fixed but for the eight digits, so a reader finds the checksum without
parsing, and parses only what it covers. Every changed, lost or added byte is an error.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from typing import Any, NoReturn

import numpy as np

from guideloom_format._checksum import crc32c
from guideloom_format._errors import DamagedFileError

_TAIL = re.compile(rb',\n"crc32c": "([0-9a-f]{8})"\n\}\n')
_TAIL_BYTES = 25
_BRACKETS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)  # strings are taken whole
_LARGE_BYTES = 1 << 20
MOST_NESTED = 256
_SAFE_RECURSION = 5000  # levels that the stack of any thread has room for
FORMAT = "guideloom"


def seal(members: dict[str, Any], *, compact: bool = False) -> bytes:
    """The file for a JSON object of one member or more; `compact` leaves out the indentation."""
    indent, separators = (None, (",", ":")) if compact else (1, (",", ": "))
    body = json.dumps(
        members, ensure_ascii=True, allow_nan=False, indent=indent, separators=separators
    )
    encoded = body[:-1].rstrip("\n").encode("ascii")
    return encoded + b',\n"crc32c": "%08x"\n}\n' % crc32c(encoded)


def unseal(data: bytes, where: str) -> dict[str, Any]:
    """The members of a sealed file, without the checksum.

    Args:
        data: the whole file.
        where: how error messages call the file.

    Raises:
        DamagedFileError: the seal is absent or wrong, or the content is not a strict JSON object.
    """
    tail = _TAIL.fullmatch(data[-_TAIL_BYTES:])
    if tail is None:
        raise _unsealed(where, len(data))
    body = np.frombuffer(data, dtype=np.uint8)[:-_TAIL_BYTES]
    found, stated = crc32c(body), int(tail[1], 16)
    if found != stated:
        raise DamagedFileError(
            f"{where}: the checksum over bytes 0 to {body.size} is {found:08x}, the file states "
            f"{stated:08x}; the file is damaged. Restore it from a copy"
        )
    members = _strict_json(data, where)
    if not isinstance(members, dict):
        raise DamagedFileError(f"{where} holds a JSON {type(members).__name__}; expected an object")
    del members["crc32c"]  # the last member of what ends like this
    return members


def read_whole(descriptor: int, size: int) -> bytes:
    """The content of a file of this size, from its beginning; less if it has become shorter."""
    data = os.read(descriptor, size)
    while data and len(data) < size:
        more = os.read(descriptor, size - len(data))
        if not more:
            break
        data += more
    return data


def check_end(descriptor: int, size: int, where: str) -> None:
    """Whether a large file ends as a sealed one does, before all of it is read.

    Raises:
        DamagedFileError: it does not.
    """
    if size > _LARGE_BYTES:
        end = os.pread(descriptor, _TAIL_BYTES, size - _TAIL_BYTES)
        if _TAIL.fullmatch(end) is None:
            raise _unsealed(where, size)


def _unsealed(where: str, size: int) -> DamagedFileError:
    return DamagedFileError(
        f"{where}: {size} bytes do not end with the checksum of a GuideLoom file; the file is "
        "truncated, damaged, or something else. Restore it from a copy"
    )


def _check_depth(data: bytes, where: str) -> None:
    """The parser recurses on the stack of the process, and its limit may have been raised.

    Raises:
        DamagedFileError: lists and objects are nested deeper than any that GuideLoom writes.
    """
    if data.count(b"[") + data.count(b"{") <= MOST_NESTED:
        return
    depth = 0
    for match in _BRACKETS.finditer(data):
        bracket = match[0][-1:]
        if bracket in b"[{":
            depth += 1
            if depth > MOST_NESTED:
                raise DamagedFileError(
                    f"{where} is not the JSON that GuideLoom writes: it is nested deeper than "
                    f"{MOST_NESTED} levels"
                )
        elif bracket in b"]}":
            depth -= 1


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the member {name[:80]!r} stands twice")
            seen.add(name)
    return members


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:80]} is beyond those of 64 bits")
    return number


_DECODER = json.JSONDecoder(
    parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_no_duplicates
)


def _strict_json(data: bytes, where: str) -> Any:
    if len(data) <= _LARGE_BYTES or sys.getrecursionlimit() > _SAFE_RECURSION:
        _check_depth(data, where)
    try:
        return _DECODER.decode(data.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(
            f"{where} is not the JSON that GuideLoom writes: {str(error)[:200]}"
        ) from error

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
import re
from typing import Any, NoReturn

from guideloom_format._checksum import crc32c
from guideloom_format._errors import DamagedFileError

_TAIL = re.compile(rb',\n"crc32c": "([0-9a-f]{8})"\n\}\n')
_TAIL_BYTES = 25
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
        raise DamagedFileError(
            f"{where}: {len(data)} bytes do not end with the checksum of a GuideLoom file; the "
            "file is truncated, damaged, or something else. Restore it from a copy"
        )
    body = data[:-_TAIL_BYTES]
    found, stated = crc32c(body), int(tail[1], 16)
    if found != stated:
        raise DamagedFileError(
            f"{where}: the checksum over bytes 0 to {len(body)} is {found:08x}, the file states "
            f"{stated:08x}; the file is damaged. Restore it from a copy"
        )
    members = _strict_json(body + b"}", where)
    if not isinstance(members, dict):
        raise DamagedFileError(f"{where} holds a JSON {type(members).__name__}; expected an object")
    if "crc32c" in members:
        raise DamagedFileError(f"{where} has a member 'crc32c' besides its seal")
    return members


def _strict_json(data: bytes, where: str) -> Any:
    def no_constant(text: str) -> NoReturn:
        raise ValueError(f"{text} is not JSON")

    def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            seen: set[str] = set()
            for name, _ in pairs:
                if name in seen:
                    raise ValueError(f"the member {name[:80]!r} stands twice")
                seen.add(name)
        return members

    try:
        return json.loads(
            data.decode("ascii"), parse_constant=no_constant, object_pairs_hook=no_duplicates
        )
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(
            f"{where} is not the JSON that GuideLoom writes: {str(error)[:200]}"
        ) from error

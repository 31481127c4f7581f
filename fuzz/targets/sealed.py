"""Sealed JSON: seal, strict parser, and what is behind the parser."""

from __future__ import annotations

import json
from typing import Any

from guideloom_format import DamagedFileError
from guideloom_format._sealed import seal, unseal
from targets.base import Target, attempt
from targets.mutation import TAIL_BYTES, mutate_sealed

WHERE = "folder/some-file.json"


def feed(data: bytes) -> None:
    members = attempt(lambda: unseal(data, WHERE), DamagedFileError, names=WHERE)
    if members is None:
        return
    assert type(members) is dict
    assert members == json.loads(data[:-TAIL_BYTES] + b"}")
    assert "crc32c" not in members
    for compact in (False, True) if members else ():
        again = sealed_again(members, compact=compact)
        assert again is None or unseal(again, WHERE) == members


def sealed_again(members: dict[str, Any], *, compact: bool) -> bytes | None:
    try:
        return seal(members, compact=compact)
    except ValueError as error:
        if "not JSON compliant" in str(error):  # 1e400 is JSON, but infinity for Python
            return None
        raise


def seeds() -> list[bytes]:
    return [
        seal({"format": "guideloom", "type": "commit", "n": 3, "list": [1, 2.5, None, True]}),
        seal({"a": {"b": {"c": ["x", {"d": "ü\ud800\n"}]}}, "": -1}, compact=True),
        seal({"e": 1e300, "i": 2**70, "s": "\\u0000", "o": {}, "l": [[], [[]]]}),
    ]


TARGET = Target("sealed", feed, mutate_sealed, seeds)

"""Changes of inputs: of bytes, of JSON values, and of sealed files whose seal is put right after.

Without the last, nearly every change of a sealed file would end at its checksum, and what is
behind it would never be tried.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from guideloom_format import crc32c
from targets.base import Bytes2Bytes

TAIL_BYTES = 25
LONGEST = 1 << 16
_MOST_NODES = 400

Path = tuple[str | int, ...]

INTEGERS = [
    n + around
    for n in (0, 1 << 7, 1 << 16, 1 << 31, 1 << 32, 1 << 59, 1 << 62, 1 << 63, 1 << 64)
    for around in (-1, 0, 1)
]
HOSTILE: list[Any] = [
    *INTEGERS,
    -(1 << 63),
    10**4000,
    10**9,
    10**9 + 1,
    10**6 + 1,
    None,
    True,
    False,
    0.0,
    1.0,
    -1.5,
    1e300,
    "",
    "0",
    "x" * 1025,
    "\ud800",
    "\x00",
    "../x",
    "a/../../b",
    "/etc/passwd",
    "|V0",
    "<u8",
    "|u1",
    "<U16777216",
    "1.0",
    "1.999999",
    "2.0",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    [["x", "<u2"]],
    [["x", "<u2", [2, 3]], ["", "|V3"]],
    {"name": "document-json", "parameters": {}},
    {"name": "document-pickle"},
]
RAW = [
    "NaN",
    "Infinity",
    "-Infinity",
    "-0",
    "1e400",
    "9" * 5000,
    "[" * 5000 + "]" * 5000,
    '{"a":' * 3000 + "0" + "}" * 3000,
    '{"a":0,"a":0}',
    '{"a":0,"\\u0061":0}',
    "",
    "nul",
    "01",
    '"\\ud800"',
    '"\x7f"',
    "1 2",
    '1,"crc32c":"00000000"',
]
_MARK = "here comes a value as text"


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """A few changes of bytes; for where no fuzzer does it better."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:
            out[at:at] = rng.randbytes(rng.choice((1, 2, 8)))
        elif kind == 3:
            del out[at : at + rng.choice((1, 2, 8, 64))]
        elif kind == 4:
            start = rng.randrange(len(out) + 1)
            out[at:at] = out[start : start + rng.choice((1, 8, 32))]
        else:
            wide = rng.choice(INTEGERS) % (1 << 64)
            out[at : at + 8] = wide.to_bytes(8, "little")
    return bytes(out[:LONGEST])


def sealed(body: bytes) -> bytes:
    """A right seal around any bytes; `body` lacks the closing brace."""
    return body + b',\n"crc32c": "%08x"\n}\n' % crc32c(body)


def without_seal(data: bytes) -> bytes:
    """What the seal covers, if there is one."""
    return data[:-TAIL_BYTES] if data[-TAIL_BYTES:].startswith(b',\n"crc32c"') else data


def mutate_sealed(
    data: bytes,
    rng: random.Random,
    raw: Bytes2Bytes,
    mend: Callable[[dict[str, Any]], None] = lambda _: None,
) -> bytes:
    """A change of a sealed file: of its members most often, and nearly always sealed again.

    Args:
        data: the file.
        rng: random numbers.
        raw: changes bytes.
        mend: puts right what else is computed from the members.
    """
    body = without_seal(data)
    kind = rng.random()
    if kind < 0.05:
        return raw(data)[:LONGEST]
    members = _members(body) if kind > 0.3 else None
    text = None if members is None else mutate_members(members, rng, mend)
    if text is None:
        return sealed(raw(body)[: LONGEST - TAIL_BYTES])
    return sealed(text.rstrip()[:-1].encode("ascii", "replace")[: LONGEST - TAIL_BYTES])


def mutate_members(
    members: dict[str, Any], rng: random.Random, mend: Callable[[dict[str, Any]], None]
) -> str | None:
    """JSON of the object after one to three changes; None if it is nested too deep for that."""
    raw = None
    try:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            raw = change_value(members, rng) or raw
        mend(members)
        text = json.dumps(members, indent=rng.choice((None, 1)))
    except RecursionError:
        return None
    return text if raw is None else text.replace(f'"{_MARK}"', raw, 1)


def mutate_json(data: bytes, rng: random.Random, raw: Bytes2Bytes) -> bytes:
    """A change of a JSON text, of any value."""
    if rng.random() < 0.3:
        return raw(data)[:LONGEST]
    try:
        value = {"value": json.loads(data)}
        text = change_value(value, rng)
        changed = json.dumps(value.get("value"))
    except (ValueError, RecursionError):
        return raw(data)[:LONGEST]
    if text is not None:
        changed = changed.replace(f'"{_MARK}"', text, 1)
    return changed.encode("utf-8", "replace")[:LONGEST]


def change_value(root: dict[str, Any], rng: random.Random) -> str | None:
    """Change one value, name or list somewhere in `root`; a text to put where the mark is."""
    places = _places(root)
    if not places:
        root["a"] = deepcopy(rng.choice(HOSTILE))
        return None
    holder, key = rng.choice(places)
    value = holder[key]
    kind = rng.randrange(10)
    if kind <= 2:
        holder[key] = deepcopy(rng.choice(HOSTILE))
    elif kind == 3:
        holder[key] = _MARK
        return rng.choice(RAW)
    elif kind == 4:
        del holder[key]
    elif kind == 5 and isinstance(holder, dict):
        holder[key] = _MARK
        name = json.dumps(key)
        return f"{json.dumps(value)},{name}:{json.dumps(rng.choice((value, None)))}"
    elif kind == 5:
        holder.insert(key, deepcopy(value))
    elif kind == 6:
        other, name = rng.choice(places)
        holder[key], other[name] = deepcopy(other[name]), deepcopy(value)
    else:
        holder[key] = _near(value, rng)
    return None


def _near(value: Any, rng: random.Random) -> Any:
    """A value of the same type, most often."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        if abs(value) > 1 << 80:
            return 0
        return value + rng.choice((-1, 1, 1 << 32, -value, value))
    if isinstance(value, float):
        return rng.choice((-value, value * 1e10, int(value) if abs(value) < 1e18 else 0))
    if isinstance(value, str):
        at = rng.randrange(len(value) + 1)
        piece = rng.choice(("", "0", "f", "/", ".", "-", "é", "\n", value, "A", "|", "<"))
        return value[:at] + piece + value[at + rng.randrange(2) :]
    if isinstance(value, list):
        again = deepcopy(value)
        return rng.choice((value[:-1], value + again, [*value, 0], value[::-1], value[1:]))
    return {**value, "more": 0}


def _members(body: bytes) -> dict[str, Any] | None:
    try:
        members = json.loads(body + b"}")
    except (ValueError, RecursionError):
        return None
    return members if isinstance(members, dict) else None


def _places(root: Any) -> list[tuple[Any, Any]]:
    """Every (holder, name or number) in a JSON value, as far as there are not too many."""
    places: list[tuple[Any, Any]] = []
    waiting = [root]
    while waiting and len(places) < _MOST_NODES:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            places.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return places

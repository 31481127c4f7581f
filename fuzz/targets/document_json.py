"""`DocumentJSONFormat`: documents that are said to be JSON."""

from __future__ import annotations

import json
import random

from guideloom_format import DamagedFileError, DataError, DocumentJSONFormat
from targets.base import Bytes2Bytes, Target, attempt
from targets.mutation import mutate_json

FORMAT = DocumentJSONFormat()
SHARD = 3


def unpack(data: bytes) -> object:
    return FORMAT.unpack(memoryview(bytearray(data)), SHARD)


def feed(data: bytes) -> None:
    found = attempt(lambda: [unpack(data)], DamagedFileError, names=f"shard {SHARD}")
    if found is None:
        return
    assert isinstance(found[0], dict | list | str | int | float | bool | None)
    packed = attempt(lambda: FORMAT.pack(found[0]), DataError)
    if packed is not None:
        assert unpack(packed) == found[0]
        assert FORMAT.pack(unpack(packed)) == packed


def mutate(data: bytes, rng: random.Random, raw: Bytes2Bytes) -> bytes:
    changed = mutate_json(data, rng, raw)
    if rng.random() < 0.1:
        depth = rng.choice((10, 256, 257, 5000, 30000))
        changed = b"[" * depth + changed[:1000] + b"]" * depth
    return changed


def seeds() -> list[bytes]:
    values: list[object] = [
        {"role": "user", "turns": ["ü", "\U0001f600"], "score": 0.5, "n": None, "b": [True, -1]},
        [],
        "text",
        12345678901234567890,
        {"": {"a": {"a": []}}},
    ]
    texts = [json.dumps(value, ensure_ascii=False).encode() for value in values]
    return [
        *texts,
        b'"\\ud800"',
        b'"\\ud83d\\ude00"',
        b'\xef\xbb\xbf"bom"',
        b"-0.0",
        b'{"a":1,"a":2}',
    ]


TARGET = Target("document_json", feed, mutate, seeds)

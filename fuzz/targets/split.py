"""`split`: bytes objects cut from a buffer by offsets that may be anything."""

from __future__ import annotations

import itertools

import numpy as np

from guideloom_format._documents import split
from targets.base import Target, attempt
from targets.taking import Taking, mutate_plain


def feed(data: bytes) -> None:
    taking = Taking(data)
    offsets = taking.numbers(taking.below(16), 64)
    if taking.below(2):
        offsets.sort()
    values = np.frombuffer(taking.rest(), np.uint8)
    bounds = offsets.tolist()
    pairs = list(itertools.pairwise(bounds))
    found = attempt(lambda: split(values, offsets), IndexError)
    assert (found is not None) == all(0 <= a <= b <= values.size for a, b in pairs)
    if found is not None:
        assert found == [values[a:b].tobytes() for a, b in pairs]


def seeds() -> list[bytes]:
    return [
        bytes([4, 0, 2, 2, 10, 0]) + b"some bytes",
        bytes([3, 5, 1, 9, 1]) + b"some more",
        bytes([2, 0, 206, 0]) + b"x",
        bytes([2, 250]) + b"\xff" * 8 + b"\0" * 20,
        b"",
    ]


TARGET = Target("split", feed, mutate_plain, seeds)

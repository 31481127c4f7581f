"""DocumentPickleFormat: any object comes back; what is damaged or cannot be pickled is named."""

from __future__ import annotations

import itertools
import math
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from format.document_cases import Level, circular, nested, round_trip, writer_at
from format.failing import fail
from guideloom_format import DamagedFileError, DataError, DocumentPickleFormat

PICKLE = DocumentPickleFormat()


def test_pickles_come_back(tmp_path: Path) -> None:
    shared = [1, 2]
    documents = [
        {"a": (1, 2.5, None), "b": b"bytes", "c": {1, 2}, 4: 1j},
        [shared, shared],
        circular(),
        Level.HIGH,
        fail,
        DataError("text"),
        "\ud800",
        math.inf,
        None,
    ]
    found = round_trip(tmp_path / "objects", PICKLE, documents)
    assert found[0] == documents[0]
    assert found[1][0] is found[1][1]
    assert found[2]["self"][0] is found[2]
    assert found[3] is Level.HIGH
    assert found[4] is fail
    assert type(found[5]) is DataError
    assert found[5].args == ("text",)
    assert found[6:] == documents[6:]
    values = round_trip(tmp_path / "arrays", PICKLE, [np.arange(5, dtype=">i4")])[0]
    assert values.tolist() == [0, 1, 2, 3, 4]
    values[:] = 7


def test_pickles_are_of_one_protocol_whatever_the_default() -> None:
    """So that the same data give the same bytes with every Python."""
    assert PICKLE.pack({"a": [1]}) == pickle.dumps({"a": [1]}, protocol=5)
    assert PICKLE.pack(None) == b"\x80\x05N."


def test_its_docstring_says_what_reading_a_pickle_can_do() -> None:
    text = " ".join((DocumentPickleFormat.__doc__ or "").split())
    for promise in (
        "Only for data that you trust",
        "Reading a pickle runs code that the file chooses",
        "Checksums do not protect from that",
        "`guideloom.open` never chooses this format by itself",
    ):
        assert promise in text


@pytest.mark.parametrize(
    "value, name",
    [(lambda: 1, "function"), (threading.Lock(), "lock"), ((n for n in "ab"), "generator"),
     (sys.stderr, "TextIOWrapper|EncodedFile"), (nested(100_000), "list"),
     (type("Local", (), {})(), "Local")],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_cannot_be_pickled_is_refused(value: Any, name: str, tmp_path: Path) -> None:
    with writer_at(tmp_path / "x", PICKLE) as writer:
        with pytest.raises(DataError, match=f"^DocumentPickleFormat cannot pickle ({name}): "):
            writer.append(0, value)
        assert writer.length(0) == 0


def test_a_damaged_pickle_is_named() -> None:
    """Every bit and every length of one that holds no class, so that nothing else is run."""
    good = PICKLE.pack({"key": [1, 2.5, "text", b"bytes", (True, None), 2**70]})
    damaged = [good[:length] for length in range(len(good))]
    for k, bit in itertools.product(range(len(good)), range(8)):
        damaged.append(good[:k] + bytes([good[k] ^ 1 << bit]) + good[k + 1 :])
    named = 0
    for content in damaged:
        try:
            PICKLE.unpack(memoryview(bytearray(content)), 3)
        except DamagedFileError as error:
            assert "a document of shard 3 cannot be unpickled: " in str(error)  # noqa: PT017
            named += 1
    assert named > len(damaged) // 3


@pytest.mark.parametrize(
    "content", [b"cformat.failing\nnothing\n.", b"cno_such_module\nclass\n.", b"text", b"."]
)
def test_a_pickle_of_a_class_that_is_not_there(content: bytes) -> None:
    with pytest.raises(
        DamagedFileError,
        match=r"^a document of shard 8 cannot be unpickled: .*its class has moved, or it is damag",
    ):
        PICKLE.unpack(memoryview(content), 8)

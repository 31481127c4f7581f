"""Whether a reader shows what it must, in every way that it can be asked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from stateful.known_kinds import KnownKind
from stateful.model import Snapshot


def check_reader(kind: KnownKind, reader: Any, seen: Snapshot, data: st.DataObject) -> None:
    """The whole content, runs from random places, many at once, and nothing behind the end."""
    items = list(seen.items)
    count = len(items)
    assert len(reader) == count
    assert kind.read(reader, 0, count) == items
    kind.check_spans(reader, seen.spans)
    starts = data.draw(st.lists(st.integers(0, max(count - 1, 0)), max_size=4), label="starts")
    length = data.draw(st.integers(0, count - max(starts, default=0)), label="length")
    if count:
        for start in starts[:2]:
            assert kind.read(reader, start, start + length) == items[start : start + length]
        found = kind.read_many(reader, starts, length)
        assert found == [items[start : start + length] for start in starts]
    with pytest.raises(IndexError, match="is outside"):
        reader.read(count) if kind.name == "document" else reader.read(count, 1)

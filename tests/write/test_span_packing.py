"""What a storage format of spans may give the writer, in both forms."""

from __future__ import annotations

import array
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guideloom_read import verify
from write.span_formats import (
    GOOD,
    THREE,
    Pairs,
    Runs,
    Span,
    as_pairs,
    as_runs,
    committed_facts,
    data_files,
    is_spans_format,
    read_back,
    storage,
    writer_of,
)

numbers = itertools.count()
keys = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.tuples(st.integers())
)
spans = st.lists(st.tuples(st.integers(1, 5), st.binary(max_size=6)), max_size=6)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    appends=st.lists(st.tuples(st.integers(0, 2), spans, st.booleans()), max_size=8),
    data=st.data(),
)
def test_both_forms_write_the_same_bytes(
    appends: list[tuple[int, list[Span], bool]], data: st.DataObject, tmp_path: Path
) -> None:
    """Whatever the keys are; equal keys of different appends are different spans."""
    folders = [tmp_path / f"{next(numbers)}" for _ in range(2)]
    at = 0
    forms = [is_spans_format(Runs()), is_spans_format(Pairs())]
    with writer_of(folders[0], forms[0]) as runs, writer_of(folders[1], forms[1]) as pairs:
        for shard, content, commit in appends:
            count = sum(length for length, _ in content)
            elements = np.arange(at, at + count, dtype=np.uint16)
            at += count
            unique = st.lists(
                keys, min_size=len(content), max_size=len(content), unique_by=lambda key: (key,)
            )
            runs.append(shard, as_runs(elements, content))
            pairs.append(shard, as_pairs(elements, content, data.draw(unique, "keys")))
            assert runs.length(shard) == pairs.length(shard)
            if commit:
                runs.commit()
                pairs.commit()
    assert data_files(folders[0]) == data_files(folders[1])
    assert committed_facts(folders[0]) == committed_facts(folders[1])
    for folder in folders:
        assert verify(folder).clean
    expected = [
        [count, payload, shard]
        for shard in range(3)
        for number, content, _ in appends
        for count, payload in content
        if number == shard
    ]
    assert read_back(folders[0])[1] == expected


def array_of(kind: str) -> Callable[[list[int]], Any]:
    return lambda lengths: np.array(lengths, dtype=kind)


LENGTHS: dict[str, Callable[[list[int]], Any]] = {
    "a list": list,
    "a tuple": tuple,
    "an iterator": iter,
    "a generator": lambda lengths: (length for length in lengths),
    "NumPy integers": lambda lengths: [np.int32(length) for length in lengths],
    "every second": lambda lengths: np.repeat(np.array(lengths), 2)[::2],
    **{kind: array_of(kind) for kind in ("i1", "u1", "<i2", ">i4", "<u4", "i8", "u8")},
}
PAYLOADS: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "a bytearray": bytearray,
    "a view": memoryview,
    "an array": lambda payload: np.frombuffer(payload, np.uint8),
    "every second": lambda payload: np.repeat(np.frombuffer(payload, np.uint8), 2)[::2],
    "array.array": lambda payload: array.array("B", payload),
    "signed": lambda payload: memoryview(payload).cast("b"),
    "characters": lambda payload: memoryview(payload).cast("c"),
}


@pytest.mark.parametrize(("lengths", "payloads"), list(itertools.product(LENGTHS, PAYLOADS)))
def test_kinds_of_lengths_and_payloads(lengths: str, payloads: str, tmp_path: Path) -> None:
    content = [(2, b"ab"), (0, b"lost on readers"), (1, b""), (3, b"\0\xff")]
    counts = LENGTHS[lengths]([count for count, _ in content])
    with writer_of(tmp_path / "x", Runs()) as writer:
        given_payloads = [PAYLOADS[payloads](payload) for _, payload in content]
        writer.append(0, (np.arange(6, dtype=np.uint16), counts, iter(given_payloads)))
    assert read_back(tmp_path / "x") == (
        list(range(6)),
        [[2, b"ab", 0], [1, b"", 0], [3, b"\0\xff", 0]],
    )


def test_the_caller_may_reuse_its_buffers(tmp_path: Path) -> None:
    """Small appends stay in memory for a while; they are copies."""
    elements = np.arange(4, dtype=np.uint16)
    lengths = np.array([1, 3])
    text, letters = bytearray(b"ab"), np.full(3, 65, np.uint8)
    with writer_of(tmp_path / "x", Runs()) as writer:
        for _ in range(3):
            writer.append(0, (elements, lengths, [text, letters]))
            elements[:] += 4
            lengths[:] = lengths[::-1].copy()
            text[:] = b"cd"
            letters[:] += 1
        text.clear()
    assert read_back(tmp_path / "x") == (
        list(range(12)),
        [
            [1, b"ab", 0],
            [3, b"AAA", 0],
            [3, b"cd", 0],
            [1, b"BBB", 0],
            [1, b"cd", 0],
            [3, b"CCC", 0],
        ],
    )


def test_a_generator_may_reuse_its_buffer(tmp_path: Path) -> None:
    """Each payload is taken as it is when it is yielded."""

    def pairs() -> Iterator[Any]:
        buffer = bytearray(2)
        for k in range(6):
            buffer[:] = b"%02d" % k
            yield (k // 2, None if k % 2 else buffer)

    with writer_of(tmp_path / "x", Pairs()) as writer:
        writer.append(0, (6, pairs(), np.arange(6, dtype=np.uint16)))
    assert read_back(tmp_path / "x")[1] == [[2, b"00", 0], [2, b"02", 0], [2, b"04", 0]]


def test_elements_with_padding_are_written_with_zeros(tmp_path: Path) -> None:
    dtype = np.dtype([("a", "u1"), ("b", "<u4")], align=True)
    raw = np.full(3 * dtype.itemsize, 7, dtype=np.uint8)
    with writer_of(tmp_path / "x", Runs(dtype)) as writer:
        writer.append(0, (raw.view(dtype), [3], [b""]))
    written = data_files(tmp_path / "x")["0000000-0000.elements"]
    assert written == b"\7\0\0\0\7\7\7\7" * 3


def test_appends_that_say_nothing_leave_nothing(tmp_path: Path) -> None:
    """No elements and no spans are nothing; a span without elements is something."""
    nothing: Any = (THREE[:0], [], [])
    with writer_of(tmp_path / "x", Runs()) as writer:
        writer.append(0, nothing)
        writer.append(1, nothing)
        writer.append(1, (THREE[:0], [0, 0], [b"x", b""]))
        writer.append(2, GOOD)
    assert list(data_files(tmp_path / "x")) == [
        f"000000{shard}-0000.{role}"
        for shard in (1, 2)
        for role in ("elements", "payloads", "spans")
    ]
    with storage(tmp_path / "x", Runs()).sync_reader() as reader:
        assert (len(reader), reader.span_count) == (2, 3)
    assert read_back(tmp_path / "x") == ([7, 8], [[2, b"good", 2]])
    assert verify(tmp_path / "x").clean

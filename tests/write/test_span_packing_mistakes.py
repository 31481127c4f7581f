"""Every mistake of a storage format of spans, in both forms of `pack`, is named in its terms."""

from __future__ import annotations

import array
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom_format import DataError
from guideloom_read import verify
from write.span_formats import (
    GOOD,
    GOOD_PAIRS,
    THREE,
    Pairs,
    Runs,
    read_back,
    writer_of,
)


def check_refused(
    directory: Path, form: Any, good: Any, bad: Any, text: str, kind: type[Exception] = DataError
) -> None:
    """At the first append and at a later one: nothing was appended, and the writer goes on."""
    with writer_of(directory, form) as writer:
        for length in (0, 2, 4):
            with pytest.raises(kind, match=text):
                writer.append(1, bad() if callable(bad) else bad)
            assert writer.length(1) == length
            writer.append(1, good)
    assert read_back(directory) == ([7, 8] * 3, [[2, b"good", 1]] * 3)
    assert verify(directory).clean


WRONG_RUNS: dict[str, tuple[Any, str]] = {
    "nothing": (
        None,
        r"Runs\.pack returned NoneType; expected \(elements, run_lengths, payloads\)",
    ),
    "a list": ([THREE, [3], [b""]], r"Runs\.pack returned list; expected \(elements, run_lengths"),
    "an array": (THREE, r"Runs\.pack returned ndarray; expected \(elements, run_lengths"),
    "no members": ((), r"Runs\.pack returned tuple of 0 items; expected \(elements, run_lengths"),
    "two members": ((THREE, [3]), r"Runs\.pack returned tuple of 2 items; expected"),
    "four members": ((THREE, [3], [b""], 1), r"Runs\.pack returned tuple of 4 items; expected"),
    "an iterator": (lambda: iter([(1, b"")]), r"Runs\.pack returned list_iterator; expected"),
    "elements: a list": (([1, 2], [2], [b""]), "pack returned list; expected a 1-d numpy array of"),
    "elements: nothing": ((None, [2], [b""]), "pack returned NoneType; expected a 1-d numpy array"),
    "elements: another type": (
        (np.zeros(2, np.int16), [2], [b""]),
        r"pack returned an array of shape \(2,\) and dtype int16; expected a 1-d numpy array of",
    ),
    "elements: another byte order": (
        (np.zeros(2, ">u2"), [2], [b""]),
        r"shape \(2,\) and dtype >u2; expected a 1-d numpy array of uint16",
    ),
    "elements: two dimensions": (
        (np.zeros((1, 2), np.uint16), [2], [b""]),
        r"an array of shape \(1, 2\) and dtype uint16; expected a 1-d",
    ),
    "elements: no dimension": (
        (np.array(2, dtype=np.uint16), [1], [b""]),
        r"an array of shape \(\) and dtype uint16; expected a 1-d",
    ),
    "lengths: nothing": ((THREE, None, [b""]), r"Runs\.pack: run_lengths .*; expected"),
    "lengths: a number": ((THREE, 3, [b""]), r"Runs\.pack: run_lengths has 0 dim.*; expected 1"),
    "lengths: two dimensions": (
        (THREE, [[3]], [b""]),
        r"Runs\.pack: run_lengths has 2 dimensions; expected 1",
    ),
    "lengths: ragged": ((THREE, [[1], [1, 1]], [b""]), r"Runs\.pack: "),
    "lengths: floats": (
        (THREE, [1.0, 2.0], [b"", b""]),
        r"Runs\.pack: run_lengths has dtype float64; expected integers",
    ),
    "lengths: text": ((THREE, ["3"], [b""]), r"Runs\.pack: run_lengths has dtype <U1; expected"),
    "lengths: booleans": (
        (THREE, [True] * 3, [b""] * 3),
        r"Runs\.pack: run_lengths holds a bool; expected integers",
    ),
    "lengths: a boolean among them": (
        (THREE, [True, None, 2], [b""] * 3),
        r"Runs\.pack: run_lengths holds a bool; expected integers",
    ),
    "lengths: masked": (
        (THREE, np.ma.masked_array([3], [False]), [b""]),
        r"Runs\.pack: run_lengths is a masked array",
    ),
    "lengths: negative": (
        (THREE, [4, -1], [b"", b""]),
        r"Runs\.pack: run_lengths\[0\] is 4; expected 0 to 3, the number of elements",
    ),
    "lengths: negative first": (
        (THREE, [-1, 4], [b"", b""]),
        r"Runs\.pack: run_lengths\[0\] is -1; expected 0 to 3, the number of elements",
    ),
    "lengths: negative zeroes out": (
        (THREE, [3, 1, -1], [b""] * 3),
        r"Runs\.pack: run_lengths\[2\] is -1; expected 0 to 3, the number of elements",
    ),
    "lengths: too few": (
        (THREE, [1, 1], [b"", b""]),
        r"Runs\.pack: the run lengths add up to 2; expected 3, the number of elements: every",
    ),
    "lengths: too many": (
        (THREE, [2, 2], [b"", b""]),
        r"Runs\.pack: the run lengths add up to 4; expected 3, the number of elements",
    ),
    "lengths: none": (
        (THREE, [], []),
        r"Runs\.pack: the run lengths add up to 0; expected 3, the number of elements",
    ),
    "lengths: beyond 64 bits": ((THREE, [2**64, 3], [b""] * 2), r"Runs\.pack: run_lengths"),
    "lengths: beyond 63 bits": ((THREE, [2**63, 3], [b""] * 2), r"Runs\.pack: run_lengths"),
    "lengths: wrap around": (
        (THREE, np.array([2**62, 2**62, 2**62, 2**62, 3]), [b""] * 5),
        r"Runs\.pack: run_lengths\[0\] is 4611686018427387904; expected 0 to 3",
    ),
    "payloads: nothing": ((THREE, [3], None), "the payloads are NoneType; expected a list with"),
    "payloads: a number": ((THREE, [3], 3), "the payloads are int; expected a list with a payload"),
    "payloads: text": ((THREE, [3], "x"), "the payloads are str; expected a list with a payload"),
    "payloads: bytes": ((THREE, [3], b"x"), "the payloads are bytes; expected a list with a"),
    "payloads: a bytearray": ((THREE, [3], bytearray(1)), "the payloads are bytearray; expected"),
    "payloads: a view": ((THREE, [3], memoryview(b"x")), "the payloads are memoryview; expected"),
    "payloads: too few": ((THREE, [1, 2], [b""]), r"1 payloads for 2 runs; expected one for each"),
    "payloads: too many": ((THREE, [3], [b"", b""]), r"2 payloads for 1 runs; expected one for"),
    "payloads: for nothing": ((THREE[:0], [], [b""]), r"1 payloads for 0 runs; expected one for"),
    "payload: text": ((THREE, [3], ["x"]), r"a payload of type str; expected bytes: encode it"),
    "payload: nothing": ((THREE, [3], [None]), "gave a payload of type NoneType; expected bytes"),
    "payload: a number": ((THREE, [3], [5]), "gave a payload of type int; expected bytes"),
    "payload: floats": (
        (THREE, [3], [np.zeros(2)]),
        r"a payload of type an array of shape \(2,\) and dtype float64; expected bytes",
    ),
    "payload: two dimensions": (
        (THREE, [3], [np.zeros((2, 2), np.uint8)]),
        r"an array of shape \(2, 2\) and dtype uint8; expected bytes, or a 1-d array of uint8",
    ),
    "payload: wide items": (
        (THREE, [3], [array.array("I", [1])]),
        r"a buffer of 1 dimensions and items of 4 bytes, contiguous; expected bytes in a row",
    ),
    "payload: gaps": (
        (THREE, [3], [memoryview(b"abcd")[::2]]),
        r"a buffer of 1 dimensions and items of 1 bytes, not contiguous; expected bytes in a row",
    ),
    "payload: the second of them": (
        (THREE, [1, 2], [b"", "x"]),
        r"a payload of type str; expected bytes: encode it",
    ),
}


@pytest.mark.parametrize("mistake", WRONG_RUNS)
def test_a_wrong_array_form_is_named(mistake: str, tmp_path: Path) -> None:
    bad, text = WRONG_RUNS[mistake]
    check_refused(tmp_path / "x", Runs(), GOOD, bad, text)


WRONG_PAIRS: dict[str, tuple[Any, str]] = {
    "no pairs": (
        (3, [], THREE),
        r"Pairs\.pack yielded 0 pairs; expected 3, which size\(\) said: element 0 has none",
    ),
    "a pair too few": (
        (3, [(1, b""), (1, None)], THREE),
        r"Pairs\.pack yielded 2 pairs; expected 3, which size\(\) said: element 2 has none",
    ),
    "a pair too many": (
        (2, [(1, b""), (1, None), (1, None)], THREE[:2]),
        r"Pairs\.pack yielded a pair for element 2; expected 2 pairs, which size\(\) said",
    ),
    "a pair for nothing": (
        (0, [(1, b"")], THREE[:0]),
        r"Pairs\.pack yielded a pair for element 0; expected 0 pairs, which size\(\) said",
    ),
    "pairs without end": (
        lambda: (3, ((1, None if k else b"") for k in itertools.count()), THREE),
        r"Pairs\.pack yielded a pair for element 3; expected 3 pairs",
    ),
    "a key that comes back": (
        (3, [(1, b""), (2, b""), (1, b"")], THREE),
        r"Pairs\.pack: element 2 has the key 1, whose run ended before; a span is one run, use",
    ),
    "a key that comes back without a payload": (
        (3, [("a", b""), ("b", b""), ("a", None)], THREE),
        r"Pairs\.pack: element 2 has the key 'a', whose run ended before",
    ),
    "a key that is equal to one before": (
        (3, [(1, b""), (2, b""), (1.0, b"")], THREE),
        r"Pairs\.pack: element 2 has the key 1\.0, whose run ended before",
    ),
    "the first run without a payload": (
        (2, [(1, None), (1, None)], THREE[:2]),
        r"Pairs\.pack: element 0 begins the run of key 1 without a payload; the first element of",
    ),
    "a later run without a payload": (
        (3, [(1, b""), (1, None), (2, None)], THREE),
        r"Pairs\.pack: element 2 begins the run of key 2 without a payload",
    ),
    "a payload too late": (
        (2, [(1, None), (1, b"x")], THREE[:2]),
        r"Pairs\.pack: element 0 begins the run of key 1 without a payload",
    ),
    "a second payload": (
        (3, [(1, b"x"), (1, None), (1, b"x")], THREE),
        r"Pairs\.pack: element 2 goes on with the run of key 1 and has a payload; only the first",
    ),
    "a second payload that is empty": (
        (2, [(None, b"x"), (None, b"")], THREE[:2]),
        r"Pairs\.pack: element 1 goes on with the run of key None and has a payload",
    ),
    "not a pair: nothing": (
        (2, [(1, b""), None], THREE[:2]),
        r"Pairs\.pack yielded None for element 1; expected a pair \(key, payload or None\)",
    ),
    "not a pair: a list": (
        (1, [[1, b""]], THREE[:1]),
        r"Pairs\.pack yielded \[1, b''\] for element 0; expected a pair",
    ),
    "not a pair: three": (
        (1, [(1, b"", 2)], THREE[:1]),
        r"Pairs\.pack yielded \(1, b'', 2\) for element 0; expected a pair",
    ),
    "not a pair: text": ((1, ["ab"], THREE[:1]), r"Pairs\.pack yielded 'ab' for element 0"),
    "not a pair: a key alone": ((1, [1], THREE[:1]), r"Pairs\.pack yielded 1 for element 0"),
    "a key that is a list": (
        (1, [([], b"")], THREE[:1]),
        r"Pairs\.pack: the key of element 0: unhashable type: 'list'",
    ),
    "a later key that is an array": (
        (2, [(1, b""), (np.array([1, 2]), None)], THREE[:2]),
        r"Pairs\.pack: the key of element 1: unhashable type: 'numpy.ndarray'",
    ),
    "a payload that is text": ((1, [(1, "x")], THREE[:1]), "payload of type str; expected bytes"),
    "a payload that is a number": ((1, [(1, 0)], THREE[:1]), "payload of type int; expected bytes"),
    "returns nothing": (
        (1, [(1, b"")], None),
        r"Pairs\.pack returned NoneType; expected a 1-d numpy array of uint16",
    ),
    "returns a list": ((1, [(1, b"")], [7]), r"Pairs\.pack returned list; expected a 1-d numpy"),
    "returns another type": (
        (1, [(1, b"")], np.zeros(1, np.int64)),
        r"Pairs\.pack returned an array of shape \(1,\) and dtype int64; expected a 1-d",
    ),
    "returns another shape": (
        (1, [(1, b"")], np.zeros((1, 1), np.uint16)),
        r"Pairs\.pack returned an array of shape \(1, 1\) and dtype uint16; expected a 1-d",
    ),
    "returns too few": (
        (2, [(1, b""), (1, None)], THREE[:1]),
        r"Pairs\.pack yielded 2 pairs and returned an array of 1 elements; expected one pair for",
    ),
    "returns too many": (
        (2, [(1, b""), (1, None)], THREE),
        r"Pairs\.pack yielded 2 pairs and returned an array of 3 elements",
    ),
    "returns something for nothing": (
        (0, [], THREE),
        r"Pairs\.pack yielded 0 pairs and returned an array of 3 elements",
    ),
    "size: nothing": ((None, [], THREE), r"Pairs\.size\(data\) is None \(NoneType\); expected an"),
    "size: a float": ((1.0, [], THREE), r"Pairs\.size\(data\) is 1\.0 \(float\); expected an int"),
    "size: a boolean": ((True, [], THREE), r"Pairs\.size\(data\) is True; expected an integer"),
    "size: negative": ((-1, [], THREE), r"Pairs\.size\(data\) is -1; expected between 0 and"),
    "size: too much": ((2**62 + 1, [], THREE), r"Pairs\.size\(data\) is .*; expected between 0"),
}


@pytest.mark.parametrize("mistake", WRONG_PAIRS)
def test_a_wrong_generator_form_is_named(mistake: str, tmp_path: Path) -> None:
    bad, text = WRONG_PAIRS[mistake]
    check_refused(tmp_path / "x", Pairs(), GOOD_PAIRS, bad, text)


class NoSize(Runs):
    def pack(self, data: Any) -> Any:
        if data is not None:
            return data
        return self._pairs()

    def _pairs(self) -> Iterator[Any]:
        yield (1, b"")


def test_a_generator_without_size(tmp_path: Path) -> None:
    text = r"NoSize\.pack is a generator and NoSize has no method size\(data\), which says how many"
    check_refused(tmp_path / "x", NoSize(), GOOD, None, text)
    form: Any = NoSize()
    form.size = 5
    check_refused(tmp_path / "y", form, GOOD, None, text)


def test_errors_of_the_users_code_come_out_as_they_are(tmp_path: Path) -> None:
    """And the generator is closed, so that its files and locks are."""
    ended = []

    def pairs(error: BaseException) -> Iterator[Any]:
        try:
            yield (1, b"")
            raise error
        finally:
            ended.append(True)

    for error in (ValueError("of mine"), KeyError("of mine"), LookupError("of mine")):
        check_refused(
            tmp_path / type(error).__name__,
            Pairs(),
            GOOD_PAIRS,
            lambda error=error: (3, pairs(error), THREE),
            "of mine",
            type(error),
        )
    assert len(ended) == 9

    class BadSize(Pairs):
        def size(self, data: Any) -> Any:
            return data[0][0]

    with writer_of(tmp_path / "x", BadSize()) as writer:
        with pytest.raises(ZeroDivisionError):
            writer.append(0, _Failing())
        assert writer.length(0) == 0


class _Failing:
    def __getitem__(self, index: int) -> Any:
        return 1 // index


def test_a_generator_that_is_given_up_is_closed(tmp_path: Path) -> None:
    ended = []

    def pairs() -> Iterator[Any]:
        try:
            for _ in range(5):
                yield (1, None)
        finally:
            ended.append(True)

    with writer_of(tmp_path / "x", Pairs()) as writer:
        with pytest.raises(DataError, match="element 0 begins the run of key 1 without a payload"):
            writer.append(0, (5, pairs(), THREE))
        assert ended == [True]

"""StreamIndex: numbers that are none, copies, threads and pickles."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from format.gil_cases import ticks_meanwhile
from guideloom_format import StreamIndex


@pytest.mark.parametrize("name", ["length", "itemsize", "stride"])
@pytest.mark.parametrize("value", [2.0, 2.7, np.float32(2), "2", None, [2]], ids=repr)
def test_sizes_that_are_no_integers_are_refused(name: str, value: Any) -> None:
    """A size of 2.7 is not 2."""
    asked: dict[str, Any] = {"length": 2, "itemsize": 2, "stride": 2} | {name: value}
    with pytest.raises(TypeError):
        StreamIndex([9]).plan([0], **asked)
    if name != "itemsize":
        with pytest.raises(TypeError, match=rf"^{name} is .*; expected an integer$"):
            StreamIndex([9]).count(asked["length"], asked["stride"])


@pytest.mark.parametrize("name", ["length", "stride"])
@pytest.mark.parametrize("value", [-(2**70), -(2**63), -1, 2**62 + 1, 2**63, 2**64 + 2, 2**70])
def test_sizes_outside_their_interval_are_refused(name: str, value: int) -> None:
    low = {"length": 0, "stride": 1}[name]
    asked: dict[str, Any] = {"length": 2, "stride": 2} | {name: value}
    message = rf"^{name} is {value}; expected between {low} and {2**62}$"
    with pytest.raises(ValueError, match=message):
        StreamIndex([9]).count(**asked)
    if -(2**63) <= value < 0:
        with pytest.raises(ValueError, match=message):
            StreamIndex([9]).plan([0], itemsize=2, **asked)
    elif not -(2**63) <= value < 2**63:
        with pytest.raises((ValueError, OverflowError)):  # and not 2 for 2**64 + 2
            StreamIndex([9]).plan([0], itemsize=2, **asked)


def test_a_stride_of_zero_is_refused() -> None:
    message = rf"^stride is 0; expected between 1 and {2**62}$"
    with pytest.raises(ValueError, match=message):
        StreamIndex([9]).count(1, 0)
    with pytest.raises(ValueError, match=message):
        StreamIndex([9]).plan([0], 1, 1, 0)


@pytest.mark.parametrize("value", [2**63, 2**64, 2**64 + 1, 2**70, -(2**63) - 1, -(2**64)])
def test_ids_beyond_64_bits_do_not_come_round(value: int) -> None:
    for ids in ([value], [0, value]):
        with pytest.raises((IndexError, ValueError, TypeError), match=r"^(window|ids) "):
            StreamIndex([9]).plan(ids, 1, 1)
    with pytest.raises((ValueError, TypeError), match=r"^lengths "):
        StreamIndex([value])


def test_the_callers_arrays_stay_the_callers() -> None:
    lengths = np.array([3, 4], dtype=np.int64)
    index = StreamIndex(lengths)
    lengths[:] = 100
    assert index.total == 7
    assert index.ends.tolist() == [3, 7]
    ids = np.array([1, 0], dtype=np.int64)
    rows = index.plan(ids, 3, 1)
    assert ids.tolist() == [1, 0]
    again = index.plan(ids, 3, 1)
    assert not np.shares_memory(rows, again)
    rows[:] = 0
    assert again.tolist() == [[0, 1, 2, 0], [1, 0, 1, 2], [0, 0, 3, 3]]


def test_the_index_cannot_be_changed() -> None:
    index = StreamIndex([3, 4])
    with pytest.raises(ValueError, match="read-only"):
        index.ends[0] = 100
    with pytest.raises(AttributeError):
        index.total = 3


@pytest.mark.parametrize("lengths", [[], [0], [5, 0, 3], [2**61, 2**61], list(range(100))], ids=str)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(lengths: list[int], protocol: int) -> None:
    index = StreamIndex(lengths)
    back = pickle.loads(pickle.dumps(index, protocol))
    assert type(back) is StreamIndex
    assert (back.total, back.ends.tolist()) == (index.total, index.ends.tolist())
    ids = np.arange(min(index.count(1, 1), 50))
    np.testing.assert_array_equal(back.plan(ids, 1, 1), index.plan(ids, 1, 1))


def test_threads_share_an_index() -> None:
    rng = np.random.default_rng(0)
    index = StreamIndex(rng.integers(0, 5, 1000))
    batches = [rng.integers(0, index.count(40, 1), 500) for _ in range(40)]
    expected = [index.plan(ids, 40, 3) for ids in batches]
    found: list[NDArray[np.int64] | None] = [None] * 40

    def work(first: int) -> None:
        for k in range(first, 40, 4):
            found[k] = index.plan(batches[k], 40, 3)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_other_threads_run_while_a_plan_is_made() -> None:
    lengths = np.zeros(1_000_000, dtype=np.int64)
    lengths[[0, -1]] = 1  # every window walks over a million empty parts
    index = StreamIndex(lengths)
    ids = np.zeros(400, dtype=np.int64)
    ticks, seconds = ticks_meanwhile(lambda: index.plan(ids, 2, 1))
    assert ticks > 0, f"no other thread ran in the middle of a plan of {seconds:.2f} s"


def test_the_check_for_other_threads_can_fail() -> None:
    """A sum over a range keeps the interpreter's lock from beginning to end."""
    ticks, seconds = ticks_meanwhile(lambda: sum(range(20_000_000)))
    assert ticks == 0, f"another thread ran {ticks} times in {seconds:.2f} s"

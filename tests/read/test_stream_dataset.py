"""`StreamDataset` and its reader against windows of one array."""

from __future__ import annotations

import itertools
import math
import pickle
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from guideloom import StreamDataset
from guideloom_format import StreamStorage
from guideloom_read import StreamDatasetReader
from read.stream_cases import (
    BACKENDS,
    DTYPES,
    PACKED,
    PLAIN,
    BatchOrigins,
    Cuts,
    Origins,
    fields,
    numpy_stream,
    values,
    write_cut,
)

CUTS: Cuts = {0: [3, 1, 4], 2: [1], 3: [5, 9], 70: [2, 6, 5]}
numbers = itertools.count()
into_one_folder = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def samples_of(elements: NDArray[Any], length: int, stride: int) -> list[NDArray[Any]]:
    """The reference: all whole windows."""
    return [
        elements[start : start + length]
        for start in range(0, max(len(elements) - length + 1, 0), stride)
    ]


def check_sample(found: dict[str, NDArray[Any]], expected: NDArray[Any]) -> None:
    arrays = fields(expected)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert np.array_equal(found[name], array)
        assert found[name].flags.c_contiguous
        assert found[name].flags.writeable


def check_batch(
    found: dict[str, NDArray[Any]], expected: Sequence[NDArray[Any]], empty: NDArray[Any]
) -> None:
    stacked = np.stack(expected) if expected else empty[None][:0]
    check_sample(found, stacked)


@into_one_folder
@given(
    cuts=st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 12), max_size=4), max_size=4),
    length=st.integers(1, 12),
    stride=st.none() | st.integers(1, 15),
    dtype=st.sampled_from(DTYPES),
    data=st.data(),
)
def test_any_dataset(
    cuts: Cuts,
    length: int,
    stride: int | None,
    dtype: np.dtype[Any],
    data: st.DataObject,
    tmp_path: Path,
) -> None:
    directory = tmp_path / str(next(numbers))
    storage, elements = numpy_stream(directory, dtype, cuts)
    storage.read_interface = BACKENDS[data.draw(st.sampled_from(sorted(BACKENDS)))](directory)
    expected = samples_of(elements, length, stride or length)
    count = len(expected)
    with StreamDataset(storage, length, stride).sync_reader() as reader:
        assert len(reader) == count
        for index in range(-count, count):
            check_sample(reader[index], expected[index])
        for index in (-count - 1, count):
            with pytest.raises(
                IndexError, match=rf"sample {index} is outside \[{-count}, {count}\)"
            ):
                reader[index]
        window = data.draw(st.slices(count), "slice")
        found = reader[window]
        assert len(found) == len(expected[window])
        for sample, right in zip(found, expected[window], strict=True):
            check_sample(sample, right)
        if count:
            ids = data.draw(st.lists(st.integers(-count, count - 1), max_size=9), "ids")
            for sample, k in zip(reader[ids], ids, strict=True):
                check_sample(sample, expected[k])
            ids = [k % count for k in ids]
            batch = reader.gather(ids)
            check_batch(batch, [expected[k] for k in ids], np.zeros(length, dtype))
            out = {name: np.full_like(array, 7) for name, array in batch.items()}
            assert reader.gather(np.array(ids, dtype=np.int64), out) is out
            check_batch(out, [expected[k] for k in ids], np.zeros(length, dtype))


def test_inputs_and_shifted_labels(tmp_path: Path) -> None:
    """sequence_length L + 1 and stride L: neighbours share one element."""
    storage, elements = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    with StreamDataset(storage, 5 + 1, stride=5).sync_reader() as reader:
        assert len(reader) == 7
        tokens = reader.gather(np.arange(7))["token"]
        assert np.array_equal(tokens[:, :-1].reshape(-1), elements["token"][:35])
        assert np.array_equal(tokens[:, 1:].reshape(-1), elements["token"][1:36])


def test_all_counts_of_samples(tmp_path: Path) -> None:
    """Elements behind the last whole window belong to no sample."""
    storage, elements = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    for length, stride in itertools.product(range(1, 40), range(1, 40)):
        with StreamDataset(storage, length, stride).sync_reader() as reader:
            assert len(reader) == len(samples_of(elements, length, stride))


def test_it_is_a_sequence(tmp_path: Path) -> None:
    storage, elements = numpy_stream(tmp_path / "x", PACKED, CUTS)
    dataset = StreamDataset(storage, 7)
    expected = samples_of(elements, 7, 7)
    with dataset.sync_reader() as reader:
        assert isinstance(reader, Sequence)
        for sample, right in zip(reader, expected, strict=True):
            check_sample(sample, right)
        for sample, right in zip(reversed(reader), expected[::-1], strict=True):
            check_sample(sample, right)


def test_kinds_of_indexes(tmp_path: Path) -> None:
    storage, elements = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    expected = samples_of(elements, 4, 4)
    with StreamDataset(storage, 4).sync_reader() as reader:
        for kind in (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64):
            check_sample(reader[kind(3)], expected[3])
            check_sample(reader[np.array(3, dtype=kind)], expected[3])
            for sample, k in zip(reader[np.array([8, 0, 8], kind)], [8, 0, 8], strict=True):
                check_sample(sample, expected[k])
            batch = reader.gather(np.array([8, 0, 8], kind))
            check_batch(batch, [expected[8], expected[0], expected[8]], expected[0])
        for sample, k in zip(reader[np.array([-1, -9, 2], np.int16)], [8, 0, 2], strict=True):
            check_sample(sample, expected[k])
        assert reader[[]] == []
        assert reader[()] == []
        assert reader.gather([])["token"].shape == (0, 4)
        assert reader.gather(np.zeros(0, np.int64))["token"].shape == (0, 4)
        strided = np.arange(18)[::2]
        check_batch(reader.gather(strided[:5:2]), [expected[k] for k in (0, 4, 8)], expected[0])


@pytest.mark.parametrize("index", [1.0, None, "1", [1.5], np.array([True, False])])
def test_indexes_that_are_not_integers(index: Any, tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    with (
        StreamDataset(storage, 4).sync_reader() as reader,
        pytest.raises(TypeError, match="expected integers"),
    ):
        reader[index]


def test_indexes_outside(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    with StreamDataset(storage, 4).sync_reader() as reader:
        for bad in (-10, 9, 10**30, -(10**30)):
            with pytest.raises(IndexError, match=rf"sample {bad} is outside \[-9, 9\)"):
                reader[bad]
        for bad in (-10, 9, 2**62):
            with pytest.raises(
                IndexError, match=rf"sample {bad} at position 1 is outside \[-9, 9\)"
            ):
                reader[[0, bad, 99]]
        for bad in (-1, 9, 2**62):
            with pytest.raises(
                IndexError,
                match=rf"window {bad} at position 2 is outside \[0, 9\): the stream has 36 "
                "elements, a window 4, with stride 4",
            ):
                reader.gather([0, 8, bad])
        with pytest.raises(ValueError, match="9223372036854775808"):
            reader.gather(np.array([2**63], np.uint64))
        for shape in ((2, 2), ()):
            with pytest.raises((TypeError, ValueError), match=r"dimensions|unsized"):
                reader.gather(np.zeros(shape, np.int64))
        with pytest.raises(TypeError, match="2 dimensions; expected 1"):
            reader[np.zeros((2, 2), np.int64)]


def test_out_that_does_not_fit_is_refused_untouched(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PACKED, CUTS)

    def arrays(**changes: Any) -> dict[str, Any]:
        out = {"token": np.zeros((3, 4), "<u4"), "mask": np.zeros((3, 4), "?")}
        return out | changes

    read_only = np.zeros((3, 4), "?")
    read_only.flags.writeable = False
    bad: list[tuple[dict[str, Any], str]] = [
        ({}, r"out has the fields \[\]; expected \['mask', 'token'\]"),
        (arrays(more=np.zeros(3)), r"out has the fields \['mask', 'more', 'token'\]; expected"),
        ({"token": np.zeros((3, 4), "<u4"), "x": 1}, r"out\['mask'\] is NoneType; expected a wri"),
        (arrays(mask=[[True] * 4] * 3), r"out\['mask'\] is list; expected"),
        (arrays(mask=np.zeros((4, 3), "?")), r"of shape \(4, 3\) and dtype bool; expected .*3, 4"),
        (arrays(mask=np.zeros(12, "?")), r"of shape \(12,\) and dtype bool; expected"),
        (arrays(token=np.zeros((3, 4), "<i4")), r"\(3, 4\) and dtype int32; expected .* uint32"),
        (arrays(token=np.zeros((3, 4), ">u4")), r"dtype >u4; expected .*dtype uint32"),
        (arrays(token=np.zeros((4, 3), "<u4").T), r"out\['token'\] is an array of shape \(3, 4\)"),
        (arrays(token=np.zeros((3, 8), "<u4")[:, ::2]), r"expected a writable C-contiguous"),
        (arrays(mask=read_only), r"out\['mask'\] is .*; expected a writable"),
    ]
    with StreamDataset(storage, 4).sync_reader() as reader:
        for out, text in bad:
            with pytest.raises(TypeError, match=text):
                reader.gather([0, 1, 2], out)
            for array in out.values():
                assert not isinstance(array, np.ndarray) or not array.any()
        assert reader.gather([0, 1, 2], arrays())["token"].shape == (3, 4)


def test_custom_formats_with_and_without_a_fast_path(tmp_path: Path) -> None:
    for kind in (Origins, BatchOrigins):
        storage = StreamStorage(tmp_path / kind.__name__, kind())
        elements = values(np.dtype("<u4"), 36)
        write_cut(storage, CUTS, elements)
        expected = samples_of(elements, 10, 3)
        with StreamDataset(storage, 10, 3).sync_reader() as reader:
            assert reader.gathers == (kind is BatchOrigins)
            assert len(reader) == len(expected)
            for sample, right in zip(reader, expected, strict=True):
                assert np.array_equal(sample[0], right)
                assert sum(sample[1]) == 10
            assert reader[0][1:] == ([8, 1, 1], [0, 2, 3])
            assert reader[5][1:] == ([8, 2], [3, 70])
            assert reader[-1][1:] == ([10], [70])
            if kind is Origins:
                with pytest.raises(
                    TypeError,
                    match=r"Origins has no unpack_batch, which gather needs; define it, or read "
                    r"samples with reader\[ids\]",
                ):
                    reader.gather([0, 1])
            else:
                batch = reader.gather([4, 0])
                assert np.array_equal(batch, np.stack([expected[4], expected[0]]) + 1)
                with pytest.raises(TypeError, match="gather takes `out` only for elements with"):
                    reader.gather([0], {"x": np.zeros((1, 10), "<u4")})


def test_batches_and_samples_stay_valid(tmp_path: Path) -> None:
    for dtype, (name, backend) in itertools.product(DTYPES, BACKENDS.items()):
        directory = tmp_path / f"{name}-{dtype.itemsize}"
        storage, elements = numpy_stream(directory, dtype, CUTS)
        storage.read_interface = backend(directory)
        expected = samples_of(elements, 7, 7)
        reader = StreamDataset(storage, 7).sync_reader().open()
        batch, other, sample = reader.gather([4, 1]), reader.gather([4, 1]), reader[2]
        reader.close()
        check_batch(batch, [expected[4], expected[1]], expected[0])
        for array in batch.values():
            array.reshape(-1).view(np.uint8)[:] = 0
        check_batch(other, [expected[4], expected[1]], expected[0])
        check_sample(sample, expected[2])


def test_a_reader_that_is_not_open(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    reader = StreamDatasetReader(StreamDataset(storage, 4))
    for _ in range(2):
        for call in (
            lambda: len(reader),
            lambda: reader[0],
            lambda: reader[:2],
            lambda: reader[[0]],
            lambda: reader.gather([0]),
            lambda: reader.gather(np.array([0])),
            reader.identity,
        ):
            with pytest.raises(ValueError, match="the reader is not open"):
                call()
        with reader as opened:
            assert opened is reader
            assert len(reader) == 9


def test_identity_names_what_determines_the_samples(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    identities = []
    for length, stride in ((4, None), (4, 3), (5, None)):
        with StreamDataset(storage, length, stride).sync_reader() as reader:
            identities.append(reader.identity())
            assert reader.identity() == {
                "dataset": reader.stream.fingerprint,
                "sequence_length": length,
                "stride": stride or length,
            }
    assert len({str(identity) for identity in identities}) == 3


@pytest.mark.parametrize(
    ("length", "stride", "kind", "text"),
    [
        (0, None, ValueError, "sequence_length is 0; expected between 1 and 2147483648"),
        (-1, None, ValueError, "sequence_length is -1"),
        (2**31 + 1, None, ValueError, "sequence_length is 2147483649"),
        (1.0, None, TypeError, r"sequence_length is 1\.0 \(float\); expected an integer"),
        (True, None, TypeError, "sequence_length is True; expected an integer"),
        (4, 0, ValueError, "stride is 0; expected between 1"),
        (4, -4, ValueError, "stride is -4"),
        (4, "4", TypeError, r"stride is '4' \(str\)"),
    ],
)
def test_lengths_and_strides_are_checked(
    length: Any, stride: Any, kind: type[Exception], text: str, tmp_path: Path
) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, {})
    with pytest.raises(kind, match=text):
        StreamDataset(storage, length, stride)


def test_lengths_longer_than_the_stream(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    for length, stride in ((37, 1), (37, None), (2**31, 2**62)):
        with StreamDataset(storage, length, stride).sync_reader() as reader:
            assert len(reader) == 0
            assert list(reader) == reader[:] == []
            assert reader.gather([])["token"].shape == (0, length)
            with pytest.raises(IndexError, match=r"outside \[0, 0\)"):
                reader[0]
            with pytest.raises(IndexError, match=r"outside \[0, 0\)"):
                reader.gather([0])


def test_numpy_integers_are_welcome(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, CUTS)
    dataset = StreamDataset(storage, np.uint16(4), np.int8(3))  # type: ignore[arg-type]
    assert (type(dataset.sequence_length), type(dataset.stride)) == (int, int)
    assert repr(dataset) == f"StreamDataset({storage!r}, sequence_length=4, stride=3)"
    with dataset.sync_reader() as reader:
        assert len(reader) == math.floor((36 - 4) / 3) + 1


def test_descriptions_can_be_pickled(tmp_path: Path) -> None:
    """As they must be to reach a worker process."""
    storage, elements = numpy_stream(tmp_path / "x", PACKED, CUTS)
    dataset = pickle.loads(pickle.dumps(StreamDataset(storage, 4, 3)))
    with dataset.sync_reader() as reader:
        check_sample(reader[2], elements[6:10])


def test_gather_lets_other_threads_run(tmp_path: Path) -> None:
    """A thread that gathers gives up the interpreter's lock while it reads.

    With a switch interval of minutes, no other thread gets the lock unless it is given up. The
    second thread gives it up at each turn, so the first can begin and end.
    """
    storage, _ = numpy_stream(tmp_path / "x", PLAIN, {0: [1 << 20]})
    turns = 0
    marks: list[int] = []
    interval = sys.getswitchinterval()
    with StreamDataset(storage, 1 << 18).sync_reader() as reader:
        ids = np.zeros(64, dtype=np.int64)
        out = {"token": np.zeros((64, 1 << 18), "<u4")}
        reader.gather(ids, out)

        def gather() -> None:
            for _ in range(5):
                marks.append(turns)
                reader.gather(ids, out)
                marks.append(turns)

        thread = threading.Thread(target=gather)
        sys.setswitchinterval(600)
        try:
            thread.start()
            while thread.is_alive():
                turns += 1
                time.sleep(0)
        finally:
            sys.setswitchinterval(interval)
        thread.join()
    during = [after - before for before, after in zip(marks[::2], marks[1::2], strict=True)]
    assert max(during) > 10, during

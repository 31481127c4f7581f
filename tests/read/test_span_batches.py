"""Samples and batches of streams with metadata: `StreamDataset` over spans, and `SpanBatch`."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guideloom import SpanBatch, SpanWindow, StreamDataset, StreamWithMetaStorage
from guideloom.io import PosixPreadIO
from guideloom_format import DocumentBytesFormat, DocumentJSONFormat, StreamSpansFormat
from read.span_cases import (
    DTYPES,
    SOME,
    TOKENS,
    Cut,
    check_batch,
    check_derived,
    check_window,
    cuts,
    spans_dataset,
)
from read.stream_cases import BACKENDS, PACKED, PLAIN, MemoryIO
from write.span_formats import Runs

numbers = itertools.count()
into_one_folder = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@into_one_folder
@given(
    cut=cuts(),
    length=st.integers(1, 12),
    stride=st.none() | st.integers(1, 15),
    dtype=st.sampled_from(DTYPES),
    data=st.data(),
)
def test_any_dataset(
    cut: Cut,
    length: int,
    stride: int | None,
    dtype: Any,
    data: st.DataObject,
    tmp_path: Path,
) -> None:
    directory = tmp_path / str(next(numbers))
    storage, model = spans_dataset(directory, cut, dtype)
    storage.read_interface = BACKENDS[data.draw(st.sampled_from(sorted(BACKENDS)))](directory)
    starts = model.samples(length, stride or length)
    count = len(starts)
    with StreamDataset(storage, length, stride).sync_reader() as reader:
        assert len(reader) == count
        assert reader.gathers
        for index in range(-count, count):
            check_window(reader[index], model, starts[index], length)
        for index in (-count - 1, count):
            with pytest.raises(
                IndexError, match=rf"sample {index} is outside \[{-count}, {count}\)"
            ):
                reader[index]
        window = data.draw(st.slices(count), "slice")
        for sample, start in zip(reader[window], starts[window], strict=True):
            check_window(sample, model, start, length)
        ids = (
            data.draw(st.lists(st.integers(-count, count - 1), max_size=9), "ids") if count else []
        )
        for sample, k in zip(reader[ids], ids, strict=True):
            check_window(sample, model, starts[k], length)
        asked = [starts[k] for k in ids]
        for given_ids in (
            [k % count for k in ids],
            np.array([k % count for k in ids], dtype=np.int64),
        ):
            batch = reader.gather(given_ids)
            check_batch(batch, model, asked, length)
            check_derived(batch, model, asked, length)
            check_batch(
                reader.gather(given_ids, payloads=False), model, asked, length, payloads=False
            )


@into_one_folder
@given(
    cut=cuts(), length=st.integers(1, 10), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 99)
)
def test_a_narrowed_batch_is_the_batch_of_narrower_windows(
    cut: Cut, length: int, dtype: Any, seed: int, tmp_path: Path
) -> None:
    """All borders; the payloads stay those of the batch that it comes from."""
    storage, model = spans_dataset(tmp_path / str(next(numbers)), cut, dtype)
    with StreamDataset(storage, length, 1).sync_reader() as reader:
        ids = np.random.default_rng(seed).integers(0, max(len(reader), 1), 4)[: 4 * len(reader)]
        batch = reader.gather(ids)
        kept = pickle.dumps(batch)
        for start, stop in itertools.combinations_with_replacement(range(length + 1), 2):
            part = batch.narrow(start, stop)
            starts = (ids + start).tolist()
            assert part.payloads is batch.payloads
            assert part.payloads is not None
            check_derived(part, model, starts, stop - start)
            payloads = [bytes(payload) for payload in part.payloads.arrays()]
            found = [payloads[index] for index in part.payload_index]
            assert found == [model.spans[span][2] for span in part.spans.tolist()]
            touched = list(dict.fromkeys(part.spans.tolist()))
            anew = part._replace(
                payload_index=np.array([touched.index(k) for k in part.spans], dtype=np.int64),
                payloads=None,
                stream=_copied(part.stream),
            )
            check_batch(anew, model, starts, stop - start, payloads=False)
            again = part.narrow(0, stop - start)
            assert again.spans.tolist() == part.spans.tolist()
        assert pickle.dumps(batch) == kept, "narrow changed what it was made from"


def _copied(stream: Any) -> Any:
    if isinstance(stream, dict):
        return {name: field.copy() for name, field in stream.items()}
    return stream.copy()


def test_inputs_and_shifted_labels(tmp_path: Path) -> None:
    """sequence_length L + 1 and stride L, as for training."""
    storage, model = spans_dataset(tmp_path / "x", SOME)
    with StreamDataset(storage, 5 + 1, stride=5).sync_reader() as reader:
        assert len(reader) == 7
        batch = reader.gather(np.arange(7))
        inputs, labels = batch.narrow(0, 5), batch.narrow(1, 6)
        assert np.array_equal(inputs.stream.reshape(-1), model.elements[:35])
        assert np.array_equal(labels.stream.reshape(-1), model.elements[1:36])
        assert inputs.stream.base is not None
        assert np.shares_memory(inputs.stream, batch.stream)
        assert inputs.document_ids().shape == labels.position_ids().shape == (7, 5)
        assert np.array_equal(batch.document_ids()[:, :5], inputs.document_ids())
        assert np.array_equal(batch.document_ids()[:, 1:], labels.document_ids())


@pytest.mark.parametrize(
    ("start", "stop"), [(-1, 2), (3, 2), (0, 7), (7, 7), (-2, -1), (2**70, 2**71)]
)
def test_columns_that_are_not_there(start: int, stop: int, tmp_path: Path) -> None:
    storage, _ = spans_dataset(tmp_path / "x", SOME)
    with (
        StreamDataset(storage, 6).sync_reader() as reader,
        pytest.raises(
            ValueError, match=rf"narrow got {start} and {stop}; expected 0 <= start <= stop <= 6"
        ),
    ):
        reader.gather([0, 1]).narrow(start, stop)


def test_lengths_for_attention_fit_in_32_bits_or_are_refused() -> None:
    many = np.full(2**11, 2**20, dtype=np.int64)
    batch = SpanBatch(None, np.array([0, 2**11]), many * 0, many, many, many, None, 2**31)
    with pytest.raises(ValueError, match=r"2147483648 elements, and int32 holds less than 2\*\*31"):
        batch.cu_seqlens()
    fits = batch._replace(lengths=many[:-1])
    assert fits.cu_seqlens()[-1] == 2**31 - 2**20


@pytest.mark.parametrize("payloads", [True, False])
@pytest.mark.parametrize("dtype", [PLAIN, PACKED], ids=str)
def test_gather_into_arrays(dtype: np.dtype[Any], payloads: bool, tmp_path: Path) -> None:
    """One field is read straight into its array, several are copied."""
    storage, model = spans_dataset(tmp_path / "x", SOME, dtype)
    with StreamDataset(storage, 4, 3).sync_reader() as reader:
        out = {name: np.full((3, 4), 1, dtype[name]) for name in dtype.names or ()}
        batch = reader.gather([5, 0, 5], out, payloads=payloads)
        assert batch.stream is out
        check_batch(batch, model, [15, 0, 15], 4, payloads=payloads)
        wrong: list[Any] = [
            {},
            {name: array[:2] for name, array in out.items()},
            {name: array.astype("<f8") for name, array in out.items()},
            [out],
        ]
        for bad in wrong:
            with pytest.raises(TypeError, match=r"out(\['token'\])? (is|has)"):
                reader.gather([5, 0, 5], bad)


def test_gather_into_arrays_needs_fields(tmp_path: Path) -> None:
    storage, _ = spans_dataset(tmp_path / "x", SOME)
    with (
        StreamDataset(storage, 4).sync_reader() as reader,
        pytest.raises(TypeError, match="gather takes `out` only for elements with fields"),
    ):
        reader.gather([0], {"stream": np.zeros((1, 4), "<u2")})


class OneMore(Runs):
    """A custom format with a fast path for batches."""

    def unpack_batch(self, stream: Any) -> Any:
        return stream + 1


def test_custom_formats_with_and_without_a_fast_path(tmp_path: Path) -> None:
    for form in (Runs(TOKENS), OneMore(TOKENS)):
        storage, model = spans_dataset(tmp_path / type(form).__name__, SOME, form=form)
        with StreamDataset(storage, 10, 3).sync_reader() as reader:
            assert reader.gathers == isinstance(form, OneMore)
            stream, shards, index, payloads = reader[2]
            assert np.array_equal(stream, model.elements[6:16])
            assert (shards, payloads) == ([0, 0, 0, 3], [b"bc", b"", b"d", b"efg"])
            assert index.tolist() == [0, 1, 2, 2, 3, 3, 3, 3, 3, 3]
            if isinstance(form, OneMore):
                batch = reader.gather([2, 0])
                assert np.array_equal(batch.stream[0], model.elements[6:16] + 1)
                check_batch(batch._replace(stream=batch.stream - 1), model, [6, 0], 10)
            else:
                with pytest.raises(TypeError, match="Runs has no unpack_batch, which gather needs"):
                    reader.gather([2, 0])


def test_it_is_a_sequence(tmp_path: Path) -> None:
    storage, model = spans_dataset(tmp_path / "x", SOME, PACKED)
    with StreamDataset(storage, 7).sync_reader() as reader:
        assert isinstance(reader, Sequence)
        for number, sample in enumerate(reader):
            check_window(sample, model, 7 * number, 7)
        for number, sample in enumerate(reversed(reader)):
            check_window(sample, model, 7 * (4 - number), 7)
        assert reader[[]] == []
        assert reader[()] == []
        check_batch(reader.gather([]), model, [], 7)
        check_derived(reader.gather([]), model, [], 7)
        for kind in (np.int8, np.uint16, np.uint64):
            check_window(reader[kind(3)], model, 21, 7)
            check_batch(reader.gather(np.array([3, 0], kind)), model, [21, 0], 7)
        with pytest.raises(TypeError, match="expected integers"):
            reader[1.0]
        with pytest.raises(IndexError, match=r"window 5 at position 1 is outside \[0, 5\)"):
            reader.gather([0, 5])


def test_batches_stay_valid(tmp_path: Path) -> None:
    for dtype, (name, backend) in itertools.product(DTYPES, BACKENDS.items()):
        directory = tmp_path / f"{name}-{dtype.itemsize}"
        storage, model = spans_dataset(directory, SOME, dtype)
        storage.read_interface = backend(directory)
        reader = StreamDataset(storage, 7).sync_reader().open()
        batch, other, sample = reader.gather([4, 1]), reader.gather([4, 1]), reader[2]
        reader.close()
        check_batch(batch, model, [28, 7], 7)
        for array in [*batch[1:6], *batch.payloads]:
            array[...] = 0
        check_batch(other, model, [28, 7], 7)
        check_window(sample, model, 14, 7)
        check_batch(pickle.loads(pickle.dumps(other)), model, [28, 7], 7)


def test_a_payload_is_read_once_for_a_batch(tmp_path: Path) -> None:
    """However many windows touch it; and not at all if it is not asked for."""
    big = bytes(range(256)) * 40
    cut: Cut = {0: [[[(1000, big), (1000, big[::-1])]]]}
    spans_dataset(tmp_path / "x", cut)
    io = MemoryIO.of(tmp_path / "x")
    storage = StreamWithMetaStorage(
        tmp_path / "x", StreamSpansFormat("<u2", DocumentBytesFormat()), io
    )
    with StreamDataset(storage, 10).sync_reader() as reader:
        batch = reader.gather(np.arange(200))
        read = [nbytes for name, _, nbytes in io.log if name.endswith(".payloads")]
        assert read == [2 * len(big)]
        assert batch.payloads.offsets.tolist() == [0, len(big), 2 * len(big)]
        io.log.clear()
        assert reader.gather(np.arange(200), payloads=False).payloads is None
        assert not [name for name, _, _ in io.log if name.endswith(".payloads")]


def test_samples_of_json_payloads(tmp_path: Path) -> None:
    """As the page for users shows it."""
    storage = StreamWithMetaStorage(
        tmp_path / "x", StreamSpansFormat("<u2", DocumentJSONFormat()), PosixPreadIO()
    )
    with storage.sync_writer() as writer:
        writer.append(0, ([1, 2, 3, 4, 5], [3, 2], [{"title": "a fable"}, {"title": "other"}]))
    with StreamDataset(storage, 4).sync_reader() as reader:
        sample = reader[0]
        assert isinstance(sample, SpanWindow)
        assert sample.stream.tolist() == [1, 2, 3, 4]
        assert sample.span_index.tolist() == [0, 0, 0, 1]
        assert sample.payloads == [{"title": "a fable"}, {"title": "other"}]
        assert sample.shards == [0, 0]


def test_a_dataset_names_the_storages_that_it_takes(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="expected a StreamStorage or a StreamWithMetaStorage"):
        StreamDataset(tmp_path, 4)  # type: ignore[arg-type]

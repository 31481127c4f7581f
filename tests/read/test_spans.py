"""Windows of streams with metadata against a list of spans, whatever the cuts."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import guideloom
from format.kind_cases import parts_of_spans
from format.kind_cases import write_spans as write_by_hand
from guideloom import DocumentDataset, StreamDataset, StreamWithMetaStorage
from guideloom.io import PosixPreadIO
from guideloom_format import (
    DocumentBytesFormat,
    DocumentJSONFormat,
    DocumentNumpyFormat,
    DocumentStorage,
    StreamSpansFormat,
    StreamStorage,
)
from read.span_cases import (
    DTYPES,
    SOME,
    TOKENS,
    Cut,
    Model,
    check_batch,
    check_window,
    cuts,
    element_count,
    model_of,
    spans_dataset,
)
from read.stream_cases import BACKENDS, BatchOrigins, consolidate, write_cut
from write.span_formats import Runs

numbers = itertools.count()
into_one_folder = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@into_one_folder
@given(cut=cuts(), dtype=st.sampled_from(DTYPES), data=st.data())
def test_any_cut_and_windows(cut: Cut, dtype: Any, data: st.DataObject, tmp_path: Path) -> None:
    directory = tmp_path / str(next(numbers))
    storage, model = spans_dataset(directory, cut, dtype)
    if data.draw(st.booleans(), "manifest"):
        consolidate(directory)
    backend = data.draw(st.sampled_from(sorted(BACKENDS)), "backend")
    storage.read_interface = BACKENDS[backend](directory)
    total = len(model.elements)
    with storage.sync_reader() as reader:
        assert len(reader) == total
        assert reader.span_count == len(model.spans)
        for _ in range(3):
            length = data.draw(st.integers(0, total), "length")
            starts = data.draw(st.lists(st.integers(0, total - length), max_size=12), "starts")
            found = reader.read_many(starts, length)
            for start, window in zip(starts, found, strict=True):
                check_window(window, model, start, length)
            for start in starts[:2]:
                check_window(reader.read(start, length), model, start, length)
        check_window(reader.read(0, total), model, 0, total)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_window(dtype: Any, backend: str, tmp_path: Path) -> None:
    """All starts and lengths, so every border between spans, parts and shards is crossed."""
    storage, model = spans_dataset(tmp_path / "x", SOME, dtype)
    storage.read_interface = BACKENDS[backend](tmp_path / "x")
    with storage.sync_reader() as reader:
        assert (len(reader), reader.span_count) == (36, 14)
        for length in (0, 1, 2, 7, 20, 36):
            starts = list(range(36 - length + 1))
            for start, window in zip(starts, reader.read_many(starts, length), strict=True):
                check_window(window, model, start, length)


@into_one_folder
@given(cut=cuts(), data=st.data())
def test_a_custom_format_is_given_what_the_window_touches(
    cut: Cut, data: st.DataObject, tmp_path: Path
) -> None:
    """Each payload once, in order, with its shard; an index for each element."""
    storage, model = spans_dataset(tmp_path / str(next(numbers)), cut, form=Runs(TOKENS))
    total = len(model.elements)
    length = data.draw(st.integers(0, total), "length")
    starts = data.draw(st.lists(st.integers(0, total - length), max_size=12), "starts")
    with storage.sync_reader() as reader:
        found = reader.read_many(starts, length)
    for start, (stream, shards, index, payloads) in zip(starts, found, strict=True):
        pieces = model.window(start, length)
        assert stream.dtype == TOKENS
        assert np.array_equal(stream, model.elements[start : start + length])
        assert shards == [piece.shard for piece in pieces]
        assert all(type(shard) is int for shard in shards)
        assert payloads == [piece.payload for piece in pieces]
        assert all(type(payload) is bytes for payload in payloads)
        assert index.dtype == np.int64
        assert index.shape == (length,)
        for number, piece in enumerate(pieces):
            assert set(index[piece.start : piece.start + piece.length].tolist()) == {number}


@pytest.mark.parametrize("manifest", [False, True])
def test_parts_without_elements_or_without_anything(manifest: bool, tmp_path: Path) -> None:
    """Writers leave parts with nothing out; the format allows them anywhere."""
    shards: Any = {
        0: [[], [(0, b"x")], [(3, b"abc"), (0, b"")], []],
        2: [[(0, b""), (0, b"yz")]],
        3: [[]],
        9: [[(2, b"d")], [(0, b"w")] * 200, [(1, b"e")], []],
    }
    made = parts_of_spans(shards, 2)
    writer = write_by_hand(tmp_path / "x", made)
    if manifest:
        writer.manifest(made)
    content = b"".join(part.contents["elements"] for part in made)
    cut: Cut = {shard: [[part] for part in parts] for shard, parts in shards.items()}
    model = model_of(cut, np.frombuffer(content, "<u2"))
    storage = guideloom.open(tmp_path / "x")
    assert isinstance(storage, StreamWithMetaStorage)
    for name, backend in BACKENDS.items():
        storage.read_interface = backend(tmp_path / "x")
        with storage.sync_reader() as reader:
            assert (len(reader), reader.span_count) == (6, 207), name
            for start, stop in itertools.combinations_with_replacement(range(7), 2):
                check_window(reader.read(start, stop - start), model, start, stop - start)
        with StreamDataset(storage, 2, 1).sync_reader() as samples:
            check_batch(samples.gather([4, 0, 1, 2, 3]), model, [4, 0, 1, 2, 3], 2)


def test_a_document_cut_over_parts_is_a_span_in_each(tmp_path: Path) -> None:
    """Each with the payload that it was appended with."""
    storage = StreamWithMetaStorage(tmp_path / "x", StreamSpansFormat("<u2", DocumentJSONFormat()))
    for part in range(3):
        with storage.sync_writer() as writer:
            writer.append(7, ([10 * part, 10 * part + 1], [2], [{"document": 5, "piece": part}]))
    with storage.sync_reader() as reader:
        window = reader.read(1, 4)
    assert window.stream.tolist() == [1, 10, 11, 20]
    assert window.span_index.tolist() == [0, 1, 1, 2]
    assert window.payloads == [{"document": 5, "piece": part} for part in range(3)]
    assert window.shards == [7, 7, 7]


@into_one_folder
@given(cut=cuts(), length=st.integers(1, 9), data=st.data())
def test_the_same_tokens_in_the_other_kinds(
    cut: Cut, length: int, data: st.DataObject, tmp_path: Path
) -> None:
    """A plain stream has the same samples, a document dataset the same spans and payloads."""
    directory = tmp_path / str(next(numbers))
    storage, model = spans_dataset(directory / "spans", cut)
    plain = StreamStorage(directory / "plain", BatchOrigins(TOKENS))
    write_cut(
        plain,
        {shard: [element_count({shard: [part]}) for part in parts] for shard, parts in cut.items()},
        model.elements,
    )
    tokens = DocumentStorage(directory / "tokens", DocumentNumpyFormat("<u2"))
    payloads = DocumentStorage(directory / "payloads", DocumentBytesFormat())
    for documents, column in ((tokens, 0), (payloads, 1)):
        with documents.sync_writer() as writer:
            for first, behind, payload, shard in model.spans:
                writer.append(shard, (model.elements[first:behind], payload)[column])
    stride = data.draw(st.integers(1, 9), "stride")
    with (
        StreamDataset(storage, length, stride).sync_reader() as spans,
        StreamDataset(plain, length, stride).sync_reader() as windows,
        DocumentDataset(tokens).sync_reader() as all_tokens,
        DocumentDataset(payloads).sync_reader() as all_payloads,
    ):
        assert len(spans) == len(windows)
        batch = spans.gather(np.arange(len(spans)))
        assert np.array_equal(batch.stream, windows.gather(np.arange(len(spans))) - 1)
        assert len(all_tokens) == len(all_payloads) == len(model.spans)
        for k in range(len(spans)):
            assert np.array_equal(spans[k].stream, windows[k][0])
            for p in range(batch.offsets[k], batch.offsets[k + 1]):
                span = int(batch.spans[p])
                document = all_tokens[span]
                start, count = int(batch.starts[p]), int(batch.lengths[p])
                begin = stride * k + start - model.spans[span][0]
                assert np.array_equal(
                    batch.stream[k, start : start + count], document[begin : begin + count]
                )
                payload = batch.payloads.arrays()[batch.payload_index[p]]
                assert bytes(payload) == all_payloads[span]


@pytest.mark.parametrize(
    ("start", "length"), [(0, 37), (36, 1), (35, 2), (37, 0), (-1, 1), (2**62, 1), (-(2**63), 1)]
)
def test_windows_outside_the_stream(start: int, length: int, tmp_path: Path) -> None:
    storage, _ = spans_dataset(tmp_path / "x", SOME)
    with storage.sync_reader() as reader:
        with pytest.raises((IndexError, ValueError), match=r"outside \[0, |more than 2\*\*62"):
            reader.read(start, length)
        with pytest.raises((IndexError, ValueError), match=r"outside \[0, |more than 2\*\*62"):
            reader.read_many([0, start], length)
        with pytest.raises(TypeError, match="expected an integer"):
            reader.read(1.0, 1)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="starts has dtype float64; expected integers"):
            reader.read_many([0.5], 1)
        assert reader.read_many([], 3) == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("form", [None, Runs(TOKENS)], ids=["built in", "custom"])
def test_what_was_read_stays_valid(form: Any, backend: str, tmp_path: Path) -> None:
    storage, model = spans_dataset(tmp_path / "x", SOME, form=form)
    storage.read_interface = BACKENDS[backend](tmp_path / "x")
    reader = storage.sync_reader().open()
    windows = [reader.read(0, 20), reader.read(0, 20), *reader.read_many([0, 3], 20)]
    reader.close()
    for path in (tmp_path / "x" / "data").rglob("*.*"):
        path.write_bytes(b"")
    windows[0][0][:] = 0
    windows[2][0][:] = 0
    if form is None:
        check_window(windows[1], model, 0, 20)
        check_window(windows[3], model, 3, 20)
    for start, window in ((0, windows[1]), (3, windows[3])):
        assert np.array_equal(window[0], model.elements[start : start + 20])


@pytest.mark.parametrize("io", [PosixPreadIO(max_open_files=1), None], ids=["1 file", "many"])
def test_threads_share_a_reader(io: Any, tmp_path: Path) -> None:
    """Each reads windows of its own; what searches leave behind is shared by all of them."""
    rng = np.random.default_rng(3)
    cut: Cut = {
        shard: [[[(int(count), b"%d" % count) for count in rng.integers(0, 40, 300)]]]
        for shard in range(4)
    }
    storage, model = spans_dataset(tmp_path / "x", cut, io=io)
    total = len(model.elements)
    dataset = StreamDataset(storage, 64, 16)

    def work(seed: int) -> None:
        starts = np.random.default_rng(seed).integers(0, total - 64, 25)
        for start, window in zip(starts, reader.read_many(starts, 64), strict=True):
            check_window(window, model, int(start), 64)
        ids = np.random.default_rng(seed).integers(0, len(samples), 25)
        check_batch(samples.gather(ids), model, (16 * ids).tolist(), 64)

    with (
        storage.sync_reader() as reader,
        dataset.sync_reader() as samples,
        ThreadPoolExecutor(8) as pool,
    ):
        list(pool.map(work, range(16)))


def test_the_model_can_fail() -> None:
    """It sees a span that is one element off, and a payload in another's place."""
    model = Model(np.arange(6, dtype=TOKENS), [(0, 3, b"a", 0), (3, 6, b"b", 1)])
    other = Model(np.arange(6, dtype=TOKENS), [(0, 2, b"a", 0), (2, 6, b"b", 1)])
    assert model.window(0, 6) != other.window(0, 6)
    assert [piece.payload for piece in model.window(2, 2)] == [b"a", b"b"]

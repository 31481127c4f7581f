"""`locate` against what loaders deliver, and against `delivery`, its inverse."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from guideloom import (
    Delivery,
    DocumentDataset,
    EpochPlan,
    StatefulDataLoader,
    StreamDataset,
)
from guideloom_read import DocumentReader, StreamDatasetReader, StreamWithMetaReader
from guideloom_torch._provenance import LocatedSample, locate
from read.document_cases import CountingIO, dataset
from read.place_cases import bytes_at, huge_stream
from read.span_cases import spans_dataset
from read.stream_cases import PACKED, PLAIN, Cuts, numpy_stream

from .kind_cases import KINDS, Samples
from .loader_cases import make_loader, write_stream

CUTS: Cuts = {0: [3, 1, 4], 2: [1], 3: [5, 9], 70: [2, 6, 5]}
Reader = StreamDatasetReader | DocumentReader


def reader_of(loader: StatefulDataLoader) -> Reader:
    """An open reader of its own, of the loader's samples."""
    reader: Reader = loader.dataset.sync_reader().open()
    return reader


def stored(reader: Reader, sample: int) -> bytes:
    """The bytes of a sample, as the reader reads them."""
    if isinstance(reader, DocumentReader):
        return np.ascontiguousarray(reader.gather([sample]).values).tobytes()
    dataset = reader.dataset
    return reader.stream.elements([sample], dataset.sequence_length, dataset.stride).tobytes()


def jobs() -> Iterator[dict[str, Any]]:
    """Ranks, batch, and whether the last batch is dropped."""
    for world_size, batch, drop_last in [(1, 4, True), (2, 3, False), (3, 2, True), (4, 2, False)]:
        yield {"world_size": world_size, "local_batch_size": batch, "drop_last": drop_last}


def check_located(found: LocatedSample | None, sample: int, reader: Reader, place: Path) -> None:
    """One row: the sample, its bytes in the files, and its spans."""
    assert found is not None
    assert found.sample == sample
    assert bytes_at(place, found.pieces) == stored(reader, sample)
    if not (isinstance(reader, StreamDatasetReader)):
        assert found.spans is None
        assert len(found.pieces) == 1
        return
    dataset = reader.dataset
    length = dataset.sequence_length
    assert sum(piece.stop - piece.start for piece in found.pieces) == length
    if isinstance(reader.stream, StreamWithMetaReader):
        batch = reader.gather([sample])
        payloads = [payload.tobytes() for payload in batch.payloads.arrays()]
        ends = batch.starts + batch.lengths
        expected = zip(batch.spans.tolist(), batch.starts.tolist(), ends.tolist(), strict=True)
        assert found.spans is not None
        assert [span[:3] for span in found.spans] == list(expected)
        index = batch.payload_index.tolist()
        assert [span.payload for span in found.spans] == [payloads[k] for k in index]
        assert all(type(number) is int for span in found.spans for number in span[:3])
    else:
        assert found.spans is None


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("name", KINDS)
def test_what_locate_says_is_what_a_loader_delivers(
    tmp_path: Path, name: str, seed: int | None
) -> None:
    """Every kind, two epochs, every rank, step and row."""
    samples = Samples.written(KINDS[name], tmp_path / "d", 23)
    for job in jobs():
        check_job(samples, seed, job)


def check_job(samples: Samples, seed: int | None, job: dict[str, Any]) -> None:
    world_size, batch = job["world_size"], job["local_batch_size"]
    loaders = [samples.loader(seed=seed, rank=rank, **job) for rank in range(world_size)]
    reader = reader_of(loaders[0])
    payloads = isinstance(reader, StreamDatasetReader)
    with reader:
        for epoch in range(2):
            plan = EpochPlan(len(reader), epoch=epoch, shuffle=seed is not None, seed=seed or 0,
                             **job)  # fmt: skip
            steps = 0
            for step, batches in enumerate(zip(*loaders, strict=True)):
                steps += 1
                located = locate(plan, reader, step, payloads=payloads)
                delivered = [samples.ids_of(batch) for batch in batches]
                assert len(located) == sum(map(len, delivered))
                for rank, ids in enumerate(delivered):
                    assert located.samples[rank].tolist() == ids + [-1] * (batch - len(ids))
                    assert located.rank(rank).samples.tolist() == ids
                    for row in range(batch):
                        if row < len(ids):
                            check_located(located[rank, row], ids[row], reader, samples.directory)
                        else:
                            assert located[rank, row] is None
            assert steps == len(plan)
    for loader in loaders:
        loader.close()


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(("length", "stride"), [(5, 2), (7, 7), (1, 1), (3, 8), (20, 1)])
def test_windows_over_many_parts(
    tmp_path: Path, length: int, stride: int, seed: int | None
) -> None:
    """The bytes in the files, field by field, are the rows of the batches."""
    storage, _ = numpy_stream(tmp_path / "d", PACKED, CUTS)
    options: dict[str, Any] = {"world_size": 2, "local_batch_size": 2, "drop_last": False}
    for rank in range(2):
        loader = StatefulDataLoader.from_storage(
            storage, sequence_length=length, stride=stride, shuffle=seed is not None,
            shuffle_seed=seed, rank=rank, **options,
        )  # fmt: skip
        with loader, reader_of(loader) as reader:
            for epoch in range(2):
                plan = EpochPlan(len(reader), epoch=epoch, shuffle=seed is not None,
                                 seed=seed or 0, **options)  # fmt: skip
                for step, batch in enumerate(loader):
                    located = locate(plan, reader, step)
                    for row in range(len(batch["token"])):
                        found = located[rank, row]
                        assert found is not None
                        window = np.frombuffer(
                            bytes_at(tmp_path / "d", found.pieces), storage.element_type
                        )
                        for name in ("token", "mask"):
                            value: torch.Tensor = batch[name][row]
                            assert value.numpy().tobytes() == window[name].tobytes()


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_locate_and_delivery_are_inverse(tmp_path: Path, shuffle: bool, drop_last: bool) -> None:
    """All lengths to 24, world sizes and batches to 4, and starts: there and back."""
    storage, _ = numpy_stream(tmp_path / "d", PLAIN, {0: [20], 1: [5]})
    for n in range(25):
        with StreamDataset(storage, 26 - n, 1).sync_reader() as reader:
            assert len(reader) == n
            for world_size, batch in itertools.product(range(1, 5), range(1, 5)):
                for start in {0, n // 3}:
                    plan = EpochPlan(
                        n, epoch=6, shuffle=shuffle, world_size=world_size, start=start,
                        local_batch_size=batch, drop_last=drop_last,
                    )  # fmt: skip
                    check_inverse(plan, reader)


def check_inverse(plan: EpochPlan, reader: Reader) -> None:
    when: dict[int, Delivery] = {}
    for step in range(len(plan)):
        located = locate(plan, reader, step)
        rows = itertools.product(range(plan.world_size), range(plan.local_batch_size))
        for rank, row in rows:
            sample = int(located.samples[rank, row])
            if sample >= 0:
                when[sample] = Delivery(plan.epoch, step, rank, row)
        rank, row = plan.world_size - 1, plan.local_batch_size - 1
        for at in ((0, 0), (rank, 0), (0, row), (rank, row)):
            found = located[at]
            assert (-1 if found is None else found.sample) == located.samples[at]
            if found is not None:
                assert plan.delivery(found.sample) == (plan.epoch, step, *at)
    for sample in range(plan.length):
        assert plan.delivery(sample) == when.get(sample)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("samples", [1, 7, 12])
def test_a_loader_moves_as_after_says(tmp_path: Path, samples: int, drop_last: bool) -> None:
    """Over three epochs, from every state of a loader with another batch size."""
    directory = write_stream(tmp_path / "d", samples)
    with make_loader(directory, local_batch_size=1, world_size=1, rank=0) as narrow:
        states = [narrow.state_dict()]
        states.extend(narrow.state_dict() for _ in narrow)
    for state, batch in itertools.product(states, (1, 2, 3, 5)):
        loader = make_loader(
            directory, local_batch_size=batch, world_size=2, rank=1, drop_last=drop_last
        )
        with loader:
            loader.load_state_dict(state)
            plan = EpochPlan(
                samples, epoch=loader.epoch, start=loader.position, local_batch_size=batch,
                world_size=2, drop_last=drop_last,
            )  # fmt: skip
            steps = 0
            assert plan.after(0) == (loader.epoch, loader.position)
            for _ in range(3 if samples >= 2 * batch or not drop_last else 0):
                for _ in loader:
                    steps += 1
                    assert plan.after(steps) == (loader.epoch, loader.position)


# How it is printed.


def test_the_table_of_a_step(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "d", PACKED, CUTS)
    with StreamDataset(storage, 5).sync_reader() as reader:
        plan = EpochPlan(len(reader), epoch=3, world_size=2, local_batch_size=2, drop_last=False)
        located = locate(plan, reader, 0)
        last = locate(plan, reader, 1)
        stems = [path.stem for path in sorted((tmp_path / "d").glob("data/*/*.elements"))]
        files = [f"data/0000/{stem}.elements" for stem in stems]
    text = f"""\
epoch 3, step 0: 4 samples, 2 ranks of 2 rows
rank  row  sample  shard  from  to  file{" " * (len(files[0]) - 4)}  bytes
   0    0       0      0     0   3  {files[0]}   0-15
                       0     3   4  {files[1]}    0-5
                       0     4   5  {files[2]}    0-5
   0    1       2      3     1   5  {files[4]}   5-25
                       3     5   6  {files[5]}    0-5
   1    0       1      0     5   8  {files[2]}   5-20
                       2     0   1  {files[3]}    0-5
                       3     0   1  {files[4]}    0-5
   1    1       3      3     6  11  {files[5]}   5-30"""
    assert repr(located) == text  # though the reader is closed
    assert str(located) == text
    assert (
        str(located[1, 0])
        == f"""\
rank 1, row 0: sample 1
  shard 0, 5 to 8: {files[2]}, bytes 5 to 20
  shard 2, 0 to 1: {files[3]}, bytes 0 to 5
  shard 3, 0 to 1: {files[4]}, bytes 0 to 5"""
    )
    assert repr(last).splitlines()[0] == "epoch 3, step 1: 3 samples, 2 ranks of 2 rows"
    assert [line.split()[:3] for line in repr(last).splitlines()[2:] if line[:4].strip()] == [
        ["0", "0", "4"],
        ["0", "1", "6"],
        ["1", "0", "5"],
    ]


def test_long_tables_are_cut(tmp_path: Path) -> None:
    storage, _ = numpy_stream(tmp_path / "d", PLAIN, {k: [1] for k in range(40)})
    with StreamDataset(storage, 5, 1).sync_reader() as reader:
        plan = EpochPlan(len(reader), world_size=6, local_batch_size=5)
        lines = repr(locate(plan, reader, 0)).splitlines()
    assert len(lines) == 2 + 8 * 4 + 1
    assert lines[5].split() == ["…", "2", "more"]
    assert lines[-1] == "… 22 more"


def test_the_table_of_documents_reads_nothing(tmp_path: Path) -> None:
    io = CountingIO()
    storage, _ = dataset(tmp_path / "d", io=io)
    with DocumentDataset(storage).sync_reader() as reader:
        plan = EpochPlan(len(reader), world_size=2, local_batch_size=3)
        located = locate(plan, reader, 1)
        lines = repr(located).splitlines()
        assert located.samples.shape == (2, 3)
        assert io.take() == []
        found = located[0, 0]
        assert found is not None
        assert found.pieces[0].byte_start >= 0
        assert len(io.take()) == 1
    assert lines[1].split() == ["rank", "row", "sample", "shard", "from", "to", "file", "bytes"]
    assert all(line.endswith(".documents") for line in lines[2:])
    with pytest.raises(ValueError, match=r"^the reader is not open; "):
        located[0, 0]
    assert repr(located).splitlines() == lines


def test_the_text_of_spans(tmp_path: Path) -> None:
    cut = {0: [[[(3, b"a"), (2, b"bc" * 60)]]]}
    storage, _ = spans_dataset(tmp_path / "d", cut)
    with StreamDataset(storage, 4).sync_reader() as reader:
        plan = EpochPlan(len(reader))
        found = locate(plan, reader, 0, payloads=True)[0, 0]
        without = locate(plan, reader, 0)[0, 0]
    assert found is not None
    assert without is not None
    assert without.spans is None
    assert found.pieces == without.pieces
    lines = str(found).splitlines()
    assert lines[2] == "  elements 0 to 3: span 0, b'a'"
    assert lines[3].startswith("  elements 3 to 4: span 1, b'bcbc")
    assert lines[3].endswith("...")


# Scale.


@pytest.mark.parametrize("shuffle", [False, True])
def test_instant_at_any_scale(tmp_path: Path, shuffle: bool) -> None:
    """10,000 ranks of 1,024 rows, epoch 1,000,000, 2**40 samples in 100,000 parts."""
    count = 2**40
    storage = huge_stream(tmp_path / "d", 2**17, count * 8)
    with StreamDataset(storage, 8).sync_reader() as reader:
        times = []
        for step in (0, 50_000, count // 10_240_000 - 1, 7, 99_999):
            begun = time.perf_counter()
            plan = EpochPlan(
                len(reader), epoch=10**6, shuffle=shuffle, world_size=10_000,
                local_batch_size=1024, seed=2**70,
            )  # fmt: skip
            located = locate(plan, reader, step)
            found = located[9_999, 1023]
            text = repr(located)
            assert found is not None
            delivered = plan.delivery(found.sample)
            times.append(time.perf_counter() - begun)
            assert delivered == (10**6, step, 9_999, 1023)
            assert text.endswith("… 10239992 more")
            begin = found.sample * 8
            in_part = count * 8 // 2**17
            assert [tuple(piece) for piece in found.pieces] == [
                (
                    begin // in_part // 10,
                    begin % (10 * in_part),
                    begin % (10 * in_part) + 8,
                    f"data/{begin // in_part // 10}-{begin // in_part % 10}.elements",
                    begin % in_part * 4,
                    begin % in_part * 4 + 32,
                )
            ]
    assert min(times) < 0.05, times


# What is not there.


def test_files_need_not_be_there(tmp_path: Path) -> None:
    """Which sample was it, that was lost with the files?"""
    storage, _ = numpy_stream(tmp_path / "d", PLAIN, CUTS)
    with StreamDataset(storage, 2).sync_reader() as reader:
        located = locate(EpochPlan(18, world_size=2, local_batch_size=3), reader, 2)
        shutil.rmtree(tmp_path / "d")
        found = located[1, 2]
    assert found is not None
    assert found.sample == 17


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("name", ["documents", "longest", "spans"])
def test_rows_that_a_mask_fills_up_have_no_sample(
    tmp_path: Path, name: str, seed: int | None
) -> None:
    """What is repeated there is delivered, and counted, somewhere else."""
    samples = Samples.written(KINDS[name], tmp_path / "d", 11)
    for world_size, batch in [(1, 4), (3, 2), (4, 7)]:
        job: dict[str, Any] = {
            "world_size": world_size, "local_batch_size": batch, "drop_last": False
        }  # fmt: skip
        for rank in range(world_size):
            with samples.loader(seed=seed, rank=rank, pad="mask", **job) as loader:
                reader = reader_of(loader)
                with reader:
                    plan = EpochPlan(11, shuffle=seed is not None, seed=seed or 0, **job)
                    for step, (rows, valid) in enumerate(loader):
                        located = locate(plan, reader, step).samples[rank]
                        ids = samples.ids_of(rows)
                        assert located.tolist() == np.where(valid.numpy(), ids, -1).tolist()

"""Spans in files of many GiB, in sparse files; and what spans cost on disk and in memory."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guideloom import StreamDataset
from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom.types import IOReader
from guideloom_format import (
    CommitRecord,
    DamagedFileError,
    DocumentBytesFormat,
    DocumentJSONFormat,
    FileFacts,
    Header,
    Owner,
    Part,
    StreamSpansFormat,
    StreamWithMetaStorage,
    crc32c,
)
from guideloom_format._built_in import describe
from guideloom_read import verify
from read.span_processes import PAYLOAD_BYTES, SPAN_LENGTH, read_many, write_many

BACKENDS = [PosixPreadIO(), MmapIO(), SeekIO()]


def craft(
    directory: Path,
    dtype: str,
    parts: Sequence[tuple[int, int, int, Mapping[str, Sequence[tuple[int, bytes]]]]],
) -> StreamWithMetaStorage:
    """Parts (elements, spans, payload bytes, content), one a shard: sparse files of zeros.

    The content says for a role what stands at which byte. The checksums are those of nothing.
    """
    storage = StreamWithMetaStorage(directory, StreamSpansFormat(dtype, DocumentBytesFormat()))
    (directory / "commits").mkdir(parents=True)
    (directory / "data").mkdir()
    header = Header("stream-with-meta", storage.element_type, describe(storage.storage_format))
    (directory / "guideloom.json").write_bytes(header.encode())
    for shard, (length, spans, payloads, content) in enumerate(parts):
        sizes = {
            "elements": length * storage.element_type.itemsize,
            "spans": 16 * spans,
            "payloads": payloads,
        }
        sizes |= {f"{role}.crc": 4 * -(-size // 65536) for role, size in sizes.items()}
        for role, size in sizes.items():
            with open(directory / f"data/{shard}.{role}", "wb") as file:
                file.truncate(size)
                for offset, data in content.get(role, ()):
                    file.seek(offset)
                    file.write(data)
        facts = {role: FileFacts(size, crc32c(b"")) for role, size in sizes.items()}
        part = Part(shard, 0, "0123456789abcdef", length, str(shard), facts)
        record = CommitRecord(header.dataset_id, part, Owner("host", 1, "2024-01-01T00:00:00Z"))
        (directory / f"commits/{shard:07d}-0000.json").write_bytes(record.encode())
    return storage


def rows(*ends: tuple[int, int]) -> bytes:
    return np.array(ends, dtype="<u8").tobytes()


@pytest.mark.parametrize("io", BACKENDS, ids=lambda io: type(io).__name__)
def test_elements_and_payloads_beyond_32_bits(io: IOReader, tmp_path: Path) -> None:
    """Spans that end beyond 2**31 and 2**32 elements, payloads that begin beyond 2**32 bytes."""
    lengths = [2**31 - 1, 1, 5, 2**31, 2**32 + 3, 7, 0, 4]
    ends = np.cumsum(lengths).tolist()
    sizes = [3, 2**31 + 1, 4, 2**32 - 5, 6, 2**33, 8, 5]
    payload_ends = np.cumsum(sizes).tolist()
    part = {
        "spans": [(0, rows(*zip(ends, payload_ends, strict=True)))],
        "payloads": [
            (0, b"abc"),
            (payload_ends[1], b"efgh"),
            (payload_ends[3], b"ijklmn"),
            (payload_ends[6], b"opqrs"),
        ],
        "elements": [(ends[4] - 1, b"\7"), (ends[4], b"\x08"), (ends[7] - 1, b"\x09")],
    }
    small = {"spans": [(0, rows((3, 2)))], "payloads": [(0, b"zz")], "elements": [(0, b"\1\2\3")]}
    storage = craft(
        tmp_path / "x",
        "u1",
        [(3, 1, 2, small), (ends[-1], 8, payload_ends[-1], part), (3, 1, 2, small)],
    )
    storage.read_interface = io
    places = [end + step for end in [0, *ends] for step in (-2, -1, 0, 1)]
    places = [place for place in places if 0 <= place <= ends[-1] - 3]
    expected = np.searchsorted(ends, np.add.outer(places, np.arange(3)), side="right") + 1
    with storage.sync_reader() as reader, StreamDataset(storage, 3, 1).sync_reader() as samples:
        assert (len(reader), reader.span_count) == (ends[-1] + 6, 10)
        batch = samples.gather(np.array(places) + 3, payloads=False)
        assert np.array_equal(batch.document_ids(), expected)
        tokens = samples.gather([ends[4] - 2 + 3, ends[4] + 2], payloads=False).stream.tolist()
        assert tokens == [[0, 7, 8], [7, 8, 0]]
        assert reader.read(ends[1] + 3, 5).payloads == [b"efgh"]
        assert reader.read(ends[3] + 3, 10).payloads == [b"ijklmn"]
        window = reader.read(ends[6] + 3, 5)
        assert window.payloads == [b"opqrs", b"zz"]
        assert window.stream.tolist() == [0, 0, 0, 9, 1]
        assert window.span_index.tolist() == [0, 0, 0, 0, 1]
        assert window.shards == [1, 2]
        batch = samples.gather([ends[1] + 4, ends[6] + 5, ends[3] + 3, 0])
        found = [bytes(payload) for payload in batch.payloads.arrays()]
        assert found == [b"efgh", b"opqrs", b"zz", b"ijklmn", b"zz"]
        assert batch.spans.tolist() == [3, 8, 9, 5, 0]


@pytest.mark.parametrize("io", BACKENDS, ids=lambda io: type(io).__name__)
def test_more_than_2_to_the_32_spans(io: IOReader, tmp_path: Path) -> None:
    """A file of 64 GiB and more of spans without elements, and a few with some at its end."""
    count = 2**32 + 1000
    last = rows((2, 1), (2, 1), (5, 4), (9, 6))
    content = {
        "spans": [(16 * (count - 4), last)],
        "payloads": [(0, b"abbbcc")],
        "elements": [(0, bytes(range(9)))],
    }
    storage = craft(tmp_path / "x", "u1", [(9, count, 6, content), (9, count, 6, content)])
    storage.read_interface = io
    with storage.sync_reader() as reader, StreamDataset(storage, 4, 1).sync_reader() as samples:
        assert (len(reader), reader.span_count) == (18, 2 * count)
        spans = [*([count - 4] * 2), *([count - 2] * 3), *([count - 1] * 4)]
        expected = np.array([*spans, *(count + span for span in spans)])
        batch = samples.gather(np.arange(15))
        windows = np.lib.stride_tricks.sliding_window_view(expected, 4)
        assert np.array_equal(batch.document_ids(), windows)
        assert reader.read(0, 18).payloads == [b"a", b"bbb", b"cc"] * 2
        assert reader.read(1, 3).payloads == [b"a", b"bbb"]


def test_a_sparse_file_of_zeros_is_named_damaged(tmp_path: Path) -> None:
    """Nothing of it grows: the search ends soon, and does not read the file."""
    storage = craft(tmp_path / "x", "u1", [(10**9, 10**9, 10, {})])
    with storage.sync_reader() as reader:
        for start in (0, 5 * 10**8, 10**9 - 100):
            with pytest.raises(
                DamagedFileError, match=r"data/0\.spans, bytes \d+ to \d+: the ends"
            ):
                reader.read(start, 100)


def folder_bytes(directory: Path, keep: Callable[[str], bool]) -> int:
    return sum(
        path.stat().st_size for path in directory.rglob("*") if path.is_file() and keep(path.name)
    )


def test_bytes_for_each_token(tmp_path: Path) -> None:
    """Documents of 1,000 tokens: all that is neither tokens nor payloads is 0.1 bytes a token."""
    storage = StreamWithMetaStorage(tmp_path / "x", StreamSpansFormat("<u2", DocumentJSONFormat()))
    tokens = np.arange(100_000) % 50_000
    with storage.sync_writer() as writer:
        for shard in range(4):
            for k in range(10):
                payloads = [{"id": 100 * k + n} for n in range(100)]
                writer.append(shard, (tokens, [1000] * 100, payloads))
    with storage.sync_reader() as reader:
        total = len(reader)
        assert reader.span_count == total // 1000 == 4000
    extra = folder_bytes(tmp_path / "x", lambda name: not name.endswith((".elements", ".payloads")))
    spans = folder_bytes(tmp_path / "x", lambda name: name.endswith((".spans", ".spans.crc")))
    print(f"{extra / total:.4f} bytes a token, {spans / total:.4f} of them for spans")
    assert spans / total <= 0.0161
    assert extra / total <= 0.1
    assert verify(tmp_path / "x").clean


@pytest.fixture(scope="module")
def pool() -> Any:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def test_memory_stays_flat_over_a_million_spans(pool: ProcessPoolExecutor, tmp_path: Path) -> None:
    """Written, checked and read: what is held does not grow with what was done."""
    spans = 1_000_000
    warm, end = pool.submit(write_many, tmp_path / "x", spans).result(120)
    assert end - warm < 4 * 2**20, f"{(end - warm) / 2**20:.1f} MiB more while writing"
    payloads = folder_bytes(tmp_path / "x", lambda name: name.endswith(".payloads"))
    assert payloads == PAYLOAD_BYTES * spans
    report = verify(tmp_path / "x")
    assert report.clean
    assert report.nbytes == spans * (2 * SPAN_LENGTH + 16 + PAYLOAD_BYTES)
    warm, end, seen = pool.submit(read_many, tmp_path / "x", 400, 256).result(120)
    assert seen > 1_000_000
    assert end - warm < 4 * 2**20, f"{(end - warm) / 2**20:.1f} MiB more while reading"

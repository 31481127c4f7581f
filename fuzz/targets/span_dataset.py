"""Spans whose ends are hostile, in a dataset of which all else is right."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial

import numpy as np

import guideloom
from guideloom_format import DamagedFileError, StreamWithMetaStorage
from guideloom_read import StreamDataset, verify
from targets.base import Target, attempt
from targets.header import header_of
from targets.memory_io import DIRECTORY, MemoryIO, part_files
from targets.taking import Taking, mutate_plain

BYTES = {"name": "stream-spans", "parameters": {"payload_format": {"name": "document-bytes"}}}


@dataclass(frozen=True)
class Part:
    """What the files of a part hold."""

    length: int
    ends: list[tuple[int, int]]
    payloads: bytes

    @property
    def right(self) -> bool:
        """Whether all ends are as the format's page wants them."""
        return all(
            0 <= a <= c and 0 <= b <= d
            for (a, b), (c, d) in itertools.pairwise([(0, 0), *self.ends])
        ) and [(0, 0), *self.ends][-1] == (self.length, len(self.payloads))

    def spans(self) -> list[tuple[int, bytes]]:
        """Elements and payload of each span, if the ends are right."""
        return [
            (c - a, self.payloads[b:d])
            for (a, b), (c, d) in itertools.pairwise([(0, 0), *self.ends])
        ]


def feed(data: bytes) -> None:
    taking = Taking(data)
    parts = [take_part(taking) for _ in range(1 + taking.below(3))]
    files = {"guideloom.json": header_of("stream-with-meta", "<u2", BYTES)}
    first = 0
    for k, part in enumerate(parts):
        elements = np.arange(first, first + part.length, dtype="<u2").tobytes()
        first += part.length
        spans = np.array(part.ends, dtype="<i8").tobytes()
        contents = {"elements": elements, "spans": spans, "payloads": part.payloads}
        files |= part_files(k, 0, part.length, contents)
    io = MemoryIO(files)
    report = verify(DIRECTORY, io)
    assert report.clean == all(part.right for part in parts), report
    assert all(fault.file.endswith(".spans") and fault.stop for fault in report.faults)
    storage = guideloom.open(DIRECTORY, read_interface=io)
    assert isinstance(storage, StreamWithMetaStorage)
    with storage.sync_reader() as reader:
        assert len(reader) == first
        known = [(run, payload) for part in parts for run, payload in part.spans()]
        for _ in range(3):
            start = taking.below(first + 1)
            length = taking.below(first - start + 1)
            sample = attempt(partial(reader.read, start, length), DamagedFileError, names=".spans")
            if report.clean:
                assert sample is not None
                check_sample(sample, start, length, known)
    length = 1 + taking.below(9)
    with StreamDataset(storage, length).sync_reader() as samples:
        ids = np.arange(len(samples))
        batch = attempt(lambda: samples.gather(ids), DamagedFileError, names=".spans")
        assert batch is not None or not report.clean


def check_sample(
    sample: guideloom.SpanWindow, start: int, length: int, known: list[tuple[int, bytes]]
) -> None:
    """The window and the payloads of the spans that it touches, each once."""
    assert sample.stream.tolist() == list(range(start, start + length))
    numbers = [k for k, (run, _) in enumerate(known) for _ in range(run)][start : start + length]
    assert sample.payloads == [known[k][1] for k, _ in itertools.groupby(numbers)]
    runs = [len(list(run)) for _, run in itertools.groupby(numbers)]
    assert sample.span_index.tolist() == np.repeat(np.arange(len(runs)), runs).tolist()


def take_part(taking: Taking) -> Part:
    ends, at, payload = list[tuple[int, int]](), 0, 0
    kind = taking.below(4)
    for _ in range(taking.below(8)):
        if kind:
            at, payload = at + taking.below(6), payload + taking.below(4)
            ends.append((at, payload))
        else:
            ends.append((taking.number(20), taking.number(20)))
    length = taking.below(40) if kind <= 1 else at
    size = taking.below(20) if kind <= 1 else payload
    if not ends:
        return Part(0, [], b"")
    return Part(length, ends, taking.take(size))


def seeds() -> list[bytes]:
    return [
        bytes([1, 2, 4, 3, 2, 0, 1, 5, 0, 2, 3])
        + b"payloads"
        + bytes([3, 2, 1, 1, 4, 0])
        + b"abcd"
        + bytes([0, 9, 3, 2, 7, 7, 3]),
        bytes([0, 0, 3, 2, 1, 5, 1, 9, 4, 9, 4]) + b"pays" + bytes([1, 4, 3, 3, 2]),
        bytes([0, 0, 2, 250, *[255] * 8, 230, 9, 4, 12, 5]) + b"x" * 20,
        bytes(12),
    ]


TARGET = Target("span_dataset", feed, mutate_plain, seeds)

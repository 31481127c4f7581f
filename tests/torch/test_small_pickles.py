"""What a worker is sent is a description: small, however much was read before, and it works."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from multiprocess.reduction import ForkingPickler

from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom.types import IOReader
from guideloom_torch._processes import WorkerPool

from .process_cases import COLLATES, KINDS, LENGTH, TOKENS, load, plain, storage_of

MOST = 10_000  # bytes
SHARDS, COMMITS = 50, 20
BACKENDS: dict[str, Callable[[], IOReader | None]] = {
    "default": lambda: None,
    "pread": PosixPreadIO,
    "mmap": MmapIO,
    "seek": SeekIO,
}


@pytest.fixture(scope="module", params=KINDS)
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(Kind, directory) of a thousand parts; each has one sample."""
    kind = request.param
    directory = tmp_path_factory.mktemp("pickles") / kind
    for commit in range(COMMITS):
        with storage_of(kind, directory).sync_writer() as writer:
            for shard in range(SHARDS):
                number = SHARDS * commit + shard
                if kind == "documents":
                    writer.append(shard, np.full(number % 5, number, dtype="<i4"))
                    continue
                tokens = np.full(LENGTH, number, dtype=TOKENS)
                data = {"tokens": tokens} if kind == "stream" else (tokens, [LENGTH], [b"payload"])
                writer.append(shard, data)
    return kind, directory


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("collate", COLLATES)
def test_what_a_worker_is_sent(
    dataset: tuple[str, Path], backend: str, collate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After all was read by threads, and while an iterator is there."""
    kind, directory = dataset
    form, io = COLLATES[collate], BACKENDS[backend]()
    options = {"local_batch_size": 7, "num_workers": 2, "prefetch": 3}
    with load(kind, directory, form, backend=io, **options) as loader:
        wanted = [plain(batch) for batch in loader]
        assert len(wanted) == SHARDS * COMMITS // 7
        plan = loader._plan(0, 0)
    monkeypatch.setattr(WorkerPool, "_start", lambda *_: None)
    with load(kind, directory, form, backend=io, **options, parallel_method="process") as loader:
        loader._pinned.reader()[np.arange(SHARDS * COMMITS)]
        iter(loader)
        assert loader._workers._pool is not None
        sent = loader._workers._pool._sent
    assert isinstance(sent, bytes)
    assert len(sent) < MOST
    again = ForkingPickler.loads(sent)
    loads = again.load_of(again.dataset.reader())
    for step in (0, len(wanted) - 1):
        assert plain(loads(plan.sample_ids(step))) == wanted[step]
    again.dataset.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_readers_that_were_used(dataset: tuple[str, Path], backend: str) -> None:
    """Storage, dataset and both readers, opened and read from all over; also of a consolidation."""
    kind, directory = dataset
    loader = load(kind, directory, backend=BACKENDS[backend]())
    samples: Any = loader.dataset
    storage = samples.storage
    first_sample = (0,) if kind == "documents" else (0, LENGTH)
    with samples.sync_reader() as reader, storage.sync_reader() as stored:
        ids = np.arange(len(reader))
        wanted = [plain(one) for one in reader[ids[::100]]]
        first = plain(stored.read(*first_sample))
        sent = {
            "storage": pickle.dumps(storage),
            "dataset": pickle.dumps(samples),
            "reader": pickle.dumps(reader),
            "reader of the storage": pickle.dumps(stored),
        }
    assert {name: len(data) for name, data in sent.items() if len(data) >= MOST} == {}
    with pickle.loads(sent["reader"]) as again:
        assert [plain(one) for one in again[ids[::100]]] == wanted
    with pickle.loads(sent["dataset"]).sync_reader() as again:
        assert [plain(one) for one in again[ids[::100]]] == wanted
    with pickle.loads(sent["reader of the storage"]) as again:
        assert plain(again.read(*first_sample)) == first

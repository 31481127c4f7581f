"""The worker processes of one loader: started when they are needed, anew when they must be."""

from __future__ import annotations

from guideloom_torch._collate import LoadOf
from guideloom_torch._options import Loading
from guideloom_torch._pinned import PinnedDataset
from guideloom_torch._processes import WorkerPool
from guideloom_torch._reads import NO_READS, Reads
from guideloom_torch._worker import Job


class Workers:
    """Processes that stay as long as they are whole and read the right version.

    Args:
        loading: how many, and how they begin.
        load_of: how samples become a batch.
        pad: whether steps are filled up.
    """

    def __init__(self, loading: Loading, load_of: LoadOf, pad: bool) -> None:
        self._loading = loading
        self._load_of = load_of
        self._pad = pad
        # Any thread may close, and no lock of threads survives a fork: one of them removes it.
        self._pools: list[WorkerPool] = []
        self._version: int | None = None
        self._reads_before = NO_READS  # of processes that have ended

    @property
    def _pool(self) -> WorkerPool | None:
        pools = self._pools.copy()
        return pools[-1] if pools else None

    def pool(self, dataset: PinnedDataset) -> WorkerPool | None:
        """The processes that read this dataset; None if there shall be none."""
        if not self._loading.by_processes:
            return None
        pool = self._pool
        if pool is None or not pool.is_whole or self._version != dataset.version:
            self.close()
            loading = self._loading
            job = Job(
                dataset.elsewhere(), self._load_of, self._pad, loading.lookahead, loading.patience
            )
            pool = WorkerPool(job, loading.num_workers, loading.start_method)
            self._version = dataset.version
            self._pools.append(pool)
        return pool

    def reads(self) -> Reads:
        """What they have read of the dataset for the batches that they have sent."""
        pool = self._pool
        return self._reads_before if pool is None else self._reads_before.plus(pool.reads())

    def close(self) -> None:
        """End them."""
        for pool in self._pools.copy():
            pool.close()
            try:
                self._pools.remove(pool)
            except ValueError:  # another thread was first
                continue
            self._reads_before = self._reads_before.plus(pool.reads())

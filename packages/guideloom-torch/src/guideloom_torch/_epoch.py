"""One pass over the rest of an epoch, as the training loop sees it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from guideloom_format import EpochPlan
from guideloom_read.io import ReadLog
from guideloom_torch._notes import add_note
from guideloom_torch._options import Loading
from guideloom_torch._pipeline import Mapper, PlanSteps, ProcessMapper, Room, ThreadMapper
from guideloom_torch._placement import Placed, Placement
from guideloom_torch._processes import WorkerPool
from guideloom_torch._stats import Meter, nbytes_of
from guideloom_torch._steps import LoadStep, describe
from guideloom_torch._watchdog import Watchdog, stall_warning


@dataclass(slots=True)
class Position:
    """Where a loader stands.

    Attributes:
        at: epoch and position in it; replaced as one, so that any thread reads both.
    """

    at: tuple[int, int] = (0, 0)


class EpochIterator(Iterator[Any]):
    """Delivers the batches of a plan, and moves the loader's position with each.

    Args:
        plan: of the rest of the epoch.
        load: loads a step of it, in this process.
        pool: of processes that do so in its place, or None.
        loading: how.
        placement: where batches go: it begins to copy where batches are loaded, and what is
            delivered is ready for the training loop.
        meter: counts.
        position: of the loader.
        reads: of the dataset, in this process.
    """

    def __init__(
        self,
        plan: EpochPlan,
        load: LoadStep,
        pool: WorkerPool | None,
        loading: Loading,
        placement: Placement,
        meter: Meter,
        position: Position,
        reads: ReadLog,
    ) -> None:
        self._plan = plan
        self._left = len(plan)
        self._turn = [True]  # empty while a batch is awaited
        self._done = plan.start
        self._stop = plan.stop
        self._batch = plan.global_batch_size
        place: Callable[[Any], Any] = placement.place
        ready: Callable[[Any], Any] = Placed.ready
        placement.settle()
        if placement.does_nothing:
            place = ready = _same
        self._ready = ready
        self._meter = meter
        self._position = position
        self._reads = reads
        self._pool = pool
        self._invalid = ""
        room = Room(loading.ahead, loading.prefetch_bytes)
        steps = PlanSteps(plan)

        def loaded(step: int) -> Any:
            batch = load(step)
            try:
                return place(batch)
            except BaseException as error:
                add_note(error, f"while placing {describe(plan, step)}")
                raise

        self._mapper: Mapper | None = None
        if pool is not None:
            self._mapper = ProcessMapper(
                steps, plan, pool, place, room=room, timeout=loading.timeout
            )
        elif loading.ahead:
            threads = max(loading.num_workers, 1)
            self._mapper = ThreadMapper(
                steps, loaded, threads=threads, room=room, timeout=loading.timeout
            )
        mapper = self._mapper
        self._batches: Iterator[Any] | None = iter(map(loaded, steps) if mapper is None else mapper)
        warn = stall_warning(_waiting_for(self), f"rank {plan.rank} of {plan.world_size}")
        self._watchdog = Watchdog(loading.stall_after, warn)

    def __next__(self) -> Any:
        if self._invalid:
            raise RuntimeError(self._message())
        batches = self._batches
        if batches is None:
            raise StopIteration
        try:
            self._turn.pop()
        except IndexError:
            raise RuntimeError(
                "another call of next() of this iterator is running, in another thread or in the "
                "one that loads, or was interrupted; let one thread take the batches. iter(loader) "
                "goes on at the loader's position"
            ) from None
        epoch = self._plan.epoch
        if not self._left:
            self._batches = self._mapper = None
            self._position.at = (epoch + 1, 0)  # also after an epoch without a batch
            raise StopIteration
        done = min(self._done + self._batch, self._stop)
        at = (epoch + 1, 0) if done == self._stop else (epoch, done)
        try:
            batch = self._awaited(batches)
        except BaseException:
            self.retire("a batch could not be loaded")  # and is not skipped
            raise
        if self._invalid:  # meanwhile, by another thread or by the load itself
            raise RuntimeError(self._message())
        # No call from here on: nothing can come between the batch and its position.
        self._left -= 1
        self._done = done
        self._position.at = at
        self._turn = [True]
        return batch

    def _awaited(self, batches: Iterator[Any]) -> Any:
        """The next batch, ready for the training loop."""
        asked = self._meter.asked()
        self._watchdog.begin()
        try:
            batch = self._ready(next(batches))
        except StopIteration as error:
            raise RuntimeError("loading a batch raised StopIteration, which ends loops") from error
        finally:
            self._watchdog.end()
        self._meter.delivered(asked, nbytes_of(batch))
        return batch

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "an iterator of a loader cannot be copied or sent; save loader.state_dict() and load "
            "it into another loader"
        )

    def depth(self) -> tuple[int, int]:
        """(ready, in work)."""
        return self._mapper.depth() if self._mapper is not None else (0, 0)

    def retire(self, reason: str) -> None:
        """Stop the workers; further calls of next() raise."""
        self._batches = None
        self._mapper = None
        self._invalid = self._invalid or reason

    def waiting_for(self) -> str:
        """What the next batch is, and who loads it, in words."""
        if self._pool is not None:
            return self._pool.at_work()
        step = self._mapper.first() if self._mapper is not None else None
        done = -(-(self._done - self._plan.start) // self._batch)
        what = f"loading {describe(self._plan, done if step is None else step)}"
        reading = ", ".join(f"{read.thread} reads {read}" for read in self._reads.now())
        return f"{what}; {reading or 'nothing is being read'}"

    def _message(self) -> str:
        return (
            f"this iterator is no longer valid: {self._invalid}. Call iter(loader) again; it goes "
            "on at the loader's position"
        )


def _same(batch: Any) -> Any:
    return batch


def _waiting_for(iterator: EpochIterator) -> Callable[[], str]:
    """Of an iterator that it does not keep."""
    there = weakref.ref(iterator)

    def words() -> str:
        iterator = there()
        return "" if iterator is None else iterator.waiting_for()

    return words

"""The stages between plan and training loop, as torchdata nodes.

::

    PlanSteps (step, sample ids) -> map, in this thread             num_workers = prefetch = 0
                                 -> ThreadMapper, in order          otherwise

No stage keeps the loader's position: that counts what came out at the end. An error of a load
arrives in its turn, as it was raised.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torchdata.nodes import BaseNode

from guideloom_format import EpochPlan
from guideloom_torch._threads import Tasks, start_threads

Load = Callable[[NDArray[np.int64]], Any]
Step = tuple[int, NDArray[np.int64]]


class PlanSteps(BaseNode[Step]):  # type: ignore[misc]
    """The source node: step numbers and this rank's sample ids, from step 0 of a plan."""

    def __init__(self, plan: EpochPlan) -> None:
        super().__init__()
        self._plan = plan
        self._steps = len(plan)
        self._step = 0

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begin at the state's step, or at step 0."""
        super().reset(initial_state)
        self._step = 0 if initial_state is None else initial_state["step"]

    def next(self) -> Step:
        """The next step."""
        step = self._step
        if step >= self._steps:
            raise StopIteration
        self._step = step + 1
        return step, self._plan.sample_ids(step)

    def get_state(self) -> dict[str, Any]:
        """The next step's number."""
        return {"step": self._step}


class ThreadMapper(BaseNode[Any]):  # type: ignore[misc]
    """Maps a source in threads and keeps its order.

    At most `ahead` items are in work or ready. The threads end with the source, or when the node
    is gone.

    Args:
        source: gives the items; only ever asked by the thread that calls `next`.
        function: is called with an item; what it raises comes out of `next` in its turn.
        threads: at least 1.
        ahead: at least 1.
    """

    def __init__(
        self, source: BaseNode[Any], function: Callable[[Any], Any], *, threads: int, ahead: int
    ) -> None:
        super().__init__()
        self._source = source
        self._function = function
        self._ahead = ahead
        self._pending: deque[Future[Any]] = deque()
        self._tasks: Tasks = SimpleQueue()
        self._threads = threads
        self._started = False
        self._process = os.getpid()

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begin where the source begins."""
        super().reset(initial_state)
        self._stop()
        self._tasks = SimpleQueue()
        self._source.reset(initial_state)

    def next(self) -> Any:
        """The next result.

        Raises:
            RuntimeError: in a forked process, which does not have the threads.
        """
        if self._process != os.getpid():
            raise RuntimeError(
                f"this iterator's threads are in process {self._process}, this is process "
                f"{os.getpid()}; call iter(loader) in the process that uses it"
            )
        self._submit()
        if not self._pending:
            self._stop()
            raise StopIteration
        result = self._pending.popleft().result()
        self._submit()
        return result

    def get_state(self) -> dict[str, Any]:
        """The source's, which is ahead of what came out; the loader does not use it."""
        state: dict[str, Any] = self._source.state_dict()
        return state

    def _submit(self) -> None:
        while len(self._pending) < self._ahead:
            try:
                item = next(self._source)
            except StopIteration:
                return
            self._start()
            future: Future[Any] = Future()
            self._pending.append(future)
            self._tasks.put((future, self._function, item))

    def _start(self) -> None:
        if not self._started:
            self._started = True
            start_threads(self._tasks, self._threads)

    def _stop(self) -> None:
        self._drop_pending()
        if self._started:
            self._started = False
            for _ in range(self._threads):
                self._tasks.put(None)

    def _drop_pending(self) -> None:
        for future in self._pending:
            future.cancel()
        self._pending.clear()

    def __del__(self) -> None:
        self._stop()


class LoadStep:
    """Loads one step, and says of an error where it happened."""

    def __init__(self, load: Load, epoch: int, rank: int) -> None:
        self._load = load
        self._epoch = epoch
        self._rank = rank

    def __call__(self, item: Step) -> Any:
        step, ids = item
        try:
            return self._load(ids)
        except StopIteration as error:
            raise RuntimeError("loading a batch raised StopIteration, which ends loops") from error
        except BaseException as error:
            shown = ", ".join(map(str, ids[:8].tolist())) + (", …" if ids.size > 8 else "")
            error.add_note(
                f"while loading samples {shown} (epoch {self._epoch}, rank {self._rank}, step "
                f"{step} since the epoch began or was resumed)"
            )
            raise


def batches(plan: EpochPlan, load: Load, *, num_workers: int, prefetch: int) -> Iterator[Any]:
    """The loaded steps of a plan, in order.

    Args:
        plan: which samples come when.
        load: makes a batch of sample ids; called from `num_workers` threads at once.
        num_workers: threads that load; 0 to load in the thread that iterates, or, with `prefetch`,
            in one thread.
        prefetch: loaded steps held ready, besides one for each worker.
    """
    step = LoadStep(load, plan.epoch, plan.rank)
    source = PlanSteps(plan)
    if num_workers == 0 and prefetch == 0:
        return map(step, source)
    return iter(
        ThreadMapper(source, step, threads=max(num_workers, 1), ahead=num_workers + prefetch)
    )

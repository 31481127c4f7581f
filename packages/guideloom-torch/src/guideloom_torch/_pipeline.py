"""The stages between plan and training loop, as torchdata nodes.

::

    PlanSteps (steps) -> map, in this thread          num_workers = prefetch = 0
                      -> ThreadMapper, in order       threads
                      -> ProcessMapper, in order      processes

No stage keeps the loader's position: that counts what came out at the end. An error of a load
arrives in its turn, as it was raised.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from torchdata.nodes import BaseNode

from guideloom_format import EpochPlan, LoaderTimeoutError
from guideloom_torch._delivery import Finish
from guideloom_torch._placement import Placed, Placement
from guideloom_torch._processes import WorkerPool
from guideloom_torch._promise import Promise
from guideloom_torch._stats import nbytes_of
from guideloom_torch._threads import Tasks, start_threads


class PlanSteps(BaseNode[int]):  # type: ignore[misc]
    """The source node: the steps of a plan, from 0."""

    def __init__(self, plan: EpochPlan) -> None:
        super().__init__()
        self._steps = len(plan)
        self._step = 0

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begin at the state's step, or at step 0."""
        super().reset(initial_state)
        self._step = 0 if initial_state is None else initial_state["step"]

    def next(self) -> int:
        """The next step."""
        step = self._step
        if step >= self._steps:
            raise StopIteration
        self._step = step + 1
        return step

    def get_state(self) -> dict[str, Any]:
        """The next step's number."""
        return {"step": self._step}


class Room:
    """How far loading may be ahead of the training loop.

    Args:
        steps: in work or ready, at most.
        nbytes: of batches that are ready or in work, at most, each taken to be as large as the
            largest so far; None for no limit. One step is always allowed, and only one until the
            size of a batch is known.
    """

    def __init__(self, steps: int, nbytes: int | None) -> None:
        self._steps = steps
        self._nbytes = nbytes
        self._largest: int | None = None

    def allows(self, pending: int) -> bool:
        """Whether one more step may be begun beside those in work or ready."""
        if pending >= self._steps:
            return False
        if self._nbytes is None or not pending:
            return True
        return self._largest is not None and (pending + 1) * self._largest <= self._nbytes

    def loaded(self, batch: Any) -> None:
        """A batch has been loaded."""
        if self._nbytes is not None:
            self._largest = max(self._largest or 0, nbytes_of(batch))


class Mapper(BaseNode[Any]):  # type: ignore[misc]
    """Has the items of a source mapped elsewhere, some ahead, and keeps their order.

    Args:
        source: gives the items; only ever asked by the thread that calls `next`.
        room: how far it may be ahead.
        timeout: seconds to wait for a result; None for ever.
    """

    def __init__(self, source: BaseNode[Any], room: Room, timeout: float | None = None) -> None:
        super().__init__()
        self._source = source
        self._room = room
        self._timeout = timeout
        self._pending: deque[tuple[Any, Promise]] = deque()
        self._process = os.getpid()

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begin where the source begins."""
        super().reset(initial_state)
        self.stop()
        self._source.reset(initial_state)

    def next(self) -> Any:
        """The next result.

        Raises:
            RuntimeError: in a forked process, which does not have the workers.
            LoaderTimeoutError: it did not come in time.
        """
        if self._process != os.getpid():
            raise RuntimeError(
                f"this iterator's workers are of process {self._process}, this is process "
                f"{os.getpid()}; call iter(loader) in the process that uses it"
            )
        self._fill()
        if not self._pending:
            self.stop()
            raise StopIteration
        item, future = self._pending[0]
        try:
            result = future.result(self._timeout)
        except TimeoutError:
            if future.done():
                raise
            raise LoaderTimeoutError(
                f"the batch of step {item} did not come within {self._timeout} s"
            ) from None
        finally:
            self._pending.popleft()
        self._room.loaded(result.batch if isinstance(result, Placed) else result)
        self._fill()
        return result

    def get_state(self) -> dict[str, Any]:
        """The source's, which is ahead of what came out; the loader does not use it."""
        state: dict[str, Any] = self._source.state_dict()
        return state

    def depth(self) -> tuple[int, int]:
        """(ready, in work)."""
        pending = list(self._pending)
        ready = sum(future.done() for _, future in pending)
        return ready, len(pending) - ready

    def first(self) -> Any:
        """The item whose result comes next; None if there is none."""
        pending = list(self._pending)
        return pending[0][0] if pending else None

    def stop(self) -> None:
        """Drop what was not delivered."""
        for _, future in self._pending:
            future.cancel()
        self._pending.clear()

    def begin(self, item: Any) -> Promise:
        """Have the mapping of an item begun; an error of it comes out of `next` in its turn."""
        raise NotImplementedError

    def _fill(self) -> None:
        while self._room.allows(len(self._pending)):
            try:
                item = next(self._source)
            except StopIteration:
                return
            self._pending.append((item, self.begin(item)))


class ThreadMapper(Mapper):
    """Maps by calling a function in threads, which end with the source, or with the node.

    Args:
        source: see `Mapper`.
        function: is called with an item.
        threads: at least 1.
        room: see `Mapper`.
        timeout: see `Mapper`.
    """

    def __init__(
        self,
        source: BaseNode[Any],
        function: Callable[[Any], Any],
        *,
        threads: int,
        room: Room,
        timeout: float | None = None,
    ) -> None:
        self._function = function
        self._threads = threads
        self._tasks: Tasks = SimpleQueue()
        self._started = False
        super().__init__(source, room, timeout)

    def stop(self) -> None:
        """Drop what was not delivered, and end the threads."""
        super().stop()
        if self._started:
            self._started = False
            for _ in range(self._threads):
                self._tasks.put(None)
            self._tasks = SimpleQueue()

    def begin(self, item: Any) -> Promise:
        """Give the item to the threads."""
        if not self._started:
            self._started = True
            start_threads(self._tasks, self._threads)
        future: Promise = Promise()
        self._tasks.put((future, self._function, item))
        return future

    def __del__(self) -> None:
        if hasattr(self, "_pending"):
            self.stop()


class ProcessMapper(Mapper):
    """Has the steps of a plan loaded by processes, which stay when the node is gone.

    Args:
        source: gives the steps.
        plan: that they are of.
        pool: of the processes.
        finish: makes of a batch what comes out; called by the pool's thread where it can be.
        room: see `Mapper`.
        timeout: see `Mapper`.
    """

    def __init__(
        self,
        source: BaseNode[Any],
        plan: EpochPlan,
        pool: WorkerPool,
        finish: Finish,
        *,
        room: Room,
        timeout: float | None = None,
    ) -> None:
        super().__init__(source, room, timeout)
        self._plan = plan
        self._pool = pool
        places = isinstance(getattr(finish, "__self__", None), Placement)
        self._finish = finish if places else None
        self._number = pool.begin()

    def next(self) -> Any:
        """The next result; after a timeout the processes are not used again."""
        try:
            return super().next()
        except LoaderTimeoutError as error:
            self._pool.give_up(str(error))
            error.add_note(self._pool.at_work())
            raise

    def begin(self, item: Any) -> Promise:
        """Give the step to a process."""
        return self._pool.submit(self._number, self._plan, item, self._finish)

    def __del__(self) -> None:
        # in a fork, the futures may be locked for ever
        if hasattr(self, "_pending") and self._process == os.getpid():
            self.stop()

"""Whether this process may have workers, and what they are called in errors."""

from __future__ import annotations

import os

from guideloom_format import WorkerError


def see_that_it_may(workers: int) -> None:
    """See that this process may have others.

    Raises:
        WorkerError: it is itself one that loads batches, or another daemonic one.
    """
    from multiprocess import current_process

    here = current_process()
    if here.daemon:
        raise WorkerError(
            f"{workers_of_loader(workers)} cannot be started by {here.name} (pid {os.getpid()}), "
            "which is daemonic, as processes that load batches are, and may not have processes of "
            'its own; load with num_workers=0 or parallel_method="thread" there'
        )


def workers_of_loader(workers: int) -> str:
    """What errors call them."""
    return f"the {workers} worker process{'es' if workers > 1 else ''} of a loader"

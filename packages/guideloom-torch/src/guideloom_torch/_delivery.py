"""A batch between the worker that sent it and whoever asks for it.

The thread that hears the workers unpickles nothing of the user's, unless the batch is to be placed,
which shall begin before it is asked for; and then only where no import can make it wait.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from guideloom_format import EpochPlan, WorkerError
from guideloom_torch._notes import add_note
from guideloom_torch._promise import Promise
from guideloom_torch._steps import describe
from guideloom_torch._transfer import NotNowError, Parcel, loads
from guideloom_torch._worker import SentError

Finish = Callable[[Any], Any]


class Delivery(Promise):
    """The promise of a batch. What it is given is called by whoever asks for the result, there.

    A batch is unpickled in the thread that asks for it: unpickling may import, or wait for an
    import that is under way in that thread, which waits for the batch.
    """

    def result(self, timeout: float | None = None) -> Any:
        """What the function returns that it was given; once."""
        try:
            return super().result(timeout)()
        except StopIteration as error:
            raise RuntimeError("loading a batch raised StopIteration, which ends loops") from error

    def fail(self, error: Callable[[], BaseException]) -> None:
        """Have an error raised for the result, made for whoever asks."""
        self.set_result(functools.partial(_raise, error))


def _raise(error: Callable[[], BaseException]) -> NoReturn:
    raise error()


@dataclass
class Given:
    """A step that a worker was given.

    Attributes:
        plan: that it is of.
        number: of the plan.
        step: of the plan.
        future: of the batch.
        finish: is called with the batch, in the thread that hears the workers if that need not
            wait for an import; None for nothing to do.
        sent: whether the worker was told. A signal handler's exception may come in between.
    """

    plan: EpochPlan
    number: int
    step: int
    future: Delivery
    finish: Finish | None
    sent: bool = False


def deliver(given: Given, parcel: Parcel) -> None:
    """Give a future its batch: as it came, or placed if it shall be and can be right away."""
    whole = functools.partial(_batch, given.plan, given.step, parcel, given.finish)
    if given.finish is None:
        given.future.set_result(whole)
        return
    try:
        placed = whole(waits=False)
    except NotNowError:
        given.future.set_result(whole)
    except BaseException as error:  # noqa: BLE001  # the future gets it
        given.future.set_exception(error)
    else:
        given.future.set_result(lambda: placed)


def _batch(
    plan: EpochPlan, step: int, parcel: Parcel, finish: Finish | None, *, waits: bool = True
) -> Any:
    doing = "receiving"
    try:
        batch = parcel.open(waits=waits)
        if finish is None:
            return batch
        doing = "placing"
        return finish(batch)
    except NotNowError:
        raise
    except BaseException as error:
        add_note(error, f"while {doing} {describe(plan, step)}")
        raise


def sent_error(name: str, parcel: Parcel) -> BaseException:
    """The error that a worker has sent."""
    sent: SentError = parcel.open()
    where = f"in {name}:\n{sent.text}"
    error: BaseException | None = None
    if sent.pickled is not None:
        with contextlib.suppress(Exception):  # of a module, say, that is not to be found here
            error = loads(sent.pickled)
    if not isinstance(error, BaseException):
        return WorkerError(where)
    add_note(error, where)
    return error

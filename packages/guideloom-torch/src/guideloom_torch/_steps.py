"""One step of a plan: which samples it has, and their batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from guideloom_format import EpochPlan
from guideloom_read._places import SampleReader, places
from guideloom_torch._notes import add_note

SHOWN = 8
"""Samples that messages name."""

Load = Callable[[NDArray[np.int64]], Any]
Announce = Callable[[NDArray[np.int64], NDArray[np.int64] | None], None]
Where = Callable[[NDArray[np.int64]], str]


class MaskedBatch(NamedTuple):
    """A batch of full size, with ``pad="mask"``.

    Attributes:
        batch: of `local_batch_size` samples.
        valid: which of them count, bool, shape (local_batch_size,). The others are samples from
            the start of the epoch, in the last step alone.
    """

    batch: Any
    valid: torch.Tensor


class LoadStep:
    """Loads a step, and says of an error where it happened.

    Args:
        plan: which samples come when.
        load: makes a batch of sample ids.
        pad: whether a step is filled up, see `MaskedBatch`.
        announce: says to the storage which samples will be loaded soon, and which after these.
        lookahead: how many steps before they are loaded; 0 for never.
        where: says of samples where they lie, for errors.
    """

    def __init__(
        self,
        plan: EpochPlan,
        load: Load,
        pad: bool,
        announce: Announce,
        lookahead: int,
        where: Where,
    ) -> None:
        self._plan = plan
        self._load = load
        self._pad = pad
        self._announce = announce
        self._lookahead = lookahead
        self._where = where
        self._begun = False

    def __call__(self, step: int) -> Any:
        plan = self._plan
        if self._lookahead:
            self._look_ahead(step)
        if self._pad:
            ids, valid = plan.padded(step)
        else:
            ids = plan.sample_ids(step)
        try:
            batch = self._load(ids)
        except StopIteration as error:
            raise RuntimeError("loading a batch raised StopIteration, which ends loops") from error
        except BaseException as error:
            add_note(error, f"while loading {describe(plan, step, ids)}")
            with contextlib.suppress(Exception):  # a reader that was closed meanwhile
                add_note(error, self._where(ids[:SHOWN]))
            raise
        return MaskedBatch(batch, torch.from_numpy(valid)) if self._pad else batch

    def _look_ahead(self, step: int) -> None:
        """Each step announces one that comes later, and the first one all before that."""
        last = step + self._lookahead
        first = last if self._begun else step + 1
        self._begun = True
        for later in range(first, min(last + 1, len(self._plan))):
            then = self._plan.sample_ids(later + 1) if later + 1 < len(self._plan) else None
            self._announce(self._plan.sample_ids(later), then)


def describe(plan: EpochPlan, step: int, ids: NDArray[np.int64] | None = None) -> str:
    """A step in words, for messages."""
    ids = plan.sample_ids(step) if ids is None else ids
    shown = ", ".join(map(str, ids[:SHOWN].tolist())) + (", …" if ids.size > SHOWN else "")
    return (
        f"samples {shown} (epoch {plan.epoch}, rank {plan.rank}, step {step} since the epoch began "
        "or was resumed)"
    )


def where(reader: SampleReader, ids: NDArray[np.int64]) -> str:
    """Where samples lie, in words; by arithmetic, nothing is read."""
    found = places(reader, ids, read_ends=False)
    lines = [f"where they lie in {found.directory}:"]
    for k, sample in enumerate(ids.tolist()):
        for piece in found.pieces(k, SHOWN):
            known = piece.byte_start >= 0
            at = f"bytes {piece.byte_start} to {piece.byte_stop}" if known else "a document"
            lines.append(f"  {sample}: shard {piece.shard} at {piece.start}: {piece.file}, {at}")
    return "\n".join(lines)

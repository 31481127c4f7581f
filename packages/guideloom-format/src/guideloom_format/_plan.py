"""Which samples a rank gets at a step of an epoch: pure arithmetic, no I/O, no state.

::

    positions of the global order   0 1 2 3 4 5 | 6 7 8 9 10 11 | 12 13      world_size 2, batch 3
    rank 0                          0   2   4   | 6   8   10    | 12
    rank 1                            1   3   5 |   7   9    11 |    13
                                    step 0        step 1          step 2, without drop_last

The sample at position p is ``shuffler.shuffle(p)``, or p itself without shuffling. A job that
resumes with other ranks or another batch size gives `start`, the number of positions already
delivered, and the same global order goes on.

Where every rank needs as many rows, `EpochPlan.padded` fills those of the last step for which
nothing is left with positions 0, 1, … again, and says which rows are valid::

    rank 0                          …                           | 12 (0) (2)     valid: + - -
    rank 1                                                      | 13 (1) (3)            + - -
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from guideloom_format._integers import (
    as_flag,
    as_index,
    as_integer,
    as_seed,
    index_array,
    shown,
)
from guideloom_format._shuffle import MAX_LENGTH, FeistelShuffler

MAX_EPOCH = 2**63 - 1  # `EpochPlan.delivery` and states have it in 64 bits
MAX_WORLD_SIZE = 2**31


class Delivery(NamedTuple):
    """When and where a sample is delivered: epoch, step, rank, row of the local batch."""

    epoch: int
    step: int
    rank: int
    row: int


@dataclass(frozen=True)
class EpochPlan:
    """The order of one epoch, seen by one rank.

    Args:
        length: samples in the dataset, 0 to 2**62.
        seed: any non-negative integer of at most 8,192 bits; used only with `shuffle`.
        epoch: number of the epoch, 0 to 2**63 - 1. The order `feistel-1` has more of them, see
            `FeistelShuffler.from_seed`; here they are numbers of 64 bits.
        shuffle: `feistel-1` order of (seed, epoch), or the order of the dataset.
        rank: of this process, in [0, world_size).
        world_size: number of processes.
        local_batch_size: samples per step and rank.
        drop_last: leave out the samples of an incomplete last global batch. Otherwise the last
            step is shorter, possibly empty on some ranks; all ranks have as many steps.
        start: positions of the global order delivered before step 0.

    Raises:
        TypeError, ValueError: an argument outside its interval, named.
    """

    length: int
    seed: int = 0
    epoch: int = 0
    shuffle: bool = False
    rank: int = 0
    world_size: int = 1
    local_batch_size: int = 1
    drop_last: bool = True
    start: int = 0
    _shuffler: FeistelShuffler | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        intervals = {
            "length": (0, MAX_LENGTH),
            "epoch": (0, MAX_EPOCH),
            "world_size": (1, MAX_WORLD_SIZE),
            "rank": (0, None),
            "local_batch_size": (1, 2**31),
            "start": (0, None),
        }
        for name, (low, high) in intervals.items():
            object.__setattr__(self, name, as_index(name, getattr(self, name), low, high))
        object.__setattr__(self, "seed", as_seed("seed", self.seed))
        for name in ("shuffle", "drop_last"):
            object.__setattr__(self, name, as_flag(name, getattr(self, name)))
        if self.rank >= self.world_size:
            raise ValueError(
                f"rank is {shown(self.rank)}; expected less than world_size {self.world_size}"
            )
        if self.start > self.length:
            raise ValueError(
                f"start is {shown(self.start)}; expected at most the length {self.length}"
            )
        shuffler = (
            FeistelShuffler.from_seed(self.length, self.seed, epoch=self.epoch)
            if self.shuffle
            else None
        )
        object.__setattr__(self, "_shuffler", shuffler)

    @property
    def global_batch_size(self) -> int:
        """Samples per step, over all ranks."""
        return self.local_batch_size * self.world_size

    @property
    def stop(self) -> int:
        """The position that the epoch ends before: behind the last one that is delivered."""
        left = self.length - self.start
        return self.length - left % self.global_batch_size if self.drop_last else self.length

    def __len__(self) -> int:
        """Number of steps, the same on every rank."""
        return -(-(self.stop - self.start) // self.global_batch_size)

    def positions(self, step: int) -> NDArray[np.int64]:
        """Positions of the global order that this rank gets at `step`: int64, 1-d.

        Raises:
            IndexError: no such step.
            TypeError: step is not an integer.
        """
        begin = self.position_at(step)
        end = min(begin + self.global_batch_size, self.stop)
        return np.arange(begin + self.rank, end, self.world_size, dtype=np.int64)

    def sample_ids(self, step: int) -> NDArray[np.int64]:
        """Ids of the samples that this rank gets at `step`, in order of the rows: int64, 1-d.

        Raises:
            IndexError: no such step.
            TypeError: step is not an integer.
        """
        return self._ids(self.positions(step))

    def padded(self, step: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """As many sample ids on every rank and at every step, and which of them are valid.

        Rows for which nothing is left take the samples from the start of the epoch's order, at
        positions 0, 1, … dealt to the ranks like all others, and again from 0 if the epoch has
        fewer. Over all ranks and steps the valid rows have each sample exactly once. With
        `drop_last` all rows are valid.

        Returns:
            the ids, int64 (local_batch_size,), and whether each row is valid, bool of that shape.

        Raises:
            IndexError: no such step. An epoch without samples has none.
            TypeError: step is not an integer.
        """
        first = self.position_at(step) + self.rank
        positions = first + self.world_size * np.arange(self.local_batch_size, dtype=np.int64)
        valid = positions < self.stop
        if not valid[-1]:
            positions = np.where(valid, positions, (positions - self.stop) % self.length)
        return self._ids(positions), valid

    def all_sample_ids(self, step: int) -> NDArray[np.int64]:
        """Ids of the samples that all ranks get at `step`: int64 (world_size, local_batch_size).

        -1 where nothing is left for a row, whatever a loader puts there.

        Raises:
            IndexError: no such step.
            TypeError: step is not an integer.
        """
        begin = self.position_at(step)
        end = min(begin + self.global_batch_size, self.stop)
        dealt = self._ids(np.arange(begin, end, dtype=np.int64))
        if dealt.size < self.global_batch_size:
            nothing = np.full(self.global_batch_size - dealt.size, -1, dtype=np.int64)
            dealt = np.concatenate((dealt, nothing))
        return dealt.reshape(self.local_batch_size, self.world_size).T

    def sample_at(self, step: int, rank: int, row: int) -> int | None:
        """Id of the sample in one row of one rank: what `delivery` is the inverse of.

        Returns:
            the id, or None if nothing is left for this row.

        Raises:
            IndexError: no such step, rank or row.
            TypeError: one of them is not an integer.
        """
        begin = self.position_at(step)
        rank, row = as_integer("rank", rank), as_integer("row", row)
        for name, number, count in (
            ("rank", rank, self.world_size),
            ("row", row, self.local_batch_size),
        ):
            if not 0 <= number < count:
                raise IndexError(f"{name} {shown(number)} is outside [0, {count})")
        position = begin + row * self.world_size + rank
        if position >= self.stop:
            return None
        return position if self._shuffler is None else self._shuffler.shuffle(position)

    def position_at(self, step: int) -> int:
        """The position of the global order that a step begins at, before the ranks' shares.

        Raises:
            IndexError: no such step.
            TypeError: step is not an integer.
        """
        step = as_integer("step", step)
        if not 0 <= step < len(self):
            raise IndexError(
                f"step {shown(step)} is outside [0, {len(self)}), the steps of this epoch"
            )
        return self.start + step * self.global_batch_size

    def after(self, steps: int) -> tuple[int, int]:
        """Where a job stands when it has done `steps` more steps from this plan's start.

        ::

            10 samples, global batch 4, drop_last, epoch 2, start 0
            steps   0       1       2       3       4
            after   (2, 0)  (2, 4)  (3, 0)  (3, 4)  (4, 0)

        The last step of an epoch leads to the start of the next one. What is left from `start` is
        dealt from there; if it fills no batch, the next epoch follows. Constant time.

        Args:
            steps: 0 or more.

        Returns:
            the epoch, and the positions of its order that are delivered by then; for 0 steps this
            plan's own `epoch` and `start`.

        Raises:
            ValueError: `steps` is negative, or leads into epochs that have no batch, or that are
                no epochs.
            TypeError: `steps` is not an integer.
        """
        steps = as_index("steps", steps, 0, None)
        if steps == 0:
            return self.epoch, self.start
        if steps < len(self):
            return self.epoch, self.start + steps * self.global_batch_size
        whole = self.length // self.global_batch_size
        if not self.drop_last and self.length % self.global_batch_size:
            whole += 1
        if not whole:
            raise ValueError(
                f"steps is {shown(steps)}, and there is no step to do: an epoch of {self.length} "
                f"samples has no batch with global batch size {self.global_batch_size} and "
                f"drop_last={self.drop_last}. Use smaller batches, drop_last=False, or more samples"
            )
        epochs, into = divmod(steps - len(self), whole)
        epoch = self.epoch + 1 + epochs
        if epoch > MAX_EPOCH:
            raise ValueError(
                f"steps is {shown(steps)}, which leads from epoch {self.epoch} beyond epoch "
                f"{MAX_EPOCH}, the last one"
            )
        return epoch, into * self.global_batch_size

    @overload
    def delivery(self, sample_ids: int) -> Delivery | None: ...
    @overload
    def delivery(self, sample_ids: ArrayLike) -> NDArray[np.int64]: ...
    def delivery(self, sample_ids: int | ArrayLike) -> Delivery | NDArray[np.int64] | None:
        """The inverse: at which step, on which rank and in which row samples are delivered.

        Args:
            sample_ids: an id, or an array of ids.

        Returns:
            for an id, a `Delivery`, or None if the epoch does not deliver it (dropped at the end,
            or before `start`); for an array of shape S, int64 of shape S + (4,) with the columns
            epoch, step, rank, row, and -1 in the last three where it is not delivered.

        Raises:
            IndexError: an id outside [0, length).
            TypeError: not integers.
        """
        if isinstance(sample_ids, int | np.integer) and not isinstance(sample_ids, bool):
            self._check_ids(int(sample_ids), int(sample_ids))
            row = self.delivery(np.array([sample_ids], dtype=np.int64))[0]
            return Delivery(*row.tolist()) if row[1] >= 0 else None
        ids = index_array("sample_ids", sample_ids)
        if ids.size:
            self._check_ids(int(ids.min()), int(ids.max()))
        places = ids if self._shuffler is None else self._shuffler.unshuffle(ids)
        step, within = np.divmod(places - self.start, self.global_batch_size)
        out = np.stack(
            [
                np.full(ids.shape, self.epoch, dtype=np.int64),
                step,
                within % self.world_size,
                within // self.world_size,
            ],
            axis=-1,
        )
        out[(places < self.start) | (places >= self.stop), 1:] = -1
        return out

    def _ids(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The samples at these positions of the global order."""
        return positions if self._shuffler is None else self._shuffler.shuffle(positions)

    def _check_ids(self, smallest: int, largest: int) -> None:
        if smallest < 0 or largest >= self.length:
            bad = smallest if smallest < 0 else largest
            raise IndexError(f"sample id {shown(bad)} is outside [0, {self.length})")

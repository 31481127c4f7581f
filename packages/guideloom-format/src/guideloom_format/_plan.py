"""Which samples a rank gets at a step of an epoch: pure arithmetic, no I/O, no state.

::

    positions of the global order   0 1 2 3 4 5 | 6 7 8 9 10 11 | 12 13      world_size 2, batch 3
    rank 0                          0   2   4   | 6   8   10    | 12
    rank 1                            1   3   5 |   7   9    11 |    13
                                    step 0        step 1          step 2, without drop_last

The sample at position p is ``shuffler.shuffle(p)``, or p itself without shuffling. A job that
resumes with other ranks or another batch size gives `start`, the number of positions already
delivered, and the same global order goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from guideloom_format._integers import as_index, as_integer, index_array, shown
from guideloom_format._shuffle import MAX_LENGTH, FeistelShuffler


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
        seed: any non-negative integer; used only with `shuffle`.
        epoch: number of the epoch, from 0.
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
            "seed": (0, None),
            "epoch": (0, None),
            "world_size": (1, 2**31),
            "rank": (0, None),
            "local_batch_size": (1, 2**31),
            "start": (0, None),
        }
        for name, (low, high) in intervals.items():
            object.__setattr__(self, name, as_index(name, getattr(self, name), low, high))
        if self.rank >= self.world_size:
            raise ValueError(
                f"rank is {self.rank}; expected less than world_size {self.world_size}"
            )
        if self.start > self.length:
            raise ValueError(f"start is {self.start}; expected at most the length {self.length}")
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
        step = as_integer("step", step)
        if not 0 <= step < len(self):
            raise IndexError(
                f"step {shown(step)} is outside [0, {len(self)}), the steps of this epoch"
            )
        begin = self.start + step * self.global_batch_size
        end = min(begin + self.global_batch_size, self.stop)
        return np.arange(begin + self.rank, end, self.world_size, dtype=np.int64)

    def sample_ids(self, step: int) -> NDArray[np.int64]:
        """Ids of the samples that this rank gets at `step`, in order of the rows: int64, 1-d.

        Raises:
            IndexError: no such step.
            TypeError: step is not an integer.
        """
        positions = self.positions(step)
        return positions if self._shuffler is None else self._shuffler.shuffle(positions)

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

    def _check_ids(self, smallest: int, largest: int) -> None:
        if smallest < 0 or largest >= self.length:
            bad = smallest if smallest < 0 else largest
            raise IndexError(f"sample id {shown(bad)} is outside [0, {self.length})")

"""`SampleSequence`: the ways to ask for samples that every reader of samples has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_format._integers import as_integer, index_array, shown


class SampleSequence(Sequence[Any]):
    """A sequence over ``_samples(ids)``, which gives a list for int64 ids in ``[0, len)``."""

    def _samples(self, ids: NDArray[np.int64]) -> list[Any]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        """All samples in order. An IndexError or StopIteration on the way is not the end."""
        for index in range(len(self)):
            yield self[index]

    def __reversed__(self) -> Iterator[Any]:
        for index in reversed(range(len(self))):
            yield self[index]

    def __getitem__(self, index: Any) -> Any:
        """A sample for an int, negative ones counted from the end; a list of samples otherwise.

        Args:
            index: an int, a slice, or a 1-d array or list of integers.

        Raises:
            IndexError: outside ``[-len, len)``.
            TypeError: not an integer, slice or array of integers.
        """
        count = len(self)
        if isinstance(index, slice):
            return self._samples(np.arange(*index.indices(count), dtype=np.int64))
        # Arrays have __index__, too; np.ndim takes a microsecond that an int need not wait for.
        if type(index) is int or (hasattr(index, "__index__") and np.ndim(index) == 0):
            number = as_integer("index", index)
            if not -count <= number < count:
                raise IndexError(f"sample {shown(number)} is outside [{-count}, {count})")
            return self._samples(np.array([number % count], dtype=np.int64))[0]
        ids = index_array("index", index)
        if ids.ndim != 1:
            raise TypeError(f"the index array has {ids.ndim} dimensions; expected 1")
        bad = np.flatnonzero((ids < -count) | (ids >= count))
        if bad.size:
            raise IndexError(
                f"sample {ids[bad[0]]} at position {bad[0]} is outside [{-count}, {count})"
            )
        return self._samples(np.where(ids < 0, ids + count, ids))

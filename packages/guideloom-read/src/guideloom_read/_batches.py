"""What `gather` returns for documents and spans: arrays for a whole batch, no object per sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guideloom_format._integers import as_integer


class Ragged(NamedTuple):
    """Arrays of different lengths, one behind the other.

    ::

        values    a a a b b c c c c          array 0 = values[0:3]
        offsets   0     3   5       9

    For torch: ``torch.nested.nested_tensor_from_jagged(values, offsets, max_seqlen=…)`` of tensors.

    Attributes:
        values: 1-d, contiguous.
        offsets: int64 (arrays + 1,), in values.
    """

    values: Any
    offsets: Any

    @property
    def lengths(self) -> Any:
        """Values in each array: int64 (arrays,)."""
        return self.offsets[1:] - self.offsets[:-1]

    def arrays(self) -> list[Any]:
        """The arrays, as views of `values`."""
        bounds = self.offsets.tolist()
        return [self.values[bounds[k] : bounds[k + 1]] for k in range(len(bounds) - 1)]


class Padded(NamedTuple):
    """Arrays of different lengths as the rows of one array.

    Attributes:
        values: (rows, width); row k has its ``lengths[k]`` values, and the padding value behind.
        lengths: int64 (rows,).
    """

    values: Any
    lengths: Any


class SpanBatch(NamedTuple):
    """A batch of windows, and the pieces of spans in them.

    A piece is what one window has of one span. The pieces of a window lie one behind the other and
    cover it.

    ::

        stream     t t t t u u u v     window 0: pieces 0 1 2
                   v v w w w w w w     window 1: pieces 3 4
        offsets    0 3 5
        starts     0 4 7 0 2           lengths   4 3 1 2 6
        spans      8 9 10 10 11        span 10 lies in both windows …
        payload_index  0 1 2 2 3       … and its payload is there once

    Attributes:
        stream: the elements, (batch, sequence_length), or a mapping of field to such arrays.
        offsets: int64 (batch + 1,): window k has the pieces ``offsets[k]`` to ``offsets[k + 1]``.
        starts: int64 (pieces,): the piece's first element in its window.
        lengths: int64 (pieces,): elements in the piece, at least 1.
        spans: int64 (pieces,): number of the span in the dataset.
        payload_index: int64 (pieces,): number of the span's payload in `payloads`.
        payloads: `Ragged` of uint8, the stored bytes of each payload; None if they were not asked
            for.
        sequence_length: elements in a window.
    """

    stream: Any
    offsets: Any
    starts: Any
    lengths: Any
    spans: Any
    payload_index: Any
    payloads: Ragged | None
    sequence_length: int

    def document_ids(self) -> Any:
        """For each element the number of its span in the dataset: int64 (batch, sequence_length).

        Attention within documents is where the numbers of two elements are equal.
        """
        spans = np.repeat(np.asarray(self.spans), np.asarray(self.lengths))
        return self._as_given(spans.reshape(self._shape()))

    def position_ids(self) -> Any:
        """For each element its position in its piece, from 0: int64 (batch, sequence_length)."""
        lengths = np.asarray(self.lengths)
        before = np.cumsum(lengths) - lengths
        total = int(lengths.sum())
        positions = np.arange(total, dtype=np.int64) - np.repeat(before, lengths)
        return self._as_given(positions.reshape(self._shape()))

    def cu_seqlens(self) -> Any:
        """Where pieces begin and end in the flattened batch: int32 (pieces + 1,), from 0.

        As kernels for attention over sequences of variable length take it; ``lengths.max()`` is
        the longest.

        Raises:
            ValueError: the batch has 2**31 elements or more.
        """
        ends = np.cumsum(np.asarray(self.lengths))
        if ends.size and int(ends[-1]) >= 2**31:
            raise ValueError(
                f"the batch has {int(ends[-1])} elements, and int32 holds less than 2**31; make "
                "smaller batches"
            )
        return self._as_given(np.concatenate(([0], ends)).astype(np.int32))

    def per_element(self, of_payloads: Any) -> Any:
        """For each element what was computed from its span's payload: (batch, sequence_length).

        Args:
            of_payloads: a number for each of `payloads`, or an array of numbers each: the number
                of a language, a weight.

        Raises:
            ValueError: not one for each.
        """
        values = np.asarray(of_payloads)
        needed = int(np.asarray(self.payload_index).max(initial=-1)) + 1
        if self.payloads is not None:  # all that there are, also after `narrow`
            needed = len(self.payloads.offsets) - 1
        given = len(values) if values.ndim else 0
        if given < needed or (given > needed and self.payloads is not None):
            raise ValueError(
                f"per_element got {given} values; expected one for each of the {needed} payloads"
            )
        of_elements = np.repeat(
            values[np.asarray(self.payload_index)], np.asarray(self.lengths), axis=0
        )
        return self._as_given(of_elements.reshape(self._shape() + values.shape[1:]))

    def narrow(self, start: int, stop: int) -> SpanBatch:
        """The same windows cut to the columns `start` to `stop`.

        With ``sequence_length=L + 1, stride=L``: ``batch.narrow(0, L)`` has the inputs and the
        spans that belong to them, ``batch.narrow(1, L + 1)`` the labels. The elements are views.

        Raises:
            ValueError: not ``0 <= start <= stop <= sequence_length``.
        """
        start, stop = self._checked(start, stop)
        starts, lengths = np.asarray(self.starts), np.asarray(self.lengths)
        begin = np.maximum(starts, start)
        end = np.minimum(starts + lengths, stop)
        kept = np.flatnonzero(end > begin)
        counts = np.concatenate(([0], np.cumsum(end > begin)))
        return self._replace(
            stream=self._columns(start, stop),
            offsets=self._as_given(counts[np.asarray(self.offsets)]),
            starts=self._as_given(begin[kept] - start),
            lengths=self._as_given((end - begin)[kept]),
            spans=self._as_given(np.asarray(self.spans)[kept]),
            payload_index=self._as_given(np.asarray(self.payload_index)[kept]),
            sequence_length=stop - start,
        )

    def _checked(self, start: int, stop: int) -> tuple[int, int]:
        start, stop = as_integer("start", start), as_integer("stop", stop)
        if not 0 <= start <= stop <= self.sequence_length:
            raise ValueError(
                f"narrow got {start} and {stop}; expected 0 <= start <= stop <= "
                f"{self.sequence_length}"
            )
        return start, stop

    def _columns(self, start: int, stop: int) -> Any:
        return _columns(self.stream, start, stop)

    def _shape(self) -> tuple[int, int]:
        return len(self.offsets) - 1, self.sequence_length

    def _as_given(self, array: NDArray[Any]) -> Any:
        """An array as this batch holds its own; batches of tensors make a tensor of it."""
        return array


def _columns(stream: Any, start: int, stop: int) -> Any:
    """The columns of an array, or of each array of a mapping."""
    if isinstance(stream, Mapping):
        return {name: _columns(field, start, stop) for name, field in stream.items()}
    if getattr(stream, "ndim", 0) < 2:
        raise TypeError(
            "narrow cuts an array of shape (batch, sequence_length, …), or a mapping of such; the "
            f"stream of this batch is {type(stream).__name__}: cut it yourself"
        )
    return stream[:, start:stop]

"""`TensorSpanBatch`: windows and their spans as tensors, computed on where the tensors are."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from guideloom_read import SpanBatch


class TensorSpanBatch(SpanBatch):
    """A `SpanBatch` of tensors; its methods compute on their device and return tensors.

    Only `narrow`, and `per_element` of a batch without payloads, wait for the device.
    """

    __slots__ = ()

    def document_ids(self) -> torch.Tensor:
        """See `SpanBatch.document_ids`: int64 (batch, sequence_length)."""
        return self._for_each_element(self.spans)

    def position_ids(self) -> torch.Tensor:
        """See `SpanBatch.position_ids`: int64 (batch, sequence_length)."""
        before = self.lengths.cumsum(0) - self.lengths
        count = self._elements()
        positions = torch.arange(count, dtype=torch.int64, device=self.lengths.device)
        return positions.reshape(self._shape()) - self._for_each_element(before)

    def cu_seqlens(self) -> torch.Tensor:
        """See `SpanBatch.cu_seqlens`: int32 (pieces + 1,).

        Raises:
            ValueError: the batch has 2**31 elements or more.
        """
        if self._elements() >= 2**31:
            raise ValueError(
                f"the batch has {self._elements()} elements, and int32 holds less than 2**31; make "
                "smaller batches"
            )
        ends = self.lengths.cumsum(0, dtype=torch.int32)
        return torch.nn.functional.pad(ends, (1, 0))

    def per_element(self, of_payloads: Any) -> torch.Tensor:
        """See `SpanBatch.per_element`.

        Raises:
            ValueError: not one value for each payload.
        """
        given = of_payloads
        if not isinstance(given, torch.Tensor):
            given = torch.from_numpy(np.array(given))
        values = given.to(self.lengths.device)
        if self.payloads is not None:  # all that there are, also after `narrow`
            needed = len(self.payloads.offsets) - 1
        else:
            needed = int(self.payload_index.max()) + 1 if len(self.payload_index) else 0
        count = len(values) if values.ndim else 0
        if count < needed or (count > needed and self.payloads is not None):
            raise ValueError(
                f"per_element got {count} values; expected one for each of the {needed} payloads"
            )
        return self._for_each_element(values[self.payload_index])

    def narrow(self, start: int, stop: int) -> SpanBatch:
        """See `SpanBatch.narrow`.

        Raises:
            ValueError: not ``0 <= start <= stop <= sequence_length``.
        """
        start, stop = self._checked(start, stop)
        begin = self.starts.clamp(min=start)
        lengths = (self.starts + self.lengths).clamp(max=stop) - begin
        kept = lengths > 0
        counts = torch.nn.functional.pad(kept.cumsum(0), (1, 0))
        return self._replace(
            stream=self._columns(start, stop),
            offsets=counts[self.offsets],
            starts=begin[kept] - start,
            lengths=lengths[kept],
            spans=self.spans[kept],
            payload_index=self.payload_index[kept],
            sequence_length=stop - start,
        )

    def _elements(self) -> int:
        rows, length = self._shape()
        return rows * length

    def _for_each_element(self, of_pieces: torch.Tensor) -> torch.Tensor:
        """A value for each piece, repeated for its elements: (batch, sequence_length, …)."""
        values = torch.repeat_interleave(
            of_pieces, self.lengths, dim=0, output_size=self._elements()
        )
        return values.reshape(*self._shape(), *of_pieces.shape[1:])

"""An independent reader of streams with metadata, made from `docs/reference/format.md` alone."""

import struct
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from format.independent import OpenDataset, Part
from format.independent_json import RefusedError


class SpanPiece(NamedTuple):
    """What a window has of one span."""

    start: int  # in the window
    length: int  # of the elements that are in the window
    number: int  # of the span, over all parts
    payload: bytes
    shard: int


class IndependentSpans(OpenDataset):
    """A stream with metadata."""

    kind = "stream-with-meta"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.counts = [part.files["spans"].size // 16 for part in self.parts]
        self.first_spans = [0, *accumulate(self.counts)]

    def window(self, start: int, stop: int) -> tuple[NDArray[np.void], list[SpanPiece]]:
        """The elements from `start` to `stop`, and the spans that have an element there."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"window {start}:{stop} of {len(self)} elements")
        size = self.header.element_type.itemsize
        content, pieces = b"", list[SpanPiece]()
        for row, (part, first) in enumerate(zip(self.parts, self.starts, strict=False)):
            low = max(start, first) - first
            high = min(stop, first + part.length) - first
            if low < high:
                content += self.checked_bytes(part, "elements", low * size, high * size)
                pieces += self._pieces(row, low, high, first - start)
        return np.ndarray((stop - start,), self.header.element_type, content), pieces

    def span(self, number: int) -> tuple[int, int, bytes, int]:
        """First element and the one behind the last, payload and shard of span `number`."""
        for part, start, first in zip(self.parts, self.starts, self.first_spans, strict=False):
            k = number - first
            if 0 <= k < part.files["spans"].size // 16:
                low, high, payload = self._span(part, k)
                return start + low, start + high, payload, part.shard
        raise IndexError(f"span {number} of {self.first_spans[-1]}")

    def _end(self, part: Part, k: int) -> tuple[int, int]:
        """aₖ and pₖ."""
        if k < 0:
            return 0, 0
        elements, payload = struct.unpack(
            "<2Q", self.checked_bytes(part, "spans", 16 * k, 16 * k + 16)
        )
        return elements, payload

    def _span(self, part: Part, k: int) -> tuple[int, int, bytes]:
        """Where span k of a part begins and ends, and its payload; all that is read is checked."""
        (low, begin), (high, end) = self._end(part, k - 1), self._end(part, k)
        place, size = part.path(self.path, "spans"), part.files["payloads"].size
        if not low <= high <= part.length:
            raise RefusedError(f"{place}: span {k} from {low} to {high} of {part.length} elements")
        if not begin <= end <= size:
            raise RefusedError(f"{place}: payload {k} from {begin} to {end} of {size} bytes")
        if k == part.files["spans"].size // 16 - 1 and (high, end) != (part.length, size):
            raise RefusedError(f"{place}: the last span ends at {(high, end)}")
        return low, high, self.checked_bytes(part, "payloads", begin, end)

    def _pieces(self, row: int, low: int, high: int, shift: int) -> list[SpanPiece]:
        """The spans with an element from `low` to `high` of a part, which is `shift` further on."""
        part, pieces = self.parts[row], list[SpanPiece]()
        k, last = 0, self.counts[row]
        while k < last:  # the first span that ends behind `low`, found by search
            middle = (k + last) // 2
            k, last = (k, middle) if self._end(part, middle)[0] > low else (middle + 1, last)
        at = low
        while at < high:
            if k == self.counts[row]:
                raise RefusedError(f"{part.path(self.path, 'spans')}: no span has element {at}")
            begin, end, payload = self._span(part, k)
            if begin > at:
                raise RefusedError(f"{part.path(self.path, 'spans')}: no span has element {at}")
            if end > at:
                stop = min(end, high)
                number = self.first_spans[row] + k
                pieces.append(SpanPiece(at + shift, stop - at, number, payload, part.shard))
                at = stop
            k += 1
        return pieces

    def check_contents(self, part: Part) -> None:
        """The spans follow each other and cover the part, and their payloads cover the file."""
        size = part.files["spans"].size
        numbers = struct.unpack(f"<{size // 8}Q", self.checked_bytes(part, "spans", 0, size))
        place = part.path(self.path, "spans")
        for column, whole in ((0, part.length), (1, part.files["payloads"].size)):
            last = 0
            for k, end in enumerate(numbers[column::2]):
                if end < last:
                    raise RefusedError(f"{place}: column {column} falls at span {k}")
                last = end
            if last != whole:
                raise RefusedError(f"{place}: column {column} ends at {last}, not at {whole}")

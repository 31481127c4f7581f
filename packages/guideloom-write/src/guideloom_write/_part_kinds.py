"""The parts of the three kinds: which files they have, and how data goes into them.

::

    StreamPart     elements
    DocumentPart   documents, and where each ends
    SpanPart       elements, where spans and payloads end, payloads
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guideloom_format._parts import (
    DOCUMENTS,
    ELEMENTS,
    END_BYTES,
    ENDS,
    PAYLOADS,
    SPAN_BYTES,
    SPANS,
)
from guideloom_write._checked_file import Bytes, CheckedFile
from guideloom_write._integer_file import IntegerFile
from guideloom_write._packing import Spans
from guideloom_write._part import DataFile, ShardPart


class StreamPart(ShardPart):
    """Elements of a stream."""

    def _create_files(self) -> None:
        self._elements = self._create(CheckedFile, ELEMENTS)

    def _counts(self) -> list[tuple[DataFile, int]]:
        return [(self._elements, self.length * self._header.element_type.itemsize)]

    def append(self, elements: NDArray[Any]) -> None:
        """Append elements."""
        self._check_unpublished()
        self._elements.write(elements.view(np.uint8).data)
        self.length += elements.size


class DocumentPart(ShardPart):
    """Documents, one behind the other."""

    def _create_files(self) -> None:
        self._documents = self._create(CheckedFile, DOCUMENTS)
        self._ends = self._create(IntegerFile, ENDS)
        self._end = 0

    def _counts(self) -> list[tuple[DataFile, int]]:
        return [(self._documents, self._end), (self._ends, END_BYTES * self.length)]

    def append(self, document: Bytes) -> None:
        """Append a document."""
        if self._perhaps_committed:
            self._check_unpublished()
        self._documents.write(document)
        self._end += len(document)
        self._ends.append(self._end)
        self.length += 1
        if not self.length & 1023:
            self._ends.settle()

    def extend(self, documents: Sequence[bytes]) -> None:
        """Append many documents."""
        self._check_unpublished()
        sizes = np.array([len(document) for document in documents], dtype=np.int64)
        joined: bytes = b"".join(documents)
        self._documents.write(joined)
        ends = self._end + np.cumsum(sizes, dtype=np.int64)
        self._ends.extend(ends)
        self._end = int(ends[-1])
        self.length += len(documents)


class SpanPart(ShardPart):
    """Elements of a stream, divided into spans with payloads."""

    def _create_files(self) -> None:
        self._elements = self._create(CheckedFile, ELEMENTS)
        self._spans = self._create(IntegerFile, SPANS)
        self._payloads = self._create(CheckedFile, PAYLOADS)
        self._payload_end = 0
        self._rows = 0

    def _counts(self) -> list[tuple[DataFile, int]]:
        return [
            (self._elements, self.length * self._header.element_type.itemsize),
            (self._spans, SPAN_BYTES * self._rows),
            (self._payloads, self._payload_end),
        ]

    def append(self, spans: Spans) -> None:
        """Append elements and their spans."""
        self._check_unpublished()
        self._elements.write(spans.elements.view(np.uint8).data)
        payloads: bytes = b"".join(spans.payloads)
        self._payloads.write(payloads)
        end, payload_end = self.length, self._payload_end
        append = self._spans.append
        for elements, payload in zip(spans.lengths, spans.payloads, strict=True):
            end += elements
            payload_end += len(payload)
            append(end)
            append(payload_end)
        self._spans.settle()
        self._rows += len(spans.lengths)
        self.length, self._payload_end = end, payload_end

"""An independent reader of documents, made from `docs/reference/format.md` alone."""

import struct

from format.independent import OpenDataset, Part
from format.independent_json import RefusedError


class IndependentDocuments(OpenDataset):
    """A document dataset."""

    kind = "document"

    def read(self, number: int) -> bytes:
        """The bytes of document `number`."""
        if not 0 <= number < len(self):
            raise IndexError(f"document {number} of {len(self)}")
        for part, first in zip(self.parts, self.starts, strict=False):
            if first <= number < first + part.length:
                low, high = self._limits(part, number - first)
                return self.checked_bytes(part, "documents", low, high)
        raise AssertionError("the parts have all documents")

    def _limits(self, part: Part, k: int) -> tuple[int, int]:
        """Where document k of a part begins and ends, of which all is checked that is read."""
        stored = self.checked_bytes(part, "ends", 8 * max(0, k - 1), 8 * (k + 1))
        low, high = struct.unpack("<2Q", bytes(16 - len(stored)) + stored)
        place, size = part.path(self.path, "ends"), part.files["documents"].size
        if not low <= high <= size:
            raise RefusedError(f"{place}: document {k} from {low} to {high} of {size} bytes")
        if (high - low) % self.header.element_type.itemsize:
            raise RefusedError(f"{place}: document {k} is not a whole number of elements")
        if k == part.length - 1 and high != size:
            raise RefusedError(f"{place}: the last document ends at {high}, not at {size}")
        return low, high

    def check_contents(self, part: Part) -> None:
        """The documents follow each other, are whole, and cover their file."""
        ends = struct.unpack(
            f"<{part.length}Q", self.checked_bytes(part, "ends", 0, 8 * part.length)
        )
        place, size = part.path(self.path, "ends"), part.files["documents"].size
        low = 0
        for k, high in enumerate(ends):
            if high < low:
                raise RefusedError(f"{place}: document {k} ends before it begins")
            if (high - low) % self.header.element_type.itemsize:
                raise RefusedError(f"{place}: document {k} is not a whole number of elements")
            low = high
        if low != size:
            raise RefusedError(f"{place}: the documents end at {low}, not at {size}")

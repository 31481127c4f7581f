from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

class WrongEndsError(Exception):
    """The ends that were read for a document cannot be.

    Attributes:
        position: of the document in the batch.
    """

    position: int
    def __init__(self, position: int) -> None: ...

class DocumentIndex:
    """Where documents lie: in which part, and, once their ends were read, at which bytes.

    ::

        plan_ends(ids) ──> rows ── fill ──> bounds (n, 2)      file .ends of each part
        plan(rows, bounds) ──> rows ── fill ──> the bytes      file .documents

    Nothing is kept for a document; what is kept for a part are three integers. Files are numbered
    role by role: those of documents, then those of ends.

    Args:
        lengths: documents in each part, 1-d integers.
        sizes: bytes of documents in each part.
        itemsize: bytes of one value; the size of each document is a multiple of it.
    """

    total: int
    itemsize: int
    def __init__(self, lengths: ArrayLike, sizes: ArrayLike, itemsize: int) -> None: ...
    def __len__(self) -> int: ...
    def plan_ends(self, ids: ArrayLike) -> NDArray[np.int64]:
        """What to read of the files of ends, without the GIL.

        Args:
            ids: 1-d integers in ``[0, len)``, in any order, repeated or not.

        Returns:
            int64 of shape (len(ids), 4): file, byte offset, 16 bytes (8 for the first document of
            a part, which begins at 0), and the byte offset in an array of bounds of shape
            (len(ids), 2).

        Raises:
            IndexError: an id outside its interval.
            TypeError: ids are not integers.
        """

    def plan(
        self, end_rows: NDArray[np.int64], bounds: NDArray[np.int64], width: int = -1
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What to read of the files of documents, without the GIL.

        Args:
            end_rows: what `plan_ends` returned.
            bounds: int64 of shape (n, 2): what was read for them.
            width: bytes from the start of one document to the next in the output; when left out,
                they lie one behind the other.

        Returns:
            int64 rows as from `StreamIndex.plan`, none for a document without bytes; and int64
            offsets of shape (n + 1,) in values: document k has those from offsets[k] to
            offsets[k + 1], if they lie one behind the other.

        Raises:
            WrongEndsError: ends that decrease or lie outside the file of documents.
        """

def split(values: Any, offsets: NDArray[np.int64]) -> list[bytes]:
    """The documents of a batch as bytes objects.

    Args:
        values: uint8, 1-d, contiguous.
        offsets: int64 of shape (n + 1,); document k has the bytes offsets[k] to offsets[k + 1].
    """

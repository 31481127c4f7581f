import numpy as np
from numpy.typing import ArrayLike, NDArray

class SpanIndex:
    """How many spans, elements and payload bytes each part has: three integers a part.

    Args:
        counts: spans in each part, 1-d integers.
        lengths: elements in each part.
        payload_sizes: bytes of payloads in each part.

    Searches leave landmarks in it, the ends of every `step`-th row that they read: at most 65,536,
    whatever the number of spans.

    Attributes:
        bases: global number of the first span of each part.
        total: spans over all parts.
        step: rows from one landmark to the next.
    """

    counts: NDArray[np.int64]
    bases: NDArray[np.int64]
    lengths: NDArray[np.int64]
    payload_sizes: NDArray[np.int64]
    total: int
    def __init__(self, counts: ArrayLike, lengths: ArrayLike, payload_sizes: ArrayLike) -> None: ...
    def __len__(self) -> int: ...

class WrongSpansError(Exception):
    """Rows that were read of a file of spans cannot be.

    Attributes:
        part: number of the part.
        first, last: the rows.
    """

    part: int
    first: int
    last: int
    def __init__(self, part: int, first: int, last: int) -> None: ...

class SpanSearch:
    """The search for the spans that many windows touch, in rounds.

    ::

        StreamIndex.plan ──> segments ──> probes() ── fill ──> take(chunk) ─┐
                                             ^──────────────────────────────┘  until None
        pieces(search)

    Files are numbered role by role: those of elements, of spans, of payloads.

    At first two rounds are usual: the row of a span is guessed from the position, and lies near the
    guess; later landmarks make it one. Of n rows no search needs more than about log2(n) rounds.

    Args:
        index: of the spans.
        plan: the windows' rows, from `StreamIndex.plan`.
        itemsize: bytes per element.
        window_bytes: bytes per window, at least 1.
        windows: number of windows.

    Attributes:
        asked: rows of spans that the latest `probes` ask for.

    Raises:
        IndexError: a row of the plan outside its part, or windows out of order.
        ValueError: sizes that cannot be.
    """

    windows: int
    asked: int
    def __init__(
        self,
        index: SpanIndex,
        plan: NDArray[np.int64],
        itemsize: int,
        window_bytes: int,
        windows: int,
    ) -> None: ...
    def probes(self) -> NDArray[np.int64] | None:
        """What to read next of the files of spans: rows as from `StreamIndex.plan`.

        None when all spans are found. The output has 16 bytes for each row of spans.
        """

    def take(self, chunk: NDArray[np.int64]) -> None:
        """Take in what was read: int64 of shape (rows of spans, 2). It is kept, not copied.

        Raises:
            WrongSpansError: rows that cannot be.
        """

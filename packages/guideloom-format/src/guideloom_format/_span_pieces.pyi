import numpy as np
from numpy.typing import NDArray

from guideloom_format._spans import SpanSearch

def pieces(
    search: SpanSearch, unique: bool
) -> tuple[
    NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]
]:
    """What a finished search has found, computed without the GIL.

    A piece is what a window has of one span: a run of at least one element.

    ::

        window 0   a a a a b b b c        pieces 0 1 2   starts 0 4 7   lengths 4 3 1
        window 1   c c d d d d d d        pieces 3 4     starts 0 2     lengths 2 6
        offsets    0 3 5                  payload 0 1 2 2 3, if unique; 0 1 2 3 4 if not

    Args:
        search: which has no more probes.
        unique: whether a span that several windows touch has its payload once.

    Returns:
        all int64: the offsets of each window's pieces, of shape (windows + 1,); the columns start
        in the window, length, global span number, number of the payload, of shape (4, pieces);
        the offsets of the payloads' bytes, of shape (payloads + 1,); the part that each payload
        lies in; and what to read of the files of payloads, rows as from `StreamIndex.plan`.

    Raises:
        ValueError: the search has not ended.
    """

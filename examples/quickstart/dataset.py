"""The dataset of the quick-start: what its writer and its readers must agree on.

A stream of byte tokens: one 16-bit number per byte of a document, and 256 behind the last one.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from guideloom import StreamNumpyFormat, StreamStorage

END_OF_DOCUMENT = 256
VOCABULARY = 257
SHARDS = 4


def storage(directory: Path) -> StreamStorage:
    """The stream in a directory, to be written or read."""
    return StreamStorage(directory, StreamNumpyFormat(np.dtype([("tokens", "<u2")])))


def encode(document: bytes) -> NDArray[np.uint16]:
    """The tokens of one document, `len(document) + 1` of them."""
    return np.append(np.frombuffer(document, np.uint8), np.uint16(END_OF_DOCUMENT))

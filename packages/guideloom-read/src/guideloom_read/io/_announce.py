"""Announcing byte ranges of files that are not open."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from guideloom_format import DamagedFileError
from guideloom_read._gather import announce_to_descriptors
from guideloom_read.io._local import open_regular


def announce_closed(
    directory: str, names: Sequence[str], sizes: NDArray[np.int64], rows: NDArray[np.int64]
) -> None:
    """Tell the kernel of ranges that will be read soon; each file is open for that moment only.

    What the kernel reads ahead belongs to the file, so whoever opens it later finds it. Of a file
    that cannot be opened nothing is said: who reads it gets the error.

    Args:
        directory: of the dataset.
        names: of the files in it.
        sizes: their sizes.
        rows: as `guideloom.types.IOFiles.fill` gets them.
    """
    rows = rows[rows[:, 2] > 0]
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    files, first = np.unique(rows[:, 0], return_index=True)
    for file, own in zip(files.tolist(), np.split(rows, first[1:]), strict=False):
        try:
            descriptor = open_regular(os.path.join(directory, names[file]), int(sizes[file]))
        except (OSError, DamagedFileError):
            continue
        try:
            own[:, 0] = 0
            announce_to_descriptors(np.array([descriptor], np.int32), sizes[file : file + 1], own)
        finally:
            os.close(descriptor)

"""What the backends that keep files open share: one handle per file, one compiled fill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guideloom_format import IOFiles, IOSession
from guideloom_format._integers import as_index
from guideloom_read.io._local import LocalSession
from guideloom_read.io._open_files import Announce, Fill, Handle, OpenFiles, default_limit


class HandleKind(NamedTuple):
    """How files are opened and read: see `OpenFiles`, which takes these."""

    open_handle: Callable[[str, int], Handle]
    fill: Fill
    announce: Announce
    closed: int
    dtype: type[np.generic]


@dataclass(frozen=True)
class HandleIO:
    """A backend over `OpenFiles`; a subclass says what its handles are.

    Args:
        max_open_files: most files held open at once; a quarter of the descriptors that the process
            may have, at most 1,024, when left out.
    """

    max_open_files: int | None = None

    _kind: ClassVar[HandleKind]

    def __post_init__(self) -> None:
        if self.max_open_files is not None:
            limit = as_index("max_open_files", self.max_open_files, 1, None)
            object.__setattr__(self, "max_open_files", limit)

    def open(self, directory: str) -> IOSession:
        """Begin to read the dataset in `directory`."""
        return LocalSession(directory, self._open_files)

    def _open_files(
        self, directory: str, names: Sequence[str], sizes: NDArray[np.int64]
    ) -> IOFiles:
        return OpenFiles(
            directory,
            names,
            sizes,
            self._kind.open_handle,
            self._kind.fill,
            closed=self._kind.closed,
            dtype=self._kind.dtype,
            limit=self.max_open_files or default_limit(),
            announce=self._kind.announce,
        )

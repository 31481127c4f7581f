"""The loops of c_loops.c, compiled with the system's C compiler and called through ctypes.

A call does the work of a whole round, and its arguments are built beforehand: the cost of ctypes,
about a microsecond per call, does not show in any figure. ctypes lets the GIL go.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Call = Callable[[], None]


class CompiledLoops:
    """The functions of one C file, which lies beside this module."""

    def __init__(self, source: str) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            sys.exit("the C loops need a C compiler named cc; install one, for example gcc")
        with tempfile.TemporaryDirectory(prefix="guideloom-c-loops-") as folder:
            library = str(Path(folder) / "c_loops.so")
            path = str(Path(__file__).with_name(source))
            command = [compiler, "-O3", "-shared", "-fPIC", path, "-o", library]
            subprocess.run(command, check=True)
            self._library = ctypes.CDLL(library)

    def prepare(self, name: str, expected: int, *arguments: Any, kept: object = None) -> Call:
        """A call of the function `name`; it raises unless the function returns `expected`.

        Args:
            name: of the C function.
            expected: what it returns when it could do all of its work.
            arguments: contiguous arrays, which are passed as pointers, and ctypes values.
            kept: what else must stay alive until the call is done.
        """
        function = self._library[name]
        function.restype = ctypes.c_int64
        return _PreparedCall(function, expected, arguments, kept)


class CLoops(CompiledLoops):
    """The compiled loops. Each method prepares a call; nothing runs until it is called."""

    def __init__(self) -> None:
        super().__init__("c_loops.c")

    def preads(
        self,
        descriptors: NDArray[np.int32],
        windows: NDArray[np.int64],
        nbytes: int,
        out: NDArray[np.uint8],
    ) -> Call:
        """Read windows, (count, 2) file and offset, into `out`, which holds one batch."""
        return self._windows("pread_windows", descriptors, windows, nbytes, out)

    def copies(
        self,
        maps: Sequence[NDArray[Any]],
        windows: NDArray[np.int64],
        nbytes: int,
        out: NDArray[np.uint8],
    ) -> Call:
        """Copy windows of mapped files into `out`."""
        addresses = np.array([mapped.ctypes.data for mapped in maps], dtype=np.int64)
        return self._windows("copy_windows", addresses, windows, nbytes, out, maps)

    def feistel(
        self,
        keys: NDArray[np.uint64],
        sizes: tuple[int, int, int],
        begin: int,
        count: int,
        out: NDArray[np.int64],
    ) -> Call:
        """Permute begin, begin + 1 … into `out`, which is filled anew for every chunk.

        Args:
            keys: ten.
            sizes: length, rows, and columns of the table.
            begin: the first index.
            count: number of indexes, a multiple of the size of `out`, or less than it.
            out: one chunk.
        """
        step = min(out.size, count)
        calls = [
            self.prepare(
                "feistel",
                step,
                keys,
                *(ctypes.c_uint64(size) for size in sizes),
                ctypes.c_uint64(first),
                ctypes.c_int64(step),
                out,
            )
            for first in range(begin, begin + count, step)
        ]

        def run() -> None:
            for call in calls:
                call()

        return run

    def _windows(
        self,
        name: str,
        handles: NDArray[Any],
        windows: NDArray[np.int64],
        nbytes: int,
        out: NDArray[np.uint8],
        maps: Sequence[NDArray[Any]] = (),
    ) -> Call:
        count = len(windows)
        numbers = [ctypes.c_int64(value) for value in (count, nbytes, out.size // nbytes)]
        return self.prepare(name, count, handles, windows, *numbers, out, kept=maps)


class _PreparedCall:
    """A call with all arguments built; it keeps alive what they point to."""

    def __init__(
        self, function: Any, expected: int, arguments: tuple[Any, ...], kept: object
    ) -> None:
        self._function = function
        self._expected = expected
        self._kept = (arguments, kept)
        self._arguments = [
            ctypes.c_void_p(value.ctypes.data) if isinstance(value, np.ndarray) else value
            for value in arguments
        ]
        for value in arguments:
            if isinstance(value, np.ndarray) and not value.flags.c_contiguous:
                raise ValueError("the C loops need contiguous arrays")

    def __call__(self) -> None:
        done = self._function(*self._arguments)
        if done != self._expected:
            raise RuntimeError(f"a C loop stopped after {done} of {self._expected}")

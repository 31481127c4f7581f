"""What happens to a file that a reader has open, or will open next; runs as a process of its own.

``python open_damage.py KIND BACKEND CHANGE WHEN FILE DIRECTORY`` opens a reader, reads once if the
change is to come while the file is open, makes the change, and reads again. It prints what came of
that as one line of JSON; where it prints nothing, the process was ended by a signal.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from guideloom import GuideLoomError
from guideloom.io import MmapIO, PosixPreadIO, SeekIO
from guideloom.types import IOReader
from hostile.good_datasets import contents, storage

BACKENDS: dict[str, IOReader] = {"pread": PosixPreadIO(), "mmap": MmapIO(), "seek": SeekIO()}


def _truncated(path: Path, size: int) -> None:
    os.truncate(path, size)


def _replaced(path: Path, content: bytes) -> None:
    """By another file, as a copy or a restore does it."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(content)
    new.rename(path)


def _overwritten(path: Path) -> None:
    """In place."""
    with open(path, "r+b") as file:
        file.write(b"\xff" * path.stat().st_size)


def _link_instead(path: Path) -> None:
    moved = path.with_name(path.name + ".moved")
    path.rename(moved)
    path.symlink_to(moved.name)


def _folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


CHANGES: dict[str, Callable[[Path], None]] = {
    "nothing": lambda path: None,  # noqa: ARG005
    "truncated to nothing": lambda path: _truncated(path, 0),
    "truncated by a byte": lambda path: _truncated(path, path.stat().st_size - 1),
    "longer by a byte": lambda path: _truncated(path, path.stat().st_size + 1),
    "overwritten": _overwritten,
    "replaced by the same": lambda path: _replaced(path, path.read_bytes()),
    "replaced by other bytes": lambda path: _replaced(path, b"\xff" * path.stat().st_size),
    "replaced by nothing": lambda path: _replaced(path, b""),
    "removed": Path.unlink,
    "not readable": lambda path: path.chmod(0),
    "a link instead": _link_instead,
    "a folder instead": _folder_instead,
    "its folder removed": lambda path: shutil.rmtree(path.parent),
}
WHILE_OPEN = "while open"


def main(kind: str, backend: str, change: str, when: str, file: str, directory: Path) -> None:
    with storage(kind, directory, BACKENDS[backend]).sync_reader() as reader:
        if when == WHILE_OPEN:
            contents(kind, reader)
        CHANGES[change](directory / file)
        seen: list[dict[str, str]] = []
        for _ in range(2):  # an error leaves the reader as it was
            try:
                seen.append({"shown": contents(kind, reader).hex()})
            except GuideLoomError as error:
                seen.append({"error": f"{type(error).__name__}: {error}"})
        print(json.dumps(seen))


if __name__ == "__main__":
    _, chosen_kind, io, what, at, name, where = sys.argv
    main(chosen_kind, io, what, at, name, Path(where))

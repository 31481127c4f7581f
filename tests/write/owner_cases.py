"""Notes of owners, of processes of every sort, for the tests of who may write a shard."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from guideloom_format import Header
from guideloom_write import StreamWriter
from guideloom_write._owners import Note
from guideloom_write._process import Process, this_process
from write.known_messages import append, storage

HERE = replace(this_process(), machine="m" * 32, boot="b" * 36)
"""This process, on a machine that has an id whatever there is."""

SINCE = "2026-01-02T03:04:05+00:00"
TOKEN = "0123456789abcdef"


def note_path(directory: Path, shard: int = 0) -> Path:
    return directory / f"owners/{shard:07d}.json"


def put_note(directory: Path, process: Process, *, age: float = 0.0, shard: int = 0) -> bytes:
    """Somebody's note, last refreshed so many seconds ago."""
    header = Header.decode((directory / "guideloom.json").read_bytes())
    data = Note(TOKEN, process, SINCE).encode(header.dataset_id, shard)
    put_bytes(directory, data, age=age, shard=shard)
    return data


def put_bytes(directory: Path, data: bytes, *, age: float = 0.0, shard: int = 0) -> None:
    path = note_path(directory, shard)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (time.time() - age,) * 2)


def write(directory: Path, number: int = 1, **options: Any) -> None:
    """One more message for shard 0."""
    with StreamWriter(storage(directory), **options) as writer:
        append(writer, (9, 0, number))


def owners_left(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "owners").iterdir())


PROCESSES = {
    "an ended session of this process": (HERE, "dead"),
    "the number is another's by now": (replace(HERE, started="1"), "dead"),
    "no such process": (replace(HERE, pid=2**22 + 1), "dead"),
    "no process can have this number": (replace(HERE, pid=2**62), "dead"),
    "before the machine was started anew": (replace(HERE, boot="c" * 36), "dead"),
    "a machine without an id, started anew": (replace(HERE, boot="c", machine=""), "unknown"),
    "a host of another name": (replace(HERE, host="elsewhere"), "unknown"),
    "a machine of the same name": (replace(HERE, machine="n" * 32), "unknown"),
    "another container": (replace(HERE, pid_namespace="pid:[1]"), "unknown"),
}

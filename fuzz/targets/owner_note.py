"""The note of a shard's owner, in `owners/`, and that of a job that runs."""

from __future__ import annotations

from guideloom_format import DamagedFileError
from guideloom_format._sealed import FORMAT, seal
from guideloom_write._owners import Note
from guideloom_write._process import Process, State
from targets.base import Target, attempt
from targets.mutation import mutate_sealed
from targets.record import DATASET_ID, SHARD, TOKEN

WHERE = "folder/owners/0000004.json"
PROCESS = Process("host-7", 4321, "m" * 32, "b" * 36, "pid:[4026531836]", "123456")


def feed(data: bytes) -> None:
    note = attempt(lambda: Note.decode(data, WHERE), DamagedFileError, names=WHERE)
    if note is None:
        return
    assert note.state() in State
    assert len(str(note.owner)) < 3000
    assert Note.decode(note.encode(DATASET_ID, SHARD), WHERE) == note


def seeds() -> list[bytes]:
    since = "2026-01-02T03:04:05+00:00"
    nowhere = Process("", 0, "", "", "", "")
    return [
        Note(TOKEN, PROCESS, since).encode(DATASET_ID, SHARD),
        Note(TOKEN, nowhere, since).encode(DATASET_ID, SHARD),
        seal({"format": FORMAT, "type": "owner"}),
    ]


TARGET = Target("owner_note", feed, mutate_sealed, seeds)

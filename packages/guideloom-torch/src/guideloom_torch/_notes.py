"""Notes on errors of others, which never stand in the errors' way."""

from __future__ import annotations

import contextlib


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error, if it takes one: its ``__notes__`` may be anything."""
    with contextlib.suppress(Exception):
        error.add_note(note)

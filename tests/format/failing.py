"""What other processes import to fail in; they cannot import a test module by its name."""

from __future__ import annotations


def fail(kind: type[Exception], text: str) -> None:
    raise kind(text)

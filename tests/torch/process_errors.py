"""Errors that workers raise, in a module that they can import."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from guideloom_format import _errors


class TwoArgumentsError(Exception):
    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"number {number}: {reason}")


class TextAnewError(Exception):
    """Made again from its text, it says something else."""

    def __init__(self, number: object) -> None:
        super().__init__(f"number {number}")


class NotToBeMadeError(Exception):
    def __reduce__(self) -> Any:
        raise RuntimeError("not to be sent")


class NoError(Exception):
    """Sent, it arrives as something that cannot be raised."""

    def __reduce__(self) -> Any:
        return str, ("no error",)


def known_errors() -> list[BaseException]:
    """Every class of the family, and every built-in that takes a text."""
    family = [x for x in vars(_errors).values() if isinstance(x, type)]
    made: list[BaseException] = [x("found 3, expected 4") for x in family]
    for found in vars(builtins).values():
        if isinstance(found, type) and issubclass(found, BaseException):
            with suppress(TypeError):
                made.append(found("found 3, expected 4"))
    made.append(OSError(5, "Input/output error", "some/file"))
    made.append(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"))
    made.append(ExceptionGroup("two", [ValueError("one"), TypeError("two")]))
    unusual = (StopIteration, GeneratorExit)  # the first ends loops, see below
    return [error for error in made if not isinstance(error, unusual)]


def strange_errors() -> list[BaseException]:
    """Errors that do not survive pickling."""
    return [
        TwoArgumentsError(5, "odd"),
        TextAnewError(3),
        NotToBeMadeError("mine"),
        NoError("mine"),
    ]


class Raises:
    """Raises for the sample of each number the error of that number, made anew."""

    def __init__(self, errors: Callable[[], list[BaseException]]) -> None:
        self.errors = errors

    def __call__(self, samples: list[Any]) -> Any:
        raise self.errors()[int(samples[0][0])]

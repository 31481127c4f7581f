"""Typed access to the members of a sealed file: each wrong one is a named error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guideloom_format._errors import DamagedFileError
from guideloom_format._integers import shown

MAX_U63 = (1 << 63) - 1
MAX_TEXT = 1024


class Members:
    """A JSON object and the name of its file, for error messages.

    Every method raises `DamagedFileError` for a member that is absent, of another type, or
    outside its interval. A JSON ``true`` is never an integer.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where

    def anything(self, name: str) -> Any:
        return self._get(name)

    def text(self, name: str, *, limit: int = MAX_TEXT) -> str:
        value = self._get(name)
        if not isinstance(value, str) or len(value) > limit:
            raise self.wrong(name, value, f"a string of at most {limit} characters")
        return value

    def integer(self, name: str, high: int = MAX_U63) -> int:
        value = self._get(name)
        if type(value) is not int or not 0 <= value <= high:
            raise self.wrong(name, value, f"an integer from 0 to {high}")
        return value

    def flag(self, name: str) -> bool:
        """A boolean that is false when it is left out."""
        value = self.values.get(name, False)
        if type(value) is not bool:
            raise self.wrong(name, value, "true or false")
        return value

    def strings(self, name: str) -> tuple[str, ...]:
        value = self._get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, value, "a list of strings")
        return tuple(value)

    def items(self, name: str) -> list[Any]:
        value = self._get(name)
        if not isinstance(value, list):
            raise self.wrong(name, value, "a list")
        return value

    def nested(self, name: str) -> Members:
        value = self._get(name)
        if not isinstance(value, dict):
            raise self.wrong(name, value, "an object")
        return Members(value, f"{self.where}, {name}")

    def expect(self, name: str, expected: str | int, why: str) -> None:
        value = self._get(name)
        if type(value) is not type(expected) or value != expected:
            raise self.wrong(name, value, f"{expected!r} ({why})")

    def wrong(self, name: str, value: object, expected: str) -> DamagedFileError:
        """The error for one member; for checks that live elsewhere."""
        return DamagedFileError(
            f"{self.where}: {name} is {shown(value)}; expected {expected}. "
            "The file is damaged or was not written by GuideLoom"
        )

    def _get(self, name: str) -> Any:
        if name not in self.values:
            raise DamagedFileError(
                f"{self.where}: the member {name!r} is missing. "
                "The file is damaged or was not written by GuideLoom"
            )
        return self.values[name]

"""Names of a dataset's files, role by role, each in the order of its table of parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from guideloom_format import PartTable


class FileNames(Sequence[str]):
    """The names of the files of some roles, made from the table when they are asked for.

    Number ``r * parts + k`` is the file of role r of part k.
    """

    def __init__(self, table: PartTable, *roles: str) -> None:
        self._table = table
        self._roles = roles

    def __len__(self) -> int:
        return len(self._roles) * len(self._table)

    def __getitem__(self, k: Any) -> Any:
        if not 0 <= k < len(self):
            raise IndexError(f"file {k}; expected between 0 and {len(self) - 1}")
        role, part = divmod(k, len(self._table))
        return self._table.file_name(part, self._roles[role])

"""Names of a dataset's files, in the order of its table of parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from guideloom_format import PartTable


class FileNames(Sequence[str]):
    """The names of one role's files, made from the table when they are asked for."""

    def __init__(self, table: PartTable, role: str) -> None:
        self._table = table
        self._role = role

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, k: Any) -> Any:
        return self._table.file_name(k, self._role)

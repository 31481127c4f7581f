"""Changes to the members of sealed files, sealed again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from format.independent_json import sealed, unsealed

Change = Callable[[dict[str, Any]], object]


def change_members(path: Path, change: Change) -> None:
    """Changes the object in a sealed file and seals it again."""
    members = json.loads(unsealed(path.read_bytes()) + b"}")
    change(members)
    path.write_bytes(sealed(json.dumps(members)[:-1].encode("ascii")))


def put(*path: str | int, value: Any) -> Change:
    """Sets the member that this path leads to."""

    def change(members: Any) -> None:
        for name in path[:-1]:
            members = members[name]
        members[path[-1]] = value

    return change


def remove(*path: str | int) -> Change:
    """Removes the member that this path leads to."""

    def change(members: Any) -> None:
        for name in path[:-1]:
            members = members[name]
        del members[path[-1]]

    return change

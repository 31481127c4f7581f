"""What lies in a dataset's folder, told without the packages: from names and JSON."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp"
_TOKEN = re.compile(r"([0-9a-f]{16})\.(?:[a-z]+(?:\.crc)?|tmp)$")


def file_names(directory: Path) -> set[str]:
    """All files, relative to the folder."""
    start = len(str(directory)) + 1
    return {f"{folder}/{name}"[start:] for folder, _, files in os.walk(directory) for name in files}


def members(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
    return found


def referenced(directory: Path) -> set[str]:
    """The data files that a commit record names; manifests name no others."""
    names = set()
    for path in (directory / "commits").glob("*.json"):
        record = members(path)
        names |= {f"data/{record['stem']}.{role}" for role in record["files"]}
    return names


def unreferenced(directory: Path) -> set[str]:
    """Data files that nothing refers to, and temporary files."""
    present, known = file_names(directory), referenced(directory)
    data = {name for name in present if name.startswith("data/")}
    assert known <= data, f"committed files are missing: {known - data}"
    temporary = {name for name in present if name.endswith(TEMPORARY)}
    return (data - known) | temporary


def of_sessions(names: Iterable[str], tokens: set[str]) -> set[str]:
    """Those of the files that were made by these sessions."""
    return {
        name for name in names if (match := _TOKEN.search(name)) is not None and match[1] in tokens
    }


def owner_tokens(directory: Path) -> dict[int, str]:
    """The token in the note of each shard that has one."""
    return {
        int(path.stem): members(path)["token"] for path in (directory / "owners").glob("*.json")
    }


def manifest_versions(directory: Path) -> set[int]:
    return {int(path.stem) for path in (directory / "manifests").glob("*.json")}


def copied_version(directory: Path) -> int | None:
    """The version of `manifest.json`, if that is there."""
    path = directory / "manifest.json"
    return members(path)["manifest_version"] if path.exists() else None

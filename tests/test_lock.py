"""What is installed: every file by its hash, from one registry, and only what a role needs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCK: dict[str, Any] = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
PACKAGES: list[dict[str, Any]] = LOCK["package"]
OTHERS = [package for package in PACKAGES if not package["name"].startswith("guideloom")]
RUNTIME = {
    "guideloom-format": {"google-crc32c", "numpy"},
    "guideloom-write": {"guideloom-format"},
    "guideloom-read": {"guideloom-format"},
    "guideloom-torch": {"guideloom-read", "multiprocess", "torch", "torchdata"},
}


def test_everything_else_comes_from_one_registry() -> None:
    assert len(OTHERS) > 50
    assert len({package["source"].get("registry") for package in OTHERS}) == 1
    assert all(set(package["source"]) == {"registry"} for package in OTHERS)


def test_every_file_has_a_hash() -> None:
    files = [
        file
        for package in OTHERS
        for file in [
            *package.get("wheels", []),
            *([package["sdist"]] if "sdist" in package else []),
        ]
    ]
    assert len(files) > len(OTHERS)
    assert all(file["hash"].startswith("sha256:") for file in files)


@pytest.mark.parametrize("name", RUNTIME)
def test_a_role_brings_what_it_needs_and_no_more(name: str) -> None:
    (package,) = [package for package in PACKAGES if package["name"] == name]
    assert {other["name"] for other in package["dependencies"]} == RUNTIME[name]

"""What kind of machine the figures come from."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def machine(work: Path) -> dict[str, str]:
    """What kind of machine this is."""
    packages = {name: _version(name) for name in ("guideloom-format", "numpy", "torch")}
    cores = f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}"
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": cores,
        "memory": f"{round(kibibytes('/proc/meminfo', 'MemTotal') / 2**20)} GiB",
        "kernel": platform.release(),
        "file_system": file_system(work),
        "python": platform.python_version(),
        **packages,
    }


def machine_line(facts: Mapping[str, str]) -> str:
    """The same in one line."""
    python = ", ".join(f"{name} {facts[name]}" for name in ("python", "numpy", "torch"))
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory']}, Linux {facts['kernel']}, "
        f"{facts['file_system']}, {python}"
    )


def file_system(folder: Path) -> str:
    """Type of the file system that holds a folder."""
    found, depth = "unknown", -1
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mounted, kind, *_ = line.split(" ")
        mounted = mounted.encode("latin-1", "replace").decode("unicode_escape")
        if folder.resolve().is_relative_to(mounted) and len(Path(mounted).parts) >= depth:
            found, depth = kind, len(Path(mounted).parts)
    return found


def resident() -> int:
    """KiB of memory that the process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * (os.sysconf("SC_PAGE_SIZE") // 1024)


def kibibytes(path: str, name: str) -> int:
    """A field such as ``MemAvailable: 123 kB``; 0 if it is not there."""
    value = _field(path, name)
    return int(value.split()[0]) if value else 0


def _field(path: str, name: str) -> str:
    with contextlib.suppress(OSError):
        for line in Path(path).read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"

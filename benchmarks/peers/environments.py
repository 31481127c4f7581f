"""The virtual environment of each peer, made with uv on first use.

Versions are pinned; torch is the same in all. The published guideloom 1.1.0 needs Python 3.13,
which uv finds on the path or downloads.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_TORCH = "torch==2.15.0"
_NUMPY = "numpy==2.4.6"


class Script(NamedTuple):
    """A peer's script, and what it runs in: nothing for the project's own environment."""

    module: str
    environment: str
    requirements: tuple[str, ...] = ()
    python: str = "3.11"


SCRIPTS: dict[str, Script] = {
    "GuideLoom": Script("guideloom_loader", ""),
    "torch": Script("torch_loader", "torch", (_TORCH, _NUMPY, "torchdata==0.11.0")),
    "torchdata": Script("torchdata_loader", "torch", (_TORCH, _NUMPY, "torchdata==0.11.0")),
    "Streaming": Script("streaming_loader", "streaming", (_TORCH, "mosaicml-streaming==0.13.0")),
    "LitData": Script("litdata_loader", "litdata", (_TORCH, _NUMPY, "litdata==0.2.76")),
    "Grain": Script("grain_loader", "grain", (_TORCH, _NUMPY, "grain==0.2.18")),
    "bagz": Script("bagz_loader", "bagz", (_TORCH, _NUMPY, "bagz==0.3.8")),
    "Megatron": Script("megatron_loader", "megatron", (_TORCH, _NUMPY, "megatron-core==0.16.1")),
    "Lance": Script("lance_shards", "lance", (_TORCH, _NUMPY, "pylance==14.0.2")),
    "guideloom 1": Script(
        "guideloom_1_loader", "guideloom-1", (_TORCH, _NUMPY, "guideloom[torch]==1.1.0"), "3.13"
    ),
}


def python_of(script: Script, folder: Path) -> str:
    """The interpreter of a script's environment, which is made if it is not there or another.

    Raises:
        RuntimeError: it cannot be made; the message is uv's.
    """
    if not script.environment:
        return sys.executable
    place = folder / script.environment
    python = place / "bin" / "python"
    wanted = "\n".join((script.python, *script.requirements))
    mark = place / "requirements.txt"
    if not mark.exists() or mark.read_text() != wanted:
        print(f"making the environment {script.environment} …", file=sys.stderr, flush=True)
        shutil.rmtree(place, ignore_errors=True)
        _uv("venv", "--python", script.python, str(place))
        _uv("pip", "install", "--python", str(python), *script.requirements)
        mark.write_text(wanted)
    return str(python)


def _uv(*arguments: str) -> None:
    found = shutil.which("uv")
    command = [found] if found else [shutil.which("python3") or sys.executable, "-m", "uv"]
    environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    done = subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise RuntimeError(f"uv {arguments[0]} failed: {' / '.join(lines)[:300]}")

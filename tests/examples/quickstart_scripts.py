"""How the tests reach the scripts of the quick-start: as a user does, and as modules."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"
KILLER = Path(__file__).parent / "kill_at_call.py"


def run_script(
    name: str, *arguments: object, kill_at: tuple[int, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script to its end, or kill it where it makes one more call than so many.

    A warning of any library in use makes the script fail.
    """
    command = [str(QUICKSTART / name), *map(str, arguments)]
    if kill_at is not None:
        command = [str(KILLER), *map(str, kill_at), *command]
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def load_module(name: str) -> Any:
    """One of the modules, under a name that nobody else has; nor do those stay that it imports."""
    spec = importlib.util.spec_from_file_location(f"quickstart_{name}", QUICKSTART / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = dict(sys.modules)
    sys.path.insert(0, str(QUICKSTART))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(QUICKSTART))
        for path in QUICKSTART.glob("*.py"):
            sys.modules.pop(path.stem, None)
            if path.stem in before:
                sys.modules[path.stem] = before[path.stem]
    return module

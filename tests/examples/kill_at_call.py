"""Run a script; kill its process (SIGKILL) where it calls one of some functions of `os` once more.

    python kill_at_call.py N FUNCTION,FUNCTION,... SCRIPT ARGUMENT...

N calls are done, the next one is not.
"""

import os
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def arm(calls: int, names: list[str]) -> None:
    """Let the process die at the call behind so many."""
    left = iter(range(calls))

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return wrapped

    for name in names:
        setattr(os, name, dying(getattr(os, name)))


if __name__ == "__main__":
    arm(int(sys.argv[1]), sys.argv[2].split(","))
    sys.argv = sys.argv[3:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")

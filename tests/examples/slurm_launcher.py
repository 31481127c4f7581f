"""A stand-in for srun and mpirun: starts the processes of a job and waits for all of them.

    python slurm_launcher.py SCRIPT

Jobs come on standard input, one after the other, each a line of JSON: `folder`, and `processes`,
each with `environment`, `arguments`, and perhaps a `signal` with `at` (so many calls of the
operating system are made, the signal comes at the next one) or `after` (seconds). The output of
process r goes to r.out and r.err in the folder. When all have ended, a line has the list of their
exit codes, a negative one where a signal ended the process.

The processes are forked from this one, which has imported everything: real ones, quickly started.
"""

import contextlib
import json
import os
import random
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS = ("open", "write", "fsync", "close", "link", "unlink", "mkdir", "utime", "replace")


def arm(calls: int, number: int) -> None:
    """Let this process get a signal at the entry of the call behind so many."""
    counted = iter(range(calls + 1))

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if next(counted, None) == calls:
                os.kill(os.getpid(), number)
            return function(*arguments, **options)

        return wrapped

    for name in CALLS:
        setattr(os, name, watched(getattr(os, name)))


def start(main: Callable[[], None], script: str, process: dict[str, Any], base: Path) -> int:
    """The id of a new process that runs `main`."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        for number, end in ((1, "out"), (2, "err")):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(base.with_suffix(f".{end}"), flags, 0o644), number)
        random.seed()
        os.environ.update(process["environment"])
        sys.argv = [script, *process["arguments"]]
        if "at" in process:
            arm(process["at"], process["signal"])
        try:
            main()
            code = 0
        except SystemExit as error:
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
            code = error.code if isinstance(error.code, int) else error.code is not None
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def launch(
    main: Callable[[], None], script: str, folder: Path, processes: list[dict[str, Any]]
) -> list[int]:
    """Start all, signal those that are to be signalled, wait for all: their exit codes."""
    begun = time.monotonic()
    children = [
        start(main, script, process, folder / str(rank)) for rank, process in enumerate(processes)
    ]
    signals = sorted(
        (process["after"], child, process["signal"])
        for process, child in zip(processes, children, strict=True)
        if "after" in process
    )
    for at, child, number in signals:
        time.sleep(max(0.0, begun + at - time.monotonic()))
        with contextlib.suppress(ProcessLookupError):  # not waited for yet: the id is still its own
            os.kill(child, number)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def serve(script: str) -> None:
    """Job after job, until there are no more."""
    main: Callable[[], None] = runpy.run_path(script)["main"]
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(launch(main, script, Path(job["folder"]), job["processes"])), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])

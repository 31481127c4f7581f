"""A peer's script as a process that the driver talks to."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parent.parent
SECONDS = 600.0


class PeerError(Exception):
    """A peer could not do what it was asked; the message says what it said."""


class PeerProcess:
    """One script at work, in a session of its own with all its workers.

    Between its turns it can be stopped as a whole, so that whatever it does in the background does
    not disturb the others.
    """

    def __init__(self, python: str, module: str, tokens: Path, log: Path) -> None:
        self._log = log
        self.began = time.perf_counter()  # the same clock in all processes
        left_out = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [python, "-m", f"peers.{module}", str(tokens)],
                cwd=BENCHMARKS,
                env={key: value for key, value in os.environ.items() if key not in left_out},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._answers = selectors.DefaultSelector()
        self._answers.register(self._pipe(), selectors.EVENT_READ)
        try:
            self.imported = float(self._answer(SECONDS)["imported"])
        except BaseException:
            self.close()
            raise

    def call(self, do: str, **arguments: Any) -> Any:
        """The result of a command.

        Raises:
            PeerError: it failed, or there was no answer in time.
        """
        stdin = self._process.stdin
        if stdin is None:
            raise PeerError("the process has no pipe")
        try:
            stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            stdin.flush()
        except OSError as error:
            raise PeerError(f"the process has ended; see {self._log}") from error
        return self._answer(SECONDS)

    def pause(self) -> None:
        """Stop the process and its workers."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let them run."""
        self._signal(signal.SIGCONT)

    def memory(self) -> tuple[float, float]:
        """Bytes over all its processes: proportional share (PSS), and of that what is no file."""
        whole = own = 0
        for process in _session(self._process.pid):
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
                    name, _, value = line.partition(":")
                    if name == "Pss":
                        whole += int(value.split()[0])
                    elif name in ("Pss_Anon", "Pss_Shmem"):
                        own += int(value.split()[0])
        return 1024.0 * whole, 1024.0 * own

    def close(self) -> None:
        """End it, and whatever it has left running."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._signal(signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._answers.close()

    def _signal(self, number: signal.Signals) -> None:
        """To all of them; those that have ended already do not matter."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _pipe(self) -> Any:
        return self._process.stdout

    def _answer(self, seconds: float) -> Any:
        """The next line, which is whole once it begins."""
        if not self._answers.select(seconds):
            raise PeerError(f"no answer within {seconds:.0f} s")
        line = self._pipe().readline()
        if not line:
            raise PeerError(f"the process has ended: {_last_line(self._log)}")
        content = json.loads(line)
        if "error" in content:
            raise PeerError(content["error"])
        return content["result"]


def _session(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader:
                    found.append(int(name))
    return found


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"

"""Which process writes, and whether a process that was noted down still runs.

A process id says little: ids are used again, and containers and machines have their own. What is
noted besides tells them apart, as far as Linux says it in ``/proc``.
"""

from __future__ import annotations

import hmac
import os
import socket
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class State(Enum):
    """What this process can say about another one."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Process:
    """A process, as it is noted down.

    Attributes:
        host: name of the machine.
        pid: its number in its namespace.
        machine: made from the machine's own id, which is confidential; empty if it has none.
        boot: random, another one after every start of the machine.
        pid_namespace: in which the number counts; containers have their own.
        started: when the process began, in ticks since the machine did.
    """

    host: str
    pid: int
    machine: str
    boot: str
    pid_namespace: str
    started: str


def this_process() -> Process:
    """The process that runs this."""
    pid = os.getpid()
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    status = _status(pid)
    return Process(
        host=socket.gethostname(),
        pid=pid,
        machine=_hidden_id(_line("/etc/machine-id")),
        boot=_line("/proc/sys/kernel/random/boot_id"),
        pid_namespace=namespace,
        started=status[1] if status is not None else "",
    )


def state_of(other: Process) -> State:
    """Whether a process still runs; unknown if it is of another machine or container.

    A machine that has the same name and id and was started anew runs it no more.
    """
    here = this_process()
    if (other.host, other.machine) != (here.host, here.machine):
        return State.UNKNOWN
    if other.boot != here.boot:
        return State.DEAD if here.machine and other.boot and here.boot else State.UNKNOWN
    if other.pid_namespace != here.pid_namespace or not here.started:
        return State.UNKNOWN
    status = _status(other.pid)
    if status is None:
        return State.ALIVE if _hidden(other.pid) else State.DEAD
    runs = status[0] not in "ZX" and status[1] == other.started
    return State.ALIVE if runs else State.DEAD


def _hidden(pid: int) -> bool:
    """Whether a process runs of which `/proc` shows nothing to this user."""
    try:
        os.kill(pid, 0)  # asks only
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _status(pid: int) -> tuple[str, str] | None:
    """(state letter, start time) of a process here; None if there is none."""
    text = _line(f"/proc/{pid}/stat")
    fields = text.rpartition(")")[2].split()  # the name before may contain anything
    return (fields[0], fields[19]) if len(fields) > 19 else None


def _hidden_id(machine_id: str) -> str:
    """Something else that is the same on the same machine, as machine-id(5) asks for."""
    if not machine_id:
        return ""
    return hmac.new(machine_id.encode(), b"guideloom owner", "sha256").hexdigest()[:32]


def _line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""

"""A Ray cluster of two node processes on this machine, held by a process of its own.

``python cluster_host.py`` starts it and obeys commands that come as lines on its standard input;
each is answered by a line of JSON. When the input ends, every process that was started is ended.
Everything listens on 127.0.0.1 only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from ray.cluster_utils import Cluster

LOCALHOST = "127.0.0.1"
OBJECT_STORE_BYTES = 100_000_000
ATTEMPTS = 3
_SET_CHILD_SUBREAPER = 36
_NODE: dict[str, Any] = {
    "num_cpus": 1,
    "node_ip_address": LOCALHOST,
    "include_dashboard": False,
    "object_store_memory": OBJECT_STORE_BYTES,
}
_NOTICE_DEAD_NODES = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}


def processes() -> dict[int, tuple[int, str]]:
    """(parent, when it was started) of every process that runs."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    found[int(folder.name)] = int(fields[1]), fields[19]
    return found


def below(ancestor: int) -> list[int]:
    """The processes that a process started, and those that these started, and so on."""
    parents = processes()
    found = [ancestor]
    for pid in found:
        found += [child for child, (parent, _) in parents.items() if parent == pid]
    return found[1:]


def listening(pids: list[int]) -> dict[str, int]:
    """Addresses on which these processes accept connections, and who."""
    inodes: dict[str, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes[os.readlink(descriptor)] = pid
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            owner = inodes.get(f"socket:[{fields[9]}]")
            if fields[3] == "0A" and owner is not None:
                found[_address(fields[1])] = owner
    return found


def _address(text: str) -> str:
    """``0100007F:1F90`` and the like, as people write it; mapped addresses like those of IPv4."""
    host, port = text.split(":")
    words = b"".join(bytes.fromhex(host[k : k + 8])[::-1] for k in range(0, len(host), 8))
    if len(words) == 16 and words[:12] == bytes(10) + b"\xff\xff":
        words = words[12:]
    shown = ".".join(map(str, words)) if len(words) == 4 else words.hex()
    return f"{shown}:{int(port, 16)}"


class Host:
    """The cluster and what can be done to it."""

    def __init__(self) -> None:
        self._cluster = Cluster(
            initialize_head=True, head_node_args={**_NODE, "_system_config": _NOTICE_DEAD_NODES}
        )
        self._node: Any = None
        self.second_node()

    def address(self) -> str:
        """Of the cluster."""
        return str(self._cluster.address)

    def second_node(self) -> str:
        """The id of the second node, which is started if there is none."""
        if self._node is None:
            self._node = self._cluster.add_node(**_NODE)
        return str(self._node.node_id)

    def kill_second_node(self) -> list[int]:
        """Kill every process of the second node at once; their ids."""
        raylet = self._node.all_processes["raylet"][0].process.pid
        killed = [raylet, *below(raylet)]
        for pid in killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._cluster.remove_node(self._node, allow_graceful=False)
        self._node = None
        return killed

    def sockets(self) -> dict[str, int]:
        """All addresses that any of the processes listens on."""
        return listening([os.getpid(), *below(os.getpid())])

    def started(self) -> list[tuple[int, str]]:
        """(id, when it was started) of every process of the cluster."""
        known = processes()
        return [(pid, known[pid][1]) for pid in below(os.getpid()) if pid in known]


def end_all() -> None:
    """Kill every process that was started; none has anything to save."""
    end = time.monotonic() + 30
    while (left := below(os.getpid())) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)


def started_host() -> Host:
    """Again, where the machine is too busy for the patience that Ray has."""
    for _ in range(ATTEMPTS - 1):
        try:
            return Host()
        except Exception:  # noqa: BLE001  # Ray raises just that
            traceback.print_exc()
            end_all()
    return Host()


def main() -> None:
    parent = os.getppid()
    # Whoever loses its parent becomes a child of this process, so that none is forgotten.
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the libraries print is no answer
    try:
        obey(started_host(), answers)
    finally:
        end_all()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"processes took {usage.ru_utime + usage.ru_stime:.1f} s of processors")
        if os.getppid() != parent:  # the tests were killed, and nobody else tidies up
            shutil.rmtree(os.environ["RAY_TMPDIR"], ignore_errors=True)


def obey(host: Host, answers: TextIO) -> None:
    """Do what the lines of the standard input say."""
    commands: dict[str, Callable[[], Any]] = {
        name: getattr(host, name)
        for name in ("address", "second_node", "kill_second_node", "sockets", "started")
    }
    for line in sys.stdin:
        print(json.dumps(commands[line.strip()]()), file=answers)


if __name__ == "__main__":
    main()

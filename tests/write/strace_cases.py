"""Real writing processes under strace: what calls they make, and what happens to one of them.

strace attaches to a process that is about to begin (see `traced_writer`), so the n-th call of a
kind is the n-th of the work itself, and the same in every run. Two things about strace 6.1 that
would let a test pass without a fault: a call that is injected into and not traced
(``trace=none``), and a signal together with ``--seccomp-bpf``, are silently left out. So what was
hit is read in the log, every time.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

import pytest

from guideloom_format import _names
from write.known_content import COMMIT, Script
from write.traced_writer import BEGIN, SECONDS, Job

SCRIPTS: dict[str, Script] = {
    "stream": [(0, 9), (1, 8000), (2, 4), COMMIT, (1, 25), COMMIT],
    "documents": [(0, 9), (1, 20), (2, 4), COMMIT, (1, 25), COMMIT],
    "spans": [(0, 9), (1, 60), (2, 4), COMMIT, (1, 25), COMMIT],
}
"""Three shards and four parts of each kind of data, one file of them larger than the buffer."""

each_kind = pytest.mark.parametrize("kind", list(SCRIPTS))

TESTS = Path(__file__).parents[1]
EVERYTHING = "%file,%desc"
KILLED = "+++ killed by SIGKILL +++"

_CALL = re.compile(r"(\w+)\((.*)\)\s+= (.+)")
_PATH = re.compile(r'\b\d+<(/[^>]*)>|"(/[^"]*)"')
_TOKEN = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Call:
    """One line of the log."""

    name: str
    arguments: str
    result: str

    @property
    def paths(self) -> list[str]:
        """Of the names and of the descriptors among the arguments."""
        return [name or path for name, path in _PATH.findall(self.arguments)]

    @property
    def path(self) -> str:
        """The last one: what is created by a link or a rename."""
        return self.paths[-1]

    @property
    def injected(self) -> bool:
        return "(INJECTED)" in self.result

    @property
    def done(self) -> bool:
        """Whether the call was made, and without an error."""
        return not self.injected and not self.result.startswith(("-1", "?"))

    def touches(self, place: Path) -> bool:
        return any(Path(path).is_relative_to(place) for path in self.paths)

    def key(self, place: Path) -> str:
        """The same for the same call in another run, in another place."""
        return f"{self.name} {' '.join(path_key(path, place) for path in self.paths)}"


def path_key(path: str, place: Path) -> str:
    """The same for the same path in another run, in another place."""
    return _TOKEN.sub("TOKEN", path.removeprefix(str(place)))


@dataclass
class Outcome:
    """What became of a job.

    Attributes:
        committed: length of each shard, as the process said after its last commit.
        finished: shards that are, as the process said.
        version: of the manifest, as it said after consolidating.
        error: what a GuideLoomError said.
        signals: how many the process got.
        status: of the process; negative: the signal that ended it.
        calls: the log.
        end: the last line of the log.
    """

    committed: dict[int, int] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    version: int | None = None
    error: str | None = None
    number: int | None = None
    signals: int = 0
    status: int | None = None
    calls: list[Call] = field(default_factory=list)
    end: str = ""

    def take(self, said: dict[str, Any]) -> None:
        """What the process said."""
        if "committed" in said:
            self.committed = {int(shard): length for shard, length in said["committed"].items()}
        if "finished" in said:
            self.finished.add(said["finished"])
        self.version = said.get("version", self.version)
        if "error" in said:
            self.error, self.number = said["error"]["text"], said["error"]["number"]
        self.signals = said.get("signals", self.signals)
        self.status = said.get("exit", self.status)

    def linked(self) -> set[tuple[int, int]]:
        """The parts whose commit record was created."""
        return linked_by(self.calls)


def linked_by(calls: Iterable[Call]) -> set[tuple[int, int]]:
    """The parts whose commit record these calls create."""
    made = (call.path for call in calls if call.name.startswith("link") and call.done)
    names = (_names.parse_commit_name(Path(path).name) for path in made)
    return {name for name in names if name is not None}


class Writers:
    """Runs jobs, each in a real process of its own; with `options` for strace, under that."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._pid = 0  # of the child that works

    def __enter__(self) -> Self:
        paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "write.traced_writer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                "PYTHONHASHSEED": "0",
                "OPENBLAS_NUM_THREADS": "1",
            },
        )
        assert self._hear() == {"ready": True}
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(SECONDS)

    def run(self, job: Job, options: Sequence[str] | None = None) -> Outcome:
        """Do a job."""
        self._tell(job.encode())
        pid = self._pid = self._hear()["pid"]
        outcome = Outcome()
        if options is None:
            self._finish(pid, outcome)
            return outcome
        with tempfile.NamedTemporaryFile("r", prefix="strace") as log:
            command = ["strace", "-y", "-s0", "-o", log.name, *options, "-p", str(pid)]
            with subprocess.Popen(command, stderr=subprocess.PIPE) as strace:
                assert strace.stderr is not None
                told = strace.stderr.readline().decode()
                if "attached" not in told:
                    self._finish(pid, outcome)
                    pytest.fail(f"{' '.join(command)} does not work here: {told}")
                self._finish(pid, outcome)
                strace.wait(SECONDS)
            *lines, outcome.end = log.read().splitlines()
        matches = (_CALL.fullmatch(line) for line in lines)
        outcome.calls = [Call(*match.groups()) for match in matches if match is not None]
        return outcome

    def _finish(self, pid: int, outcome: Outcome) -> None:
        os.kill(pid, BEGIN)
        while outcome.status is None:
            outcome.take(self._hear())
        self._pid = 0

    def _tell(self, data: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            self._rest += self._more(self._process.stdout)
        line, self._rest = self._rest.split(b"\n", 1)
        said: dict[str, Any] = json.loads(line)
        return said

    def _more(self, stream: IO[bytes]) -> bytes:
        ready, _, _ = select.select([stream], [], [], SECONDS)
        data = os.read(stream.fileno(), 1 << 16) if ready else b""
        if not data:
            if self._pid:
                os.kill(self._pid, signal.SIGKILL)
            pytest.fail(f"the writing process said nothing more within {SECONDS} s, or ended")
        return data


@contextmanager
def place_in_memory() -> Iterator[Path]:
    """A folder where syncing costs nothing: the machine does not die here, processes do."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as place:
        yield Path(place)


def job_in(place: Path, kind: str) -> Job:
    """Three shards; more than may be open at once, and more than the buffer holds."""
    return Job(kind, str(place / "x"), SCRIPTS[kind], most_open=2, buffer=65536)


def need_strace() -> None:
    if shutil.which("strace") is None:
        pytest.fail(
            "strace is not installed. These tests kill real processes at each of their calls with "
            "it: apt-get install strace"
        )


@dataclass(frozen=True)
class Point:
    """A call of an undisturbed run that touches the place.

    Attributes:
        name: of the call.
        when: how many calls of that name there are up to this one.
        key: which call it is.
        linked: the parts whose commit record is there before it.
    """

    name: str
    when: int
    key: str
    linked: frozenset[tuple[int, int]]


def points_of(calls: Sequence[Call], place: Path) -> list[Point]:
    """All calls that touch the place."""
    counts = Counter[str]()
    points = []
    for k, call in enumerate(calls):
        counts[call.name] += 1
        if call.touches(place):
            linked = frozenset(linked_by(calls[:k]))
            points.append(Point(call.name, counts[call.name], call.key(place), linked))
    return points


LOOKS = {"newfstatat", "fstat", "statx", "ioctl", "lseek", "read", "getdents64"}
"""These change nothing: a kill at one of them leaves what a kill at the next call leaves."""

every_call = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
"""In each run all calls but those that only look, and every fourth of these; all by command."""


def thinned(points: Sequence[Point], every: int) -> list[Point]:
    """The calls that change something, and one in so many of those that only look."""
    looks = [point for point in points if point.name in LOOKS][::every]
    kept = [point for point in points if point.name not in LOOKS or point in looks]
    assert {point.name for point in kept} == {point.name for point in points}
    return kept


def inject(point: Point, what: str, *, also: str = "") -> list[str]:
    """Options that let this happen at the point; calls named in `also` are logged, too."""
    traced = ",".join(filter(None, [point.name, also]))
    return ["-e", f"trace={traced}", "-e", f"inject={point.name}:{what}:when={point.when}"]

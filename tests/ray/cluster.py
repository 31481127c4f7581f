"""For tests: a cluster of two nodes (see `cluster_host`), and drivers that run on it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
START_SECONDS = 120.0
JOB_SECONDS = 180.0
RESULT = "RESULT "  # before the line of a driver that says what was done


class TwoNodes:
    """The cluster; drivers are started with `driver`."""

    def __init__(self, folder: Path) -> None:
        self._environment = {
            **os.environ,
            "RAY_TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # nodes are found at 127.0.0.1, not by name
            "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        (folder / "ray").mkdir()
        with (folder / "host.log").open("wb") as log:
            self._host = subprocess.Popen(
                [sys.executable, str(HERE / "cluster_host.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                text=True,
            )
        self.folder = folder
        self._drivers = 0
        try:
            self.address = self.ask("address")
        except BaseException:
            self.stop()
            raise

    def ask(self, command: str) -> Any:
        """What the host answers to a command."""
        assert self._host.stdin is not None
        assert self._host.stdout is not None
        self._host.stdin.write(f"{command}\n")
        self._host.stdin.flush()
        answer = self._host.stdout.readline()
        if not answer:
            raise AssertionError(f"the cluster ended:\n{(self.folder / 'host.log').read_text()}")
        return json.loads(answer)

    def stop(self) -> None:
        assert self._host.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._host.stdin.close()
        try:
            self._host.wait(60)
        finally:
            self._host.kill()
            self._host.wait()
            assert self._host.stdout is not None
            self._host.stdout.close()

    def program(self, code: str, folder: Path) -> Driver:
        """Start a program of a user, who calls ``ray.init()`` for the cluster at hand."""
        self._drivers += 1
        return Driver(
            [sys.executable, "-c", code],
            {**self._environment, "RAY_ADDRESS": self.address},
            self.folder / f"driver-{self._drivers}.log",
            folder,
        )

    def driver(self, *steps: tuple[str, dict[str, Any]]) -> Driver:
        """Start a driver that does this; see `drivers`."""
        self._drivers += 1
        return Driver(
            [sys.executable, str(HERE / "drivers.py"), self.address, json.dumps(steps)],
            self._environment,
            self.folder / f"driver-{self._drivers}.log",
        )


class Driver:
    """A driver that runs."""

    def __init__(
        self,
        command: list[str],
        environment: dict[str, str],
        log: Path,
        folder: Path | None = None,
    ) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                cwd=folder,
                text=True,
            )

    def wait_for(self, path: Path) -> None:
        """Until a file is there."""
        end = time.monotonic() + JOB_SECONDS
        while not path.exists():
            assert self._process.poll() is None, f"the driver ended early:\n{self.log()}"
            assert time.monotonic() < end, f"{path} did not come:\n{self.log()}"
            time.sleep(0.05)

    def kill(self) -> None:
        self.stop()
        assert self._process.returncode == -9

    def stop(self) -> None:
        """Kill it, if it has not ended."""
        self._process.kill()
        self.end()

    def end(self) -> tuple[int, str]:
        """(exit status, output) at the end."""
        try:
            output, _ = self._process.communicate(timeout=JOB_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
        return self._process.returncode, output

    def result(self) -> Any:
        """What a driver that ends well says of each step."""
        status, output = self.end()
        assert status == 0, self.log()
        told = [line for line in output.splitlines() if line.startswith(RESULT)]
        return json.loads(told[-1].removeprefix(RESULT))  # Ray writes there, too

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-8000:]


@contextmanager
def two_nodes() -> Iterator[TwoNodes]:
    """A cluster for a while, with a folder of its own, whose name is short as sockets need it."""
    folder = Path(tempfile.mkdtemp(prefix="guideloom-ray-"))
    try:
        cluster = TwoNodes(folder)
        try:
            yield cluster
        finally:
            cluster.stop()
            print((folder / "host.log").read_text().splitlines()[-1])
    finally:
        shutil.rmtree(folder, ignore_errors=True)

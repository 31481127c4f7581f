"""What a process does to files and other processes, seen by an audit hook, and its memory."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PATHS_OF = {
    "open": 1,
    "os.listdir": 1,
    "os.scandir": 1,
    "os.mkdir": 1,
    "os.rmdir": 1,
    "os.remove": 1,
    "os.rename": 2,
    "os.link": 2,
    "os.symlink": 2,
    "os.truncate": 1,
    "os.chmod": 1,
    "os.chown": 1,
    "os.chdir": 1,
    "os.utime": 1,
    "shutil.rmtree": 1,
    "shutil.copyfile": 2,
    "shutil.move": 2,
}
"""For each event how many of its arguments are paths."""

FORBIDDEN = {
    *("pickle.find_class", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"),
    *("os.fork", "os.forkpty", "os.spawn", "socket.__new__", "socket.connect", "socket.bind"),
    *("ctypes.dlopen", "os.kill", "signal.pthread_kill", "os.putenv", "builtins.input"),
}
"""What no file of a dataset may bring about."""

ASKED_OF_THE_SYSTEM = re.compile(
    r"/etc/machine-id|/proc/sys/kernel/random/boot_id|/proc/self/(status|clear_refs)|/proc/\d+/stat"
)
"""Who runs here: what an owner's note is compared with. No file's text becomes part of a name."""

RUNS_CODE = {"exec", "compile"}


class Watch:
    """Notes whatever is done outside of a folder; install it once, it cannot be removed."""

    def __init__(self) -> None:
        self._folder: str | None = None
        self._links_allowed = False
        self._code = tuple(
            os.path.realpath(path)
            for path in {sys.prefix, sys.base_prefix, *filter(None, sys.path)}
            if path
        )
        self.escapes: list[str] = []
        sys.addaudithook(self._see)

    @contextlib.contextmanager
    def only_below(self, folder: Path, *, links_allowed: bool) -> Iterator[list[str]]:
        """Everything that is done outside of this folder in the block, as text.

        Args:
            folder: the dataset.
            links_allowed: whether folders in it may be links that lead out of it.
        """
        self.escapes = []
        self._links_allowed = links_allowed
        self._folder = os.path.realpath(folder)
        try:
            yield self.escapes
        finally:
            self._folder = None

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        folder = self._folder
        if folder is None:
            return
        self._folder = None  # what is called from here is not looked at
        try:
            if event == "os.kill":  # signal 0 only asks whether there is such a process
                if arguments[1] != 0:
                    self.escapes.append(f"{event} {arguments}")
            elif event in FORBIDDEN or (event in RUNS_CODE and self._is_foreign(event, arguments)):
                self.escapes.append(f"{event} {arguments!r:.200}")
            elif event in PATHS_OF:
                self._look_at(event, arguments[: PATHS_OF[event]], arguments, folder)
        finally:
            self._folder = folder

    def _look_at(
        self, event: str, paths: Sequence[Any], arguments: tuple[Any, ...], folder: str
    ) -> None:
        for path in paths:
            if isinstance(path, int) or path is None:
                continue  # a descriptor: it was looked at when it was opened
            text = os.path.abspath(os.fsdecode(path))
            if event == "open" and os.path.islink(text) and _follows_links(arguments):
                self.escapes.append(f"a link is followed: {text!r:.300}")
            if not self._allowed(text, folder, reads=_only_reads(event, arguments)):
                self.escapes.append(f"{event} {text!r:.300}")

    def _allowed(self, path: str, folder: str, *, reads: bool) -> bool:
        if reads and ASKED_OF_THE_SYSTEM.fullmatch(path):
            return True
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if _is_below(path, folder) and (self._links_allowed or _is_below(real, folder)):
            return True
        return reads and real.startswith(self._code)

    def _is_foreign(self, event: str, arguments: tuple[Any, ...]) -> bool:
        """Whether code is run that is not part of the interpreter or of the packages."""
        if event == "compile" and arguments[0] == b"_getframe()":
            return False  # compiled modules do that for the first traceback
        file = arguments[0].co_filename if event == "exec" else arguments[1]
        name = os.path.realpath(os.fsdecode(file or ""))
        return not name.startswith(self._code) and not str(file).startswith("<frozen")


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


def _follows_links(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2]
    if not isinstance(flags, int):
        return True
    created = flags & os.O_EXCL and flags & os.O_CREAT
    return not (created or flags & (os.O_NOFOLLOW | os.O_DIRECTORY))


def _only_reads(event: str, arguments: tuple[Any, ...]) -> bool:
    if event != "open":
        return event in ("os.listdir", "os.scandir")
    flags = arguments[2]
    return isinstance(flags, int) and not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)


def reset_peak() -> None:
    """Forget the peak of resident memory, where the system lets a process do that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_mib() -> float:
    """The most memory that this process had since `reset_peak`."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024

"""Install the built wheels per role in clean environments and use them there.

Run as ``python try_wheels.py FOLDER_OF_WHEELS``. Every CPython from 3.11 up that is on the machine
is tried: those on the PATH, those that uv knows, and those under pyenv.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WRITER = """
import sys
import numpy as np
from guideloom import MissingPackageError, StreamNumpyFormat, StreamStorage
storage = StreamStorage(sys.argv[1], StreamNumpyFormat(np.dtype([("tokens", "<u2")])))
with storage.sync_writer() as writer:
    writer.append(0, {"tokens": np.arange(1000)})
try:
    storage.sync_reader()
except MissingPackageError as error:
    assert "pip install guideloom-read" in str(error), error
else:
    raise SystemExit("sync_reader() worked without guideloom-read")
"""
READER = """
import sys
import numpy as np
from guideloom import MissingPackageError, StreamDataset, StreamNumpyFormat, StreamStorage
storage = StreamStorage(sys.argv[1], StreamNumpyFormat(np.dtype([("tokens", "<u2")])))
with StreamDataset(storage, sequence_length=10).sync_reader() as reader:
    assert reader.gather([99, 0])["tokens"].tolist() == [list(range(990, 1000)), list(range(10))]
try:
    storage.sync_writer()
except MissingPackageError as error:
    assert "pip install guideloom-write" in str(error), error
else:
    raise SystemExit("sync_writer() worked without guideloom-write")
"""
ABSENT = """
import importlib.util, sys
found = [name for name in sys.argv[1:] if importlib.util.find_spec(name)]
if found:
    raise SystemExit(f"installed, but should not be: {found}")
"""


def pythons() -> dict[str, str]:
    """An interpreter for each version from 3.11 up: "3.12" -> its path."""
    uv_list = uv("python", "list", "--only-installed", capture=True)
    candidates = re.findall(r"^cpython-\S+\s+(\S+)", uv_list, re.MULTILINE)
    candidates += [
        path for minor in range(11, 30) if (path := shutil.which(f"python3.{minor}")) is not None
    ]
    candidates += map(str, sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3")))
    candidates.append(sys.executable)
    found: dict[str, str] = {}
    for path in candidates:
        command = [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        version = result.stdout.strip()
        if result.returncode == 0 and int(version.split(".")[1]) >= 11:
            found.setdefault(version, path)
    return found


def uv(*arguments: str, capture: bool = False) -> str:
    command = [sys.executable, "-m", "uv", *arguments]
    if shutil.which("uv"):
        command = ["uv", *arguments]
    result = subprocess.run(
        command, check=True, text=True, stdout=subprocess.PIPE if capture else None
    )
    return result.stdout or ""


def environment(folder: Path, python: str, wheels: str, *packages: str) -> str:
    """A new environment with these packages; the path of its interpreter."""
    uv("venv", "--quiet", "--python", python, str(folder))
    interpreter = str(folder / "bin" / "python")
    names = [f"{package}==0.1.0" for package in packages]
    uv("pip", "install", "--quiet", "--python", interpreter, "--find-links", wheels, *names)
    return interpreter


def run(interpreter: str, code: str, *arguments: str) -> None:
    options = ["-I", "-W", "error"]
    subprocess.run(
        [interpreter, *options, "-c", code, *arguments], check=True, cwd=tempfile.gettempdir()
    )


def main() -> None:
    wheels = sys.argv[1]
    built = sorted(os.listdir(wheels))
    compiled = [name for name in built if "abi3" in name]
    assert len(compiled) == 2, built
    for version, python in sorted(pythons().items()):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            dataset = str(root / "dataset")
            writer = environment(root / "writer", python, wheels, "guideloom-write")
            run(writer, WRITER, dataset)
            run(writer, ABSENT, "guideloom_read", "guideloom_torch", "torch")
            reader = environment(root / "reader", python, wheels, "guideloom-read")
            run(reader, READER, dataset)
            run(reader, ABSENT, "guideloom_write", "guideloom_torch", "torch")
            both = environment(root / "both", python, wheels, "guideloom")
            run(both, "from guideloom import StreamDataset, StreamStorage; import guideloom_write")
        sys.stdout.write(f"Python {version}: writer only, reader only and guideloom work\n")


if __name__ == "__main__":
    main()

"""The targets over compiled modules that were built with AddressSanitizer and UBSan.

Needs gcc and Cython. The packages are copied to a scratch folder and built there; a process with
the sanitizers loaded then feeds each target its corpus, its seeds and random changes of them. A
read or write outside of memory, or arithmetic that C leaves undefined, ends it with a report.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from functools import partial
from pathlib import Path

from targets import NAMES, corpus_files, load
from targets.mutation import mutate_bytes

HERE = Path(__file__).resolve().parent
PACKAGES = ("guideloom", "guideloom_format", "guideloom_read", "guideloom_write")
FLAGS = [
    "-shared",
    "-fPIC",
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-DPy_LIMITED_API=0x030B0000",
]
WITHOUT_COMPILED_CODE = {"loader_state"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of targets; all when left out")
    parser.add_argument("--changes", type=int, default=1000, help="random changes for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--feed", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = arguments.names or [name for name in NAMES if name not in WITHOUT_COMPILED_CODE]
    if arguments.feed:
        feed(names, arguments.changes, arguments.seed)
        return 0
    with tempfile.TemporaryDirectory(prefix="guideloom-sanitized-") as folder:
        build(Path(folder))
        return run(Path(folder), names, arguments.changes, arguments.seed)


def build(folder: Path) -> None:
    """Copy the packages and build their compiled modules anew."""
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        shutil.copytree(
            Path(spec.origin).parent, folder / name, ignore=shutil.ignore_patterns("*.so", "*.c")
        )
    include = sysconfig.get_path("include")
    for source in sorted(folder.rglob("*.pyx")):
        subprocess.run([sys.executable, "-m", "cython", "-3", source], cwd=folder, check=True)
        target = source.with_suffix(".abi3.so")
        made: list[str | Path] = [source.with_suffix(".c"), "-o", target]
        subprocess.run(["gcc", *FLAGS, f"-I{include}", *made], check=True)
        print(f"built {source.relative_to(folder)}", flush=True)


def run(folder: Path, names: list[str], changes: int, seed: int) -> int:
    """Feed the targets in a process with the sanitizers."""
    libraries = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join([str(folder), str(HERE)]),
    }
    command = [sys.executable, __file__, "--feed", f"--changes={changes}", f"--seed={seed}", *names]
    return subprocess.run(command, env=environment, check=False).returncode


def feed(names: list[str], changes: int, seed: int) -> None:
    """All inputs of the corpus, and changes of them; the time of an input does not count."""
    for name in names:
        target = load(name)
        rng = random.Random(f"{name} {seed}")
        inputs = [*target.seeds(), *(path.read_bytes() for path in corpus_files(name))]
        for data in inputs:
            target.feed(data)
        for _ in range(changes):
            target.feed(target.mutate(rng.choice(inputs), rng, partial(mutate_bytes, rng=rng)))
        print(f"{name}: {len(inputs)} inputs and {changes} changes, nothing found", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""Break the packages on purpose, one fault at a time, and see that a test notices each.

``uv run python tests/sabotage/break_packages.py`` works on copies of the packages in a temporary
folder; the checkout is not touched. For each fault the named tests must be green without it and
red with it. The last line says how many were caught; the exit status is 0 if all were.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
TESTS_FAILED = 1  # pytest's exit status; others are mistakes of this script
PASSED = 0


def copied_packages(folder: Path) -> None:
    """The sources of all packages, with what was compiled."""
    for source in sorted((ROOT / "packages").glob("*/src")):
        target = folder / source.relative_to(ROOT / "packages")
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.c"))


def run_tests(folder: Path, tests: tuple[str, ...]) -> int:
    """pytest's exit status, with the packages of the folder."""
    sources = [str(source) for source in sorted(folder.glob("*/src"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sources)}
    check = "import guideloom_format as f, sys; sys.exit(not f.__file__.startswith(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", check, str(folder)], env=environment, check=True)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True).returncode


def edit(folder: Path, fault: Fault) -> None:
    path = folder / fault.file
    text = path.read_text(encoding="utf-8")
    if text.count(fault.right) != 1:
        raise SystemExit(f"{fault.file} does not hold once what {fault.name!r} replaces")
    path.write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")


def caught(fault: Fault, clean: dict[tuple[str, ...], int]) -> bool:
    """Whether the fault's tests are green without it and red with it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copied_packages(folder)
        if fault.tests not in clean:
            clean[fault.tests] = run_tests(folder, fault.tests)
        edit(folder, fault)
        return clean[fault.tests] == PASSED and run_tests(folder, fault.tests) == TESTS_FAILED


def main() -> int:
    parser = argparse.ArgumentParser(description="Break the packages, and see tests turn red.")
    parser.add_argument("names", nargs="*", help="faults to try, by a part of the name; all")
    given = parser.parse_args()
    wanted = [f for f in FAULTS if not given.names or any(n in f.name for n in given.names)]
    clean: dict[tuple[str, ...], int] = {}
    count = 0
    for fault in wanted:
        begin = time.monotonic()
        found = caught(fault, clean)
        count += found
        seconds = time.monotonic() - begin
        print(f"{'caught' if found else 'MISSED'}  {fault.name}  ({seconds:.0f} s)", flush=True)
    print(f"{count} of {len(wanted)} caught")
    return 0 if count == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main())

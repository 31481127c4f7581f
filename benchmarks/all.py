"""Run every benchmark, one after the other, each in a process of its own.

The figures come as one JSON file and as a Markdown table. How to read them: in the description at
the top of each script, and of side_by_side.py.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import machine_line
from side_by_side import argument_parser, number, work_folder

NAMES = (
    "gather",
    "loader",
    "shuffle",
    "documents",
    "annotated",
    "memory",
    "writer",
    "document_writer",
    "parallel_writing",
    "verify",
    "many_parts",
)
# What no other benchmark reads: removed at once, unless the folder is one to keep.
OWN_DATA = {
    "documents": "guideloom-documents-*",
    "annotated": "guideloom-annotated-*",
    "many_parts": "guideloom-parts-*",
}


def run(name: str, work: Path, options: list[str]) -> dict[str, Any]:
    """One benchmark's JSON."""
    script = Path(__file__).with_name(f"{name}.py")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, str(script), "--work", str(work), "--json", str(file), *options]
        subprocess.run(command, check=True)
        result: dict[str, Any] = json.loads(file.read_text())
    return result


def markdown(results: list[dict[str, Any]]) -> str:
    """All figures as a table, the machine below."""
    lines = ["| benchmark | figure | unit | median | min | max | target |"]
    lines.append("|---|---|---|--:|--:|--:|--:|")
    for result in results:
        for figure in result["figures"]:
            values = [number(figure[key]) for key in ("median", "min", "max")]
            values.append("" if figure["target"] is None else number(figure["target"]))
            cells = [result["benchmark"], figure["figure"], figure["unit"], *values]
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"Measured on: {machine_line(results[0]['machine'])}."]
    return "\n".join(lines)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    arguments = parser.parse_args()
    options = ["--quick"] if arguments.quick else []
    if arguments.rounds:
        options += ["--rounds", str(arguments.rounds)]
    with work_folder(arguments) as work:
        results = []
        for name in arguments.only:
            results.append(run(name, work, options))
            if arguments.work is None and name in OWN_DATA:
                for folder in work.glob(OWN_DATA[name]):
                    shutil.rmtree(folder)
    print("\n" + markdown(results))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Measuring contestants side by side, and showing the figures.

Contestants take turns in short rounds, A B C A B C …, so that whatever else the machine does hits
all of them. A ratio is formed within each round; what is reported is the median of the ratios over
the rounds, with the smallest and the largest. Far apart, they say that the machine was busy.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from machine import machine, machine_line

Prepare = Callable[[int], Callable[[], object]]


def race(contestants: Mapping[str, Prepare], rounds: int) -> dict[str, list[float]]:
    """Seconds of every contestant in every round, after one round that does not count.

    Args:
        contestants: by name, a function that prepares a round, given its number, and returns the
            call that is timed. What the call returns is released after the clock has stopped.
        rounds: how many count.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, prepare in contestants.items():
            call = prepare(number)
            begin = time.perf_counter()
            result = call()
            taken = time.perf_counter() - begin
            del result, call
            if number:
                seconds[name].append(taken)
    return seconds


class Report:
    """The figures of one benchmark: a table for people, a JSON file for programs."""

    def __init__(self, name: str, arguments: argparse.Namespace, work: Path) -> None:
        self.name = name
        self._json: Path | None = arguments.json
        self._machine = machine(work)
        self._settings: dict[str, object] = {"quick": arguments.quick}
        self._figures: list[dict[str, Any]] = []
        self._notes: list[str] = []

    def setting(self, name: str, value: object) -> None:
        """Something that the figures depend on."""
        self._settings[name] = value

    def note(self, text: str) -> None:
        """A remark below the table."""
        self._notes.append(text)

    def figure(
        self, name: str, unit: str, values: Sequence[float], target: float | None = None
    ) -> None:
        """A figure that was measured once per round."""
        self._figures.append(
            {
                "figure": name,
                "unit": unit,
                "median": statistics.median(values),
                "min": min(values),
                "max": max(values),
                "rounds": len(values),
                "target": target,
            }
        )

    def rates(
        self, seconds: Mapping[str, Sequence[float]], amount: float, unit: str, scale: float = 1.0
    ) -> None:
        """`amount` units per round and contestant, as units per second divided by `scale`."""
        for name, values in seconds.items():
            self.figure(name, unit, [amount / value / scale for value in values])

    def ratio(
        self,
        seconds: Mapping[str, Sequence[float]],
        name: str,
        over: str,
        target: float | None = None,
        label: str = "",
    ) -> None:
        """How fast `name` is compared with `over`: their speeds divided, round by round."""
        pairs = zip(seconds[name], seconds[over], strict=True)
        ratios = [base / mine for mine, base in pairs]
        self.figure(label or f"{name} / {over}", "ratio", ratios, target)

    def finish(self) -> None:
        """Print the table; write the JSON file if one was asked for."""
        rows = [("figure", "unit", "median", "min", "max", "target")]
        for figure in self._figures:
            low, middle, high = (number(figure[key]) for key in ("min", "median", "max"))
            target = "" if figure["target"] is None else number(figure["target"])
            rows.append((figure["figure"], figure["unit"], middle, low, high, target))
        widths = [max(len(row[column]) for row in rows) for column in range(6)]
        settings = ", ".join(f"{name} {value}" for name, value in self._settings.items())
        print(f"\n{self.name}: {settings}")
        for row in rows:
            texts = [row[column].ljust(widths[column]) for column in (0, 1)]
            texts += [row[column].rjust(widths[column]) for column in (2, 3, 4, 5)]
            print("  " + "  ".join(texts).rstrip())
        for note in self._notes:
            print(f"  {note}")
        print("  " + machine_line(self._machine), flush=True)
        if self._json is not None:
            content = {
                "benchmark": self.name,
                "machine": self._machine,
                "settings": self._settings,
                "figures": self._figures,
                "notes": self._notes,
            }
            self._json.write_text(json.dumps(content, indent=1) + "\n")


def number(value: float) -> str:
    """Three significant digits, or a whole number with commas."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all benchmarks have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small run: does it work at all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="folder for data; kept. Default: a temporary one"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds that count")
    return parser


@contextlib.contextmanager
def work_folder(arguments: argparse.Namespace) -> Iterator[Path]:
    """The folder for data; removed at the end if it is a temporary one."""
    given: Path | None = arguments.work
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="guideloom-benchmark-") as name:
        yield Path(name)

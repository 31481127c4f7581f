"""StatefulDataLoader side by side with other loaders, on the same windows of the same tokens.

    python benchmarks/loader_peers.py --environments DIR [--quick] [--peers GuideLoom,bagz]

Each peer runs in a virtual environment of its own in DIR, made with uv on first use (pinned
versions, about 6 GB that uv's cache shares between them; needs a package index, later runs do
not). How a peer stores the tokens, its settings and what else was tried are in its script in
`benchmarks/peers/`. A peer that cannot be installed or run is reported below the table.

All deliver batches of 64 windows of 1,025 uint16 tokens as torch tensors from the page cache, in
their best random order; an epoch of each is checked window by window, and the order's mixing is
shown (1: like a random permutation). The processes take turns in short rounds; while one has its
turn the others are stopped, workers and all. Every process imports torch, as training does.

Batches per second: with no thread or worker, and with one. `tuned` are settings where code of one's
own around a library makes whole batches at once; ratios are over the best of all, and over the best
`as usual`, where a library is asked for samples and puts them together. Rates `of CPU time` are per
second that the process worked: a busy machine disturbs them less.

Beside a step: a training loop whose step is a millisecond of NumPy work that lets threads run
(`release`) or keeps the interpreter (`hold`), see peers/step.py; the time of a step with loading in
times of the same step alone, measured just before and after, and the wait for a batch.

First batch: in a new process, from after the imports to the first batch; and from the start of the
process. Memory: proportional set size over all processes, after 300 batches; `own` leaves out
mapped files, such as a memmap of the tokens, `beyond imports` what there was before the loader.

Resume: in a new process, from after the imports to the first batch after the state, which must be
the batch that came next in the process that saved. Opening: a dataset of 10,000 shards with a
little in each, until its length is known, and until its last sample was read.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from peers.environments import SCRIPTS
from peers.process import PeerError, PeerProcess
from peers.tokens import TokenSet, prepare_tokens
from peers.turns import Contestant, Peers, in_new_processes, in_turns
from side_by_side import Report, argument_parser, work_folder

OURS = "GuideLoom"
SHARES = (0.01, 0.5, 0.99)
OLDER = "guideloom 1"
KINDS = ("release", "hold")
MEMORY_BATCHES = 300
FIRST = (
    ("first batch", "ms"),
    ("first batch, with imports", "ms"),
    ("memory", "MB"),
    ("memory, own", "MB"),
    ("memory, beyond imports", "MB"),
)

Figures = dict[Contestant, list[float]]


def show(
    report: Report, what: str, unit: str, figures: Figures, target: float | None = None
) -> None:
    """A row for each contestant; the target is ours."""
    for contestant, values in figures.items():
        mine = target if contestant[0] == OURS else None
        report.figure(f"{what} | {': '.join(contestant)}", unit, values, mine)


def against(
    report: Report,
    what: str,
    figures: Figures,
    ours: Contestant,
    others: Sequence[Contestant],
    target: float | None,
    highest: bool = False,
) -> None:
    """Ours in times of the lowest of the others, or of the highest, round by round."""
    others = [other for other in others if figures.get(other)]
    if not others or not figures.get(ours):
        return
    order = sorted(others, key=lambda other: statistics.median(figures[other]))
    best = order[-1 if highest else 0]
    ratios = [mine / theirs for mine, theirs in zip(figures[ours], figures[best], strict=True)]
    report.figure(f"{what} | {ours[1]} / {': '.join(best)}", "ratio", ratios, target)


def of_others(figures: Mapping[Contestant, Any]) -> list[Contestant]:
    """The contestants of other projects; the published release of this one is apart."""
    return [contestant for contestant in figures if contestant[0] not in (OURS, OLDER)]


def check_orders(peers: Peers, report: Report, tokens: TokenSet) -> None:
    """An epoch of every contestant holds every window once, with the right tokens."""
    mixed = []
    for peer in list(peers.about):
        settings = peers.about[peer]["settings"]
        process = peers.process(peer)
        try:
            for setting in list(settings):
                try:
                    found = process.call("check", setting=setting)
                except PeerError as error:
                    peers.failed((peer, setting), "whole epoch", error)
                    del settings[setting]
                    continue
                mixed.append(f"{peer}: {setting} {found['mixed']:.3f}")
                if found["windows"] != tokens.windows or found["different"] != tokens.windows:
                    counts = f"{found['windows']:,.0f}, {found['different']:,.0f} different"
                    report.note(f"{peer}: {setting}: windows of an epoch: {counts}")
        finally:
            process.close()
    report.note(f"mixing of the order: {'; '.join(mixed)}")


def rates(peers: Peers, report: Report, rounds: int, count: int) -> None:
    """Batches per second, and what loading does to a training step."""

    def call(contestant: Contestant, process: PeerProcess) -> dict[str, Any]:
        run = process.call("run", count=count)
        found = {"rate": count / run["seconds"], "cpu": count / run["cpu"]}
        if peers.ahead(contestant):
            for kind in KINDS:
                found[kind] = process.call("beside", count=count, kind=kind)
        return found

    results = in_turns(peers, peers.contestants(), rounds, call, "rate")
    rows = (
        ("rate", False, "no worker"),
        ("cpu", False, "no worker, of CPU time"),
        ("rate", True, "one worker or thread"),
    )
    for key, ahead, what in rows:
        some = {
            it: [one[key] for one in all_]
            for it, all_ in results.items()
            if peers.ahead(it) is ahead
        }
        show(report, what, "batches/s", some)
        if not ahead:
            older = [it for it in some if it[0] == OLDER]
            usual = [it for it in of_others(some) if not peers.tuned(it)]
            for setting, target in (("pread", 2.0), ("mmap", 3.0)):
                ours = (OURS, setting)
                for others, name in ((of_others(some), what), (usual, f"{what}, as usual")):
                    against(report, name, some, ours, others, target, highest=True)
                against(report, what, some, ours, older, 15.0, highest=True)
    loading = {it: all_ for it, all_ in results.items() if peers.ahead(it)}
    limits: tuple[tuple[str, str, float | None], ...]
    limits = (("wait", "mean", 5.0), ("wait_99", "99th percentile", None))
    for kind in KINDS:
        what = f"step, {kind}"
        step = {it: [one[kind] for one in all_] for it, all_ in loading.items()}
        slower = {it: [one["beside"] / one["alone"] for one in all_] for it, all_ in step.items()}
        show(report, f"{what}: with loading / alone", "ratio", slower, 1.0)
        for part, name, limit in limits:
            waits = {it: [1e5 * one[part] for one in all_] for it, all_ in step.items()}
            show(report, f"{what}: wait, {name}", "% of 1 ms", waits, limit)


def first_batches(peers: Peers, report: Report, rounds: int, batches: int) -> None:
    """Time to the first batch, and memory after some more."""

    def call(contestant: Contestant, process: PeerProcess) -> dict[str, float]:
        before, _ = process.memory()
        found = process.call("first", setting=contestant[1])
        process.call("run", count=batches)
        whole, own = process.memory()
        return {
            "first batch": 1e3 * found["seconds"],
            "first batch, with imports": 1e3 * (found["at"] - process.began),
            "memory": whole / 1e6,
            "memory, own": own / 1e6,
            "memory, beyond imports": (whole - before) / 1e6,
        }

    results = in_new_processes(peers, peers.contestants(), rounds, call, "first batch")
    for what, unit in FIRST:
        figures = {it: [one[what] for one in all_] for it, all_ in results.items()}
        show(report, what, unit, figures)
        for ours in (it for it in figures if it[0] == OURS):
            others = [it for it in of_others(figures) if peers.ahead(it) is peers.ahead(ours)]
            against(report, what, figures, ours, others, 1.0)


def resumes(peers: Peers, report: Report, rounds: int, tokens: TokenSet) -> None:
    """Time from a saved state to the next batch."""
    contestants = [(it, about["resumes"]) for it, about in peers.about.items() if about["resumes"]]
    medians: dict[Contestant, list[float]] = {contestant: [] for contestant in contestants}
    size: dict[Contestant, float] = {}
    for share in SHARES:
        states: dict[Contestant, tuple[str, int]] = {}
        for contestant in contestants:
            peer, setting = contestant
            state = str(tokens.folder / f"{peer.replace(' ', '-')}-{share}.state")
            process = peers.process(peer)
            try:
                batches = max(1, int(tokens.steps * share) - 1)
                saved = process.call("save", setting=setting, batches=batches, state=state)
                states[contestant] = (state, saved["hash"])
                size[contestant] = max(size.get(contestant, 0), saved["bytes"])
            except PeerError as error:
                peers.failed(contestant, f"state at {share:.0%}", error)
            finally:
                process.close()

        def call(
            contestant: Contestant,
            process: PeerProcess,
            states: dict[Contestant, tuple[str, int]] = states,
        ) -> float:
            state, expected = states[contestant]
            found = process.call("first", setting=contestant[1], state=state)
            if found["hash"] != expected:
                raise PeerError("the resumed batch is not the one that came next")
            return 1e3 * float(found["seconds"])

        what = f"resume at {share:.0%}"
        results = in_new_processes(peers, list(states), rounds, call, what)
        show(report, what, "ms", results)
        for contestant, values in results.items():
            medians[contestant].append(statistics.median(values))
        others = [it for it in of_others(results) if results[it]]
        against(report, what, results, (OURS, "pread"), others, 1.0)
    whole = {it: some for it, some in medians.items() if len(some) == len(SHARES)}
    flat = {it: [some[-1] / some[0]] for it, some in whole.items()}
    show(report, "resume at 99% / at 1%", "ratio", flat, 1.0)
    show(report, "state as JSON", "bytes", {it: [value] for it, value in size.items()}, 600.0)


def shards(peers: Peers, report: Report, rounds: int, count: int, work: Path) -> None:
    """Opening a dataset of many shards."""
    contestants = [(it, "opening") for it, about in peers.about.items() if about["opens_shards"]]
    folders = {it: str(work / f"shards-{count}-{it[0]}") for it in contestants}
    for contestant in list(contestants):
        process = peers.process(contestant[0])
        try:
            process.call("write_shards", folder=folders[contestant], count=count)
        except PeerError as error:
            peers.failed(contestant, f"{count:,} shards", error)
            contestants.remove(contestant)
        finally:
            process.close()

    def call(contestant: Contestant, process: PeerProcess) -> tuple[float, float]:
        found = process.call("open_shards", folder=folders[contestant])
        return 1e3 * found["open"], 1e3 * found["read"]

    what = f"{count:,} shards"
    results = in_new_processes(peers, contestants, rounds, call, what)
    for index, part in enumerate(("open", "open and read a sample")):
        figures = {it: [one[index] for one in both] for it, both in results.items()}
        show(report, f"{what}: {part}", "ms", figures)
        for other in of_others(figures):
            against(report, f"{what}: {part}", figures, (OURS, "opening"), [other], 1.0)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--environments", type=Path, required=True, metavar="DIR")
    parser.add_argument("--peers", metavar="A,B", help=f"of {', '.join(SCRIPTS)}; default: all")
    parser.add_argument("--windows", type=int, metavar="N", help="default: 65,536, 128 MiB")
    parser.add_argument("--batches", type=int, metavar="N", help="of a round; default: 200")
    parser.add_argument("--only", metavar="A,B", help=f"of {', '.join(PARTS)}; default: all")
    arguments = parser.parse_args()
    names = arguments.peers.split(",") if arguments.peers else list(SCRIPTS)
    parts = arguments.only.split(",") if arguments.only else list(PARTS)
    for given, known in ((names, list(SCRIPTS)), (parts, list(PARTS))):
        if unknown := sorted(set(given) - set(known)):
            parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    with work_folder(arguments) as work:
        measure(arguments, names, parts, work)


def measure(arguments: argparse.Namespace, names: list[str], parts: list[str], work: Path) -> None:
    """All parts, for all peers."""
    quick = arguments.quick
    rounds = arguments.rounds or (2 if quick else 10)
    few = min(rounds, 3)  # of what needs a new process each
    windows = arguments.windows or (8_192 if quick else 65_536)
    tokens = prepare_tokens(work, windows)
    count = min(arguments.batches or (50 if quick else 200), tokens.steps - 1)
    report = Report("loader_peers", arguments, work)
    report.setting("windows", f"{windows:,} of 1,025 tokens, batches of 64")
    report.setting("rounds", f"{rounds} of {count} batches; {few} new processes")
    peers = Peers(arguments.environments.resolve(), tokens, report)
    for name in names:
        peers.add(name)
    shard_count = 500 if quick else 10_000
    run: dict[str, Callable[[], None]] = {
        "order": lambda: check_orders(peers, report, tokens),
        "rates": lambda: rates(peers, report, rounds, count),
        "first": lambda: first_batches(peers, report, few, min(MEMORY_BATCHES, tokens.steps - 1)),
        "resume": lambda: resumes(peers, report, few, tokens),
        "shards": lambda: shards(peers, report, few, shard_count, work),
    }
    for part in parts:
        print(f"{part} …", file=sys.stderr, flush=True)
        run[part]()
    report.finish()


PARTS = ("order", "rates", "first", "resume", "shards")


if __name__ == "__main__":
    main()

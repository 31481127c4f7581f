"""The peers that run here, and how they take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from peers.environments import SCRIPTS, python_of
from peers.process import PeerError, PeerProcess
from peers.tokens import TokenSet
from side_by_side import Report

Contestant = tuple[str, str]  # peer, setting


class Peers:
    """The peers that run here, and what they say of themselves."""

    def __init__(self, environments: Path, tokens: TokenSet, report: Report) -> None:
        self.about: dict[str, dict[str, Any]] = {}
        self._tokens = tokens
        self._environments = environments
        self._report = report

    def add(self, peer: str) -> None:
        """Make its environment and its files; a peer that fails is left out, and reported."""
        try:
            python_of(SCRIPTS[peer], self._environments)
            with_it = self.process(peer)
            try:
                about = with_it.call("about")
                with_it.call("convert")
            finally:
                with_it.close()
        except (PeerError, RuntimeError, OSError) as error:
            self._report.note(f"{peer}: not measured: {error}")
            return
        self.about[peer] = about
        versions = ", ".join(f"{name} {it}" for name, it in about["versions"].items())
        self._report.note(f"{peer}: Python {about['python']}, {versions}")
        for setting, (_, text, tuned) in about["settings"].items():
            self._report.note(f"  {setting}: {text}{' (tuned)' if tuned else ''}")

    def process(self, peer: str) -> PeerProcess:
        """A new process of a peer."""
        script = SCRIPTS[peer]
        log = self._tokens.folder / f"{peer.replace(' ', '-')}.log"
        python = python_of(script, self._environments)
        return PeerProcess(python, script.module, self._tokens.folder, log)

    def contestants(self) -> list[Contestant]:
        """The settings of all peers."""
        return [(peer, it) for peer, about in self.about.items() for it in about["settings"]]

    def ahead(self, contestant: Contestant) -> bool:
        """Whether a thread or a worker loads ahead."""
        return bool(self.about[contestant[0]]["settings"][contestant[1]][0])

    def tuned(self, contestant: Contestant) -> bool:
        """Whether it is code of one's own around the library."""
        return bool(self.about[contestant[0]]["settings"][contestant[1]][2])

    def failed(self, contestant: Contestant, what: str, error: Exception) -> None:
        """A remark that something is missing."""
        self._report.note(f"{' '.join(contestant)}: no {what}: {error}")


def in_turns(
    peers: Peers,
    contestants: Sequence[Contestant],
    rounds: int,
    call: Callable[[Contestant, PeerProcess], Any],
    what: str,
) -> dict[Contestant, list[Any]]:
    """What `call` returns for each contestant in each round, after a round that does not count."""
    processes: dict[Contestant, PeerProcess] = {}
    results: dict[Contestant, list[Any]] = {}
    try:
        for contestant in contestants:
            peer, setting = contestant
            try:
                processes[contestant] = peers.process(peer)
                processes[contestant].call("start", setting=setting)
                processes[contestant].pause()
                results[contestant] = []
            except PeerError as error:
                peers.failed(contestant, what, error)
        for round_number in range(rounds + 1):
            for contestant in list(results):
                process = processes[contestant]
                process.go_on()
                try:
                    result = call(contestant, process)
                except PeerError as error:
                    peers.failed(contestant, what, error)
                    del results[contestant]
                    continue
                process.pause()
                if round_number:
                    results[contestant].append(result)
    finally:
        for process in processes.values():
            process.go_on()
            process.close()
    return results


def in_new_processes(
    peers: Peers,
    contestants: Sequence[Contestant],
    rounds: int,
    call: Callable[[Contestant, PeerProcess], Any],
    what: str,
) -> dict[Contestant, list[Any]]:
    """The same, each time in a new process, with none of the others there."""
    results: dict[Contestant, list[Any]] = {contestant: [] for contestant in contestants}
    for _ in range(rounds):
        for contestant in list(results):
            try:
                process = peers.process(contestant[0])
                try:
                    result = call(contestant, process)
                finally:
                    process.close()
            except PeerError as error:
                peers.failed(contestant, what, error)
                del results[contestant]
                continue
            results[contestant].append(result)
    return results

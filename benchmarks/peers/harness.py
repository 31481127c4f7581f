"""What the scripts of all peers share: answers to the driver's commands, one line of JSON each.

A script describes its peer as a subclass of `Peer` and calls `serve`. It runs in the peer's own
environment, from the folder above, as ``python -m peers.NAME TOKENS``. Every process imports torch
and delivers torch tensors, as training would, so that memory and times are of the same thing.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from peers.step import Step, alone, beside, make_step
from peers.tokens import BATCH, WINDOW, Known, Tokens, TokenSet


class Setting(NamedTuple):
    """How a peer is used."""

    ahead: bool  # whether a thread or a worker process loads ahead
    text: str  # for people
    tuned: bool = False  # whole batches by code of one's own, not the library's usual way


class Loader:
    """A peer's loader in one setting."""

    def epoch(self) -> Iterator[Any]:
        """The batches, (BATCH, WINDOW), from where the loader stands to the end of the epoch."""
        raise NotImplementedError

    def state(self) -> Any:
        """What the peer saves of its position."""
        raise NotImplementedError

    def load(self, state: Any) -> None:
        """Go to that position."""
        raise NotImplementedError


class Peer:
    """A peer: how it stores the tokens, and its loaders."""

    packages: ClassVar[tuple[str, ...]]
    settings: ClassVar[dict[str, Setting]] = {}
    resumes: ClassVar[str] = ""  # the setting that is saved and resumed, if the peer has a state
    opens_shards: ClassVar[bool] = False

    def convert(self, tokens: TokenSet) -> None:
        """Store the tokens in the peer's format, in `tokens.of_peer`."""

    def open(self, tokens: TokenSet, setting: str) -> Loader:
        """A loader in one of the settings."""
        raise NotImplementedError

    def clean(self) -> None:
        """Remove what the peer would leave behind when the process ends."""

    def write_shards(self, folder: Path, count: int) -> None:
        """A dataset of so many shards with a little in each."""
        raise NotImplementedError

    def open_shards(self, folder: Path) -> Callable[[], object]:
        """Open that dataset and find its length; the call reads its last sample."""
        raise NotImplementedError


class Server:
    """The commands; each returns what JSON can hold."""

    def __init__(self, peer: Peer, tokens: TokenSet) -> None:
        self.peer = peer
        self.tokens = tokens
        self.steps: dict[str, Step] = {}
        self.loader: Loader | None = None
        self.iterator: Iterator[Any] = iter(())
        self.left = 0

    def about(self) -> dict[str, Any]:
        """Versions and settings."""
        names = (*self.peer.packages, "torch", "numpy")
        return {
            "versions": {name: version(name) for name in names},
            "python": sys.version.split()[0],
            "settings": {name: list(it) for name, it in self.peer.settings.items()},
            "resumes": self.peer.resumes,
            "opens_shards": self.peer.opens_shards,
        }

    def convert(self) -> None:
        """Once; a folder that is complete has a mark."""
        folder = self.tokens.of_peer(type(self.peer).__name__)
        mark = folder.with_suffix(".done")
        if not mark.exists():
            self.peer.convert(self.tokens)
            mark.touch()

    def first(self, setting: str, state: str = "") -> dict[str, float]:
        """Time of the first batch, in a process that has done nothing yet but imports."""
        saved = pickle.loads(Path(state).read_bytes()) if state else None
        begin = time.perf_counter()
        loader = self.peer.open(self.tokens, setting)
        if state:
            loader.load(saved)
        iterator = loader.epoch()
        batch = next(iterator)
        end = time.perf_counter()
        self.loader, self.iterator, self.left = (
            loader,
            iterator,
            0 if state else self.tokens.steps - 1,
        )
        return {"seconds": end - begin, "at": end, "hash": fingerprint(batch)}

    def save(self, setting: str, batches: int, state: str) -> dict[str, Any]:
        """Save the state after so many batches, and tell which batch comes next."""
        loader = self.peer.open(self.tokens, setting)
        iterator = loader.epoch()
        for _ in range(batches):
            next(iterator)
        saved = loader.state()
        Path(state).write_bytes(pickle.dumps(saved))
        return {
            "bytes": len(json.dumps(saved, default=_plain)),
            "hash": fingerprint(next(iterator)),
        }

    def start(self, setting: str) -> None:
        """Open the loader that the following commands use."""
        self.loader = self.peer.open(self.tokens, setting)
        self._have(2)

    def run(self, count: int) -> dict[str, float]:
        """Seconds of so many batches, on the clock and of the processor in this process."""
        self._have(count)
        batches = self.iterator
        worked = time.process_time()
        begin = time.perf_counter()
        for _ in range(count):
            batch = next(batches)
        taken = time.perf_counter() - begin
        worked = time.process_time() - worked
        self.left -= count
        del batch
        return {"seconds": taken, "cpu": worked}

    def beside(self, count: int, kind: str) -> dict[str, float]:
        """So many steps with loading, and as many without, half before and half after."""
        if kind not in self.steps:
            self.steps[kind] = make_step(kind)
        step = self.steps[kind]
        self._have(count)
        base = alone(step, count // 2)
        taken, waits = beside(step, self.iterator, count)
        base += alone(step, count - count // 2)
        self.left -= count
        return {
            "alone": base / count,
            "beside": taken / count,
            "wait": sum(waits) / count,
            "wait_median": float(np.median(waits)),
            "wait_99": float(np.quantile(waits, 0.99)),
        }

    def check(self, setting: str) -> dict[str, float]:
        """An epoch: how many windows, how many different ones, and how well mixed.

        `mixed` is the mean distance of windows that follow each other, 1 for a random order.
        """
        known = Known(self.tokens)
        loader = self.peer.open(self.tokens, setting)
        ids = np.concatenate([known.ids(as_tokens(batch)) for batch in loader.epoch()])
        distance = float(np.abs(np.diff(ids)).mean())
        return {
            "windows": ids.size,
            "different": np.unique(ids).size,
            "mixed": distance / (self.tokens.windows / 3),
        }

    def write_shards(self, folder: str, count: int) -> None:
        """Once; as for `convert`."""
        mark = Path(folder).with_suffix(".done")
        if not mark.exists():
            self.peer.write_shards(Path(folder), count)
            mark.touch()

    def open_shards(self, folder: str) -> dict[str, float]:
        """Seconds to open the dataset, and until its last sample was read."""
        begin = time.perf_counter()
        read = self.peer.open_shards(Path(folder))
        opened = time.perf_counter() - begin
        read()
        return {"open": opened, "read": time.perf_counter() - begin}

    def _have(self, count: int) -> None:
        """An iterator that has so many batches left, and is at work."""
        if self.loader is None:
            raise RuntimeError("no loader is open")
        if self.left >= count:
            return
        for _ in self.iterator:
            pass
        self.iterator = self.loader.epoch()
        next(self.iterator)
        self.left = self.tokens.steps - 1
        if self.left < count:
            raise RuntimeError(f"an epoch has {self.tokens.steps} batches, {count} are asked for")


def as_tokens(batch: Any) -> Tokens:
    """A batch as it was stored.

    Raises:
        ValueError: it is no batch of tokens.
    """
    if not isinstance(batch, torch.Tensor) or batch.shape != (BATCH, WINDOW):
        raise ValueError(f"a batch is a {type(batch).__name__}, {getattr(batch, 'shape', None)}")
    return batch.numpy().astype(np.uint16)


def fingerprint(batch: Any) -> int:
    """A checksum of the tokens."""
    return zlib.crc32(as_tokens(batch).tobytes())


def serve(peer: Peer) -> None:
    """Answer commands until the driver closes the pipe."""
    imported = time.perf_counter()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the peer prints is no answer
    server = Server(peer, TokenSet.load(Path(sys.argv[1])))

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    answer({"result": {"imported": imported}})
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer({"result": getattr(server, command.pop("do"))(**command)})
        except Exception as error:  # noqa: BLE001  # the driver reports it
            traceback.print_exc()
            answer({"error": f"{type(error).__name__}: {error}"})
    answers.close()
    peer.clean()
    sys.stderr.flush()
    os._exit(0)  # whatever threads the peer has left


def _plain(value: Any) -> Any:
    """What JSON does not have: tensors and arrays as lists, bytes in base 64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
        return value.tolist()
    return vars(value)

"""What a power failure may leave of a machine, at every point of its log.

Nothing holds but what a sync promises:

* What was written to a file since the file's last sync is there or not, each 512 bytes of it by
  itself. The file may have grown all the same; then zeros, noise or old data of another file stand
  where the new data is missing.
* A name that was made, changed or removed since the folder's last sync is there or not, whatever
  became of other names, earlier or later ones. To sync a file does not save its name, nor to sync a
  folder the folder's own name. A rename over another name is done, or not, or done with the old
  name still there.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from write.power_machine import ROOT, Event, Image, Machine, Mark, Named, Synced, Wrote

SECTOR = 512
EXHAUSTIVE = 3
FILLS = ("zeros", "noise", "old data")
_NOISE = random.Random(7).randbytes(1 << 16)


class Tear(NamedTuple):
    """What came of a write.

    Attributes:
        length: bytes by which the file grew.
        sectors: the sectors of the write that hold the new data.
        fill: what the others hold.
    """

    length: int
    sectors: frozenset[int]
    fill: str


Outcome = str | Tear
"""What came of a pending operation: "lost", "kept", "half" for a rename, or a tear."""

LOST, KEPT, HALF = "lost", "kept", "half"
Choice = tuple[Outcome, ...]
"""For each pending operation, its outcome."""

Pending = Wrote | Named


class Point(NamedTuple):
    """A moment of a run at which the power may fail.

    Attributes:
        number: of the events before it.
        image: what is durable.
        pending: what happened since and may be lost, oldest first.
        old: for each file with pending data, what another file of its kind holds.
    """

    number: int
    image: Image
    pending: tuple[Pending, ...]
    old: Mapping[int, bytes]


@dataclass(frozen=True)
class State:
    """What is there after the power came back."""

    files: Mapping[str, bytes]
    folders: tuple[str, ...]

    def digest(self, *, rough: bool = False) -> bytes:
        """Equal for equal states, and only for these.

        Args:
            rough: leave out what is in data files, and temporary files.
        """
        whole = hashlib.blake2b(digest_size=16)
        for path in sorted(self.files):
            if rough and path.endswith(".tmp"):
                continue
            whole.update(b"%d\n%s" % (len(path), path.encode()))
            if not (rough and "/data/" in path):
                content = self.files[path]
                whole.update(b"\n%d\n" % len(content))
                whole.update(content)
        whole.update("\n".join(sorted(self.folders)).encode())
        return whole.digest()


@dataclass
class Ledger:
    """Follows a log: what is durable, what is pending."""

    image: Image
    pending: list[Pending] = field(default_factory=list)
    _newest: dict[str, bytes] = field(default_factory=dict)
    _old: dict[int, bytes] = field(default_factory=dict)

    def follow(self, event: Event) -> None:
        if isinstance(event, Synced):
            mine = [op for op in self.pending if node_of(op) == event.node]
            self.pending = [op for op in self.pending if node_of(op) != event.node]
            for op in mine:
                _apply(self.image, op)
        elif not isinstance(event, Mark):
            self.pending.append(event)
            if isinstance(event, Named) and event.new_folder is not None:
                self.image.folders[event.new_folder] = {}  # cannot be reached without its name
            if isinstance(event, Wrote):
                kind = event.path.rpartition(".")[2]
                self._old.setdefault(event.file, self._newest.get(kind, b""))
                self._newest[kind] = event.data

    def point(self, number: int) -> Point:
        return Point(number, self.image, tuple(self.pending), self._old)


def node_of(op: Pending) -> int:
    """The file or folder whose sync makes the operation durable."""
    return op.file if isinstance(op, Wrote) else op.folder


def points(machine: Machine, first: int = 0) -> Iterator[Point]:
    """The points before event `first`, and behind each event from there on.

    A point is good until the next one is asked for.
    """
    begin = machine.begin
    ledger = Ledger(Image({n: dict(e) for n, e in begin.folders.items()}, dict(begin.contents)))
    for number, event in enumerate(machine.events):
        if number == first:
            yield ledger.point(number)
        ledger.follow(event)
        if number >= first:
            yield ledger.point(number + 1)


def _apply(image: Image, op: Pending) -> None:
    if isinstance(op, Wrote):
        image.contents[op.file] = image.contents.get(op.file, b"") + op.data
        return
    _rename(image.folders[op.folder], op.names)


def _rename(entries: dict[str, int], names: Sequence[tuple[str, int | None]]) -> None:
    for name, number in names:
        if number is None:
            entries.pop(name, None)
        else:
            entries[name] = number


def state(point: Point, choice: Choice) -> State:
    """What is there if this came of the pending operations."""
    folders = dict(point.image.folders)
    writes: dict[int, list[tuple[Wrote, Outcome]]] = {}
    changed = set()
    for op, outcome in zip(point.pending, choice, strict=True):
        if outcome == LOST:
            continue
        if isinstance(op, Wrote):
            writes.setdefault(op.file, []).append((op, outcome))
            continue
        if op.folder not in changed:
            changed.add(op.folder)
            folders[op.folder] = dict(folders[op.folder])
        _rename(folders[op.folder], op.names[: 1 if outcome == HALF else None])
    durable = point.image.contents
    contents = {
        file: content_after(durable.get(file, b""), done, point.old.get(file, b""))
        for file, done in writes.items()
    }
    files: dict[str, bytes] = {}
    found: list[str] = []

    def walk(folder: int, path: str) -> None:
        for name, number in folders[folder].items():
            if number in folders:
                found.append(path + name)
                walk(number, f"{path}{name}/")
            elif number in contents:
                files[path + name] = contents[number]
            else:
                files[path + name] = durable.get(number, b"")

    walk(ROOT, "")
    return State(files, tuple(found))


def content_after(durable: bytes, done: Sequence[tuple[Wrote, Outcome]], old: bytes) -> bytes:
    """What a file holds whose pending writes ended like this; those that were lost left out."""
    size, fill = len(durable), "zeros"
    for op, outcome in done:
        if isinstance(outcome, str):
            size = max(size, op.at + len(op.data))
        else:
            size, fill = max(size, op.at + outcome.length), outcome.fill
    content = bytearray(durable) + filling(fill, old, len(durable), size)
    for op, outcome in done:
        if isinstance(outcome, str):
            content[op.at : op.at + len(op.data)] = op.data
            continue
        for sector in outcome.sectors:
            start, stop = sector_of(op, sector)
            content[op.at + start : op.at + stop] = op.data[start:stop]
    return bytes(content[:size])


def filling(fill: str, old: bytes, start: int, stop: int) -> bytes:
    """What stands in the file from `start` to `stop` where no new data is."""
    if fill == "zeros":
        return bytes(stop - start)
    source = old if fill == "old data" and old else _NOISE
    return (source * (stop // len(source) + 1))[start:stop]


def sectors(op: Wrote) -> int:
    """How many sectors of the file the write concerns."""
    return (op.at + len(op.data) - 1) // SECTOR - op.at // SECTOR + 1


def sector_of(op: Wrote, sector: int) -> tuple[int, int]:
    """The bytes of the write that lie in this one of its sectors."""
    first = op.at // SECTOR + sector
    return (
        max(0, first * SECTOR - op.at),
        min(len(op.data), (first + 1) * SECTOR - op.at),
    )


def outcomes(op: Pending) -> list[Outcome]:
    """What may come of an operation; of a write that can tear in many ways, the extreme ones."""
    if isinstance(op, Named):
        return [LOST, KEPT, HALF] if len(op.names) > 1 else [LOST, KEPT]
    size, count = len(op.data), sectors(op)
    found: list[Outcome] = [LOST, KEPT, *(Tear(size, frozenset(), fill) for fill in FILLS)]
    if count > 1:
        first = frozenset({0})
        found += [
            Tear(sector_of(op, 0)[1], first, "zeros"),
            Tear(size, first, "zeros"),
            Tear(size, frozenset(range(1, count)), "noise"),
        ]
    return found


def random_outcome(op: Pending, keep: float, rng: random.Random) -> Outcome:
    """Kept with this probability; a write that is not kept may be torn."""
    if rng.random() < keep:
        return KEPT
    if isinstance(op, Named) or rng.random() < 0.4:
        return rng.choice(outcomes(op))
    count = sectors(op)
    kept = frozenset(k for k in range(count) if rng.random() < keep)
    grown = sector_of(op, rng.randrange(count))[1] if rng.random() < 0.5 else len(op.data)
    return Tear(grown, kept, rng.choice(FILLS))


def choices(point: Point, rng: random.Random, samples: int) -> Iterator[Choice]:
    """All combinations for few pending operations; else none, all, each by itself, and samples."""
    pending = point.pending
    if len(pending) <= EXHAUSTIVE:
        yield from itertools.product(*map(outcomes, pending))
    else:
        for others in (LOST, KEPT):
            yield (others,) * len(pending)
            for k, op in enumerate(pending):
                for outcome in outcomes(op):
                    if outcome != others:
                        yield (others,) * k + (outcome,) + (others,) * (len(pending) - k - 1)
    tearable = any(isinstance(op, Wrote) and sectors(op) > 1 for op in pending)
    if len(pending) > EXHAUSTIVE or tearable:
        for _ in range(samples):
            yield random_choice(point, rng)


def random_choice(point: Point, rng: random.Random) -> Choice:
    """One of the combinations."""
    keep = rng.choice((0.2, 0.5, 0.8))
    return tuple(random_outcome(op, keep, rng) for op in point.pending)

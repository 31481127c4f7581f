"""Batches of shuffled documents from the page cache: readers, and what they compete with.

One thread, a million documents of random bytes, log-normal lengths with a median of 1.2 kB, batches
of 32; all in one shard, and in 8. `gather` gives a batch as one array with offsets, `read_many` and
`reader[i]` give `bytes`. The C loops find out where each document lies, as a reader must, with a
read or a look into a map, and then read or copy its bytes, into one buffer that is used again and
again and so stays in the CPU's cache. The loops for which the places are known beforehand are for
information: they show what looking up costs.

bagz is a format for records with a compiled reader; here without compression and with one thread.
It takes part if it is installed: `uv run --with bagz python benchmarks/documents.py`.

A ratio of 0.75 over a C loop means: 75 % of its documents per second. Every contestant has fresh
random documents in every round.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from document_baselines import (
    BAGZ,
    BAGZ_MANY,
    COPIES,
    COPIES_ONLY,
    PREADS,
    PREADS_ONLY,
    Contestant,
    Ids,
    bagz_contestants,
    bagz_file,
    batch_bytes,
    c_contestants,
)
from document_set import BATCH, DocumentSet, document_bytes, prepare_documents
from guideloom.io import MmapIO, PosixPreadIO
from side_by_side import Prepare, Report, argument_parser, race, work_folder

SHARDS = (1, 8)
TARGETS: list[tuple[str, str, float | None]] = [
    ("gather, pread", PREADS, 0.75),
    ("gather, mmap", COPIES, 0.6),
    ("read_many, pread", PREADS, 0.6),
    ("read_many, mmap", COPIES, 0.45),
    ("read_many, mmap", BAGZ, 1.0),
    ("reader[i], mmap", BAGZ, 1.0),
    ("gather, pread", PREADS_ONLY, None),
    ("gather, mmap", COPIES_ONLY, None),
    ("reader[i], pread", PREADS, None),
    ("reader[i], mmap", COPIES, None),
    (BAGZ, COPIES, None),
    (BAGZ_MANY, COPIES, None),
]


def reader_contestants(
    documents: DocumentSet, backend: Any, name: str, opened: ExitStack
) -> dict[str, Contestant]:
    """The ways to read through one I/O backend."""
    reader = opened.enter_context(documents.storage(backend).sync_reader())

    def whole(method: Callable[[Any], Any]) -> Contestant:
        def prepare(ids: Ids) -> Callable[[], Any]:
            batches = list(ids)

            def run() -> Any:
                for some in batches:
                    batch = method(some)
                return batch

            return run

        return prepare

    def one_by_one(ids: Ids) -> Callable[[], Any]:
        batches = ids.tolist()

        def run() -> Any:
            for some in batches:
                batch = [reader[i] for i in some]
            return batch

        return run

    return {
        f"gather, {name}": whole(reader.gather),
        f"read_many, {name}": whole(reader.read_many),
        f"reader[i], {name}": one_by_one,
    }


def check(contestants: dict[str, Contestant], documents: DocumentSet) -> None:
    """Every contestant, once over all documents: it maps all pages, and the last batch is right.

    `reader[i]` takes its time and has no maps of its own, so it reads the last batches only.
    """
    shuffled = np.random.default_rng(3).permutation(documents.count)
    shuffled = shuffled[: documents.count // BATCH * BATCH].reshape(-1, BATCH)
    wanted = {int(i): b"" for i in shuffled[-1]}
    for number, document in enumerate(document_bytes(documents.lengths)):
        if number in wanted:
            wanted[number] = document
    expected = [wanted[int(i)] for i in shuffled[-1]]
    for name, contestant in contestants.items():
        some = shuffled[-100:] if name.startswith("reader[i]") else shuffled
        if batch_bytes(contestant(some)()) != expected:
            raise RuntimeError(f"{name} returned other data")


def compare(
    documents: DocumentSet, bag: Path | None, rounds: int, batches: int
) -> dict[str, list[float]]:
    """Seconds of every contestant over documents in so many shards."""
    with ExitStack() as opened:
        contestants = {
            **c_contestants(documents, opened),
            **reader_contestants(documents, PosixPreadIO(), "pread", opened),
            **reader_contestants(documents, MmapIO(), "mmap", opened),
            **(bagz_contestants(bag) if bag is not None else {}),
        }
        check(contestants, documents)
        rng = np.random.default_rng(2)

        def fresh_ids(contestant: Contestant) -> Prepare:
            return lambda _: contestant(rng.integers(0, documents.count, (batches, BATCH)))

        return race({name: fresh_ids(runs) for name, runs in contestants.items()}, rounds)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--documents", type=int, metavar="N", help="default: 10**6, about 2 GB")
    parser.add_argument("--batches", type=int, default=500, metavar="N", help="of a round")
    arguments = parser.parse_args()
    count = arguments.documents or (10**5 if arguments.quick else 10**6)
    rounds = arguments.rounds or (5 if arguments.quick else 20)
    with work_folder(arguments) as work, tempfile.TemporaryDirectory(dir=work) as scratch:
        report = Report("documents", arguments, work)
        bag: Path | None = None
        for shards in SHARDS:
            documents = prepare_documents(work, count, shards)
            count = documents.count  # fewer if memory is short
            if shards == SHARDS[0]:
                bag = bagz_file(Path(scratch), documents)
                report.setting("documents", f"{count:,}")
                report.setting("rounds", f"{rounds} of {arguments.batches} batches")
            taken = compare(documents, bag, rounds, arguments.batches)
            place = f"{shards} shards" if shards > 1 else "1 shard"
            seconds = {f"{name}, {place}": values for name, values in taken.items()}
            report.rates(seconds, arguments.batches * BATCH, "documents/s")
            for name, over, target in TARGETS:
                if name in taken and over in taken:
                    label = f"{name} / {over}, {place}"
                    report.ratio(seconds, f"{name}, {place}", f"{over}, {place}", target, label)
        if bag is None:
            report.note("bagz is not installed and was left out")
        report.finish()


if __name__ == "__main__":
    main()

"""`StatefulDataLoader` against bare `reader.gather` of the same kind of ids, data in page cache.

Shuffled windows of 2,048 uint16 tokens in batches of 32, as tensors. `gather` has its ids computed
beforehand; the loader computes the order, makes tensors and keeps its position. A ratio of 0.65
means: the loader delivers 65 % of the batches per second that bare `gather` reads.

With nothing else to do between two batches, worker threads only cost: they pay when training has
the main thread wait, or when storage is slow. Those rows are for information.

Last, the time from `load_state_dict` to the first batch, in an epoch of the whole dataset: it
should be the same at 1 % and at 99 %.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from guideloom import EpochPlan, StatefulDataLoader
from guideloom.io import PosixPreadIO
from side_by_side import Prepare, Report, argument_parser, race, work_folder
from token_stream import BATCH, WINDOW, TokenStream, prepare_stream

THREADS = [(0, 0), (1, 0), (1, 2), (2, 0), (2, 2)]  # num_workers, prefetch
SHARES = (0.01, 0.5, 0.99)


def make_loader(stream: TokenStream, num_workers: int = 0, prefetch: int = 0) -> StatefulDataLoader:
    return StatefulDataLoader(
        stream.dataset(PosixPreadIO()),
        local_batch_size=BATCH,
        shuffle=True,
        num_workers=num_workers,
        prefetch=prefetch,
    )


def check(stream: TokenStream, reader: Any) -> None:
    """The loader delivers what `gather` reads in the order of the plan."""
    plan = EpochPlan(stream.windows, shuffle=True, local_batch_size=BATCH)
    for num_workers, prefetch in THREADS:
        with make_loader(stream, num_workers, prefetch) as loader:
            for step, batch in enumerate(itertools.islice(loader, 3)):
                expected = reader.gather(plan.sample_ids(step))["tokens"]
                if not np.array_equal(batch["tokens"].numpy(), expected):
                    raise RuntimeError(f"the loader's batch {step} has other data")


def gather_rounds(stream: TokenStream, reader: Any, batches: int) -> Prepare:
    """Bare `gather`; the ids are those of epoch 0, from a random step on."""
    plan = EpochPlan(stream.windows, shuffle=True, local_batch_size=BATCH)
    rng = np.random.default_rng(3)

    def prepare(number: int) -> Any:
        del number
        first = int(rng.integers(0, len(plan) - batches + 1))
        ids = [plan.sample_ids(step) for step in range(first, first + batches)]

        def run() -> None:
            for some in ids:
                batch = reader.gather(some)
            del batch

        return run

    return prepare


def loader_rounds(loader: StatefulDataLoader, batches: int) -> Prepare:
    """The loader; one iterator goes on from round to round, as long as the epoch lasts."""
    iterator: Iterator[Any] = iter(())

    def prepare(number: int) -> Any:
        nonlocal iterator
        if number == 0 or loader.position + (batches + 1) * BATCH > len(loader) * BATCH:
            loader.set_epoch(loader.epoch + 1)
            iterator = iter(loader)
            next(iterator)  # threads are up and at work
        some = iterator

        def run() -> None:
            for batch in itertools.islice(some, batches):
                last = batch
            del last

        return run

    return prepare


def first_batch(stream: TokenStream, share: float, times: int) -> list[float]:
    """Milliseconds from `load_state_dict` to the first batch, in a loader that is open."""
    taken = []
    for _ in range(times):
        with make_loader(stream) as loader:
            next(iter(loader))  # files are open
            position = int(stream.windows * share) // BATCH * BATCH
            state = {**loader.state_dict(), "position": position}
            begin = time.perf_counter()
            loader.load_state_dict(state)
            next(iter(loader))
            taken.append((time.perf_counter() - begin) * 1e3)
    return taken


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--tokens", type=int, metavar="N", help="default: 512 Mi, 1 GiB")
    parser.add_argument("--batches", type=int, default=500, metavar="N", help="of a round")
    arguments = parser.parse_args()
    tokens = arguments.tokens or (64 << 20 if arguments.quick else 512 << 20)
    rounds = arguments.rounds or (5 if arguments.quick else 30)
    with work_folder(arguments) as work, ExitStack() as opened:
        stream = prepare_stream(work, tokens)
        batches = min(arguments.batches, stream.windows // BATCH - 1)
        reader = opened.enter_context(stream.dataset(PosixPreadIO()).sync_reader())
        check(stream, reader)
        contestants = {"gather": gather_rounds(stream, reader, batches)}
        for num_workers, prefetch in THREADS:
            loader = opened.enter_context(make_loader(stream, num_workers, prefetch))
            name = f"loader, {num_workers} workers, prefetch {prefetch}"
            contestants[name] = loader_rounds(loader, batches)
        seconds = race(contestants, rounds)
        report = Report("loader", arguments, work)
        report.setting("tokens", f"{stream.tokens:,}")
        report.setting("rounds", f"{rounds} of {batches} batches")
        report.rates(seconds, batches, "batches/s")
        report.rates(seconds, batches * BATCH * WINDOW * 2, "GB/s", 1e9)
        for name in list(contestants)[1:]:
            target = 0.65 if name == "loader, 0 workers, prefetch 0" else None
            report.ratio(seconds, name, "gather", target)
        waits = {share: first_batch(stream, share, max(5, rounds)) for share in SHARES}
        for share, values in waits.items():
            report.figure(f"first batch after a load at {share:.0%}", "ms", values)
        early, late = waits[SHARES[0]], waits[SHARES[-1]]
        base = statistics.median(early)
        report.figure("the same at 99% / at 1%", "ratio", [value / base for value in late], 1.0)
        report.finish()


if __name__ == "__main__":
    main()

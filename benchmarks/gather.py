"""Batches of shuffled windows from the page cache: `reader.gather` and what it competes with.

One thread, 8 shards of uint16 tokens, windows of 2,048, batches of 32. The C loops are the bare
minimum: the same reads or copies, at places computed beforehand, into one buffer that is used
again and again and so stays in the CPU's cache. `gather` looks the places up, and without `out`
makes a fresh array per batch. The two NumPy loops are what a script does without a library; their
places are computed beforehand, too.

A ratio of 0.8 over a C loop means: 80 % of its windows per second. A ratio of 3 over a NumPy loop
means: three times as many. The last row tells what `pread` itself, a system call per window, can
reach against copying from a map. Every contestant has fresh random windows in every round.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from c_loops import Call, CLoops
from guideloom.io import MmapIO, PosixPreadIO
from side_by_side import Prepare, Report, argument_parser, race, work_folder
from token_stream import BATCH, WINDOW, TokenStream, prepare_stream

Ids = NDArray[np.int64]
# Given the ids of a round, (batches, BATCH): the call that reads them and returns the last batch.
Contestant = Callable[[Ids], Callable[[], NDArray[np.uint16]]]

NBYTES = 2 * WINDOW
TARGETS: list[tuple[str, str, float | None]] = [
    ("gather, pread", "C loop, pread", 0.8),
    ("gather, mmap", "C loop, memcpy", 0.65),
    ("gather into out, pread", "C loop, pread", 0.9),
    ("gather into out, mmap", "C loop, memcpy", 0.8),
    ("gather, pread", "np.stack of memmap slices", 3.0),
    ("gather, mmap", "np.stack of memmap slices", 3.0),
    ("gather, pread", "loop over memmap rows", 1.0),
    ("gather, mmap", "loop over memmap rows", 1.0),
    ("C loop, pread", "loop over memmap rows", None),
]


def c_contestants(stream: TokenStream, opened: ExitStack) -> dict[str, Contestant]:
    """The loops in C."""
    loops = CLoops()
    descriptors = []
    for path in stream.files():
        descriptors.append(os.open(path, os.O_RDONLY))
        opened.callback(os.close, descriptors[-1])
    maps = [np.memmap(path, dtype=np.uint8, mode="r") for path in stream.files()]
    fds = np.array(descriptors, dtype=np.int32)
    out = np.empty((BATCH, WINDOW), dtype=np.uint16)

    def places(ids: Ids) -> NDArray[np.int64]:
        file, window = np.divmod(ids.reshape(-1), stream.windows_per_shard)
        return np.stack([file, window * NBYTES], axis=1)

    def contestant(loop: Callable[..., Call], files: Any) -> Contestant:
        def prepare(ids: Ids) -> Callable[[], NDArray[np.uint16]]:
            call = loop(files, places(ids), NBYTES, out.reshape(-1).view(np.uint8))

            def run() -> NDArray[np.uint16]:
                call()
                return out

            return run

        return prepare

    return {
        "C loop, pread": contestant(loops.preads, fds),
        "C loop, memcpy": contestant(loops.copies, maps),
    }


def gather_contestants(
    stream: TokenStream, backend: Any, name: str, opened: ExitStack
) -> dict[str, Contestant]:
    """`gather` through one I/O backend."""
    reader = opened.enter_context(stream.dataset(backend).sync_reader())
    out = {"tokens": np.empty((BATCH, WINDOW), dtype=np.uint16)}

    def fresh(ids: Ids) -> Callable[[], NDArray[np.uint16]]:
        batches = list(ids)

        def run() -> NDArray[np.uint16]:
            batch: dict[str, NDArray[np.uint16]] = {}
            for some in batches:
                batch = reader.gather(some)
            return batch["tokens"]

        return run

    def reused(ids: Ids) -> Callable[[], NDArray[np.uint16]]:
        batches = list(ids)

        def run() -> NDArray[np.uint16]:
            for some in batches:
                reader.gather(some, out=out)
            return out["tokens"]

        return run

    return {f"gather, {name}": fresh, f"gather into out, {name}": reused}


def numpy_contestants(stream: TokenStream) -> dict[str, Contestant]:
    """What a script does without a library."""
    maps = [np.memmap(path, dtype=np.uint16, mode="r") for path in stream.files()]
    rows = [np.asarray(mapped).reshape(-1, WINDOW) for mapped in maps]

    def places(ids: Ids, scale: int) -> list[list[tuple[int, int]]]:
        file, window = np.divmod(ids, stream.windows_per_shard)
        window *= scale
        pairs = zip(file.tolist(), window.tolist(), strict=True)
        return [list(zip(*pair, strict=True)) for pair in pairs]

    def stacked(ids: Ids) -> Callable[[], NDArray[np.uint16]]:
        batches = places(ids, WINDOW)

        def run() -> NDArray[np.uint16]:
            for some in batches:
                batch = np.stack([maps[file][start : start + WINDOW] for file, start in some])
            return batch

        return run

    def looped(ids: Ids) -> Callable[[], NDArray[np.uint16]]:
        batches = places(ids, 1)

        def run() -> NDArray[np.uint16]:
            for some in batches:
                batch = np.empty((BATCH, WINDOW), dtype=np.uint16)
                for k, (file, row) in enumerate(some):
                    batch[k] = rows[file][row]
            return batch

        return run

    return {"np.stack of memmap slices": stacked, "loop over memmap rows": looped}


def check(contestants: dict[str, Contestant], stream: TokenStream) -> None:
    """Every contestant, once over all windows: it maps all pages, and the last batch is right."""
    whole = np.arange(stream.windows // BATCH * BATCH).reshape(-1, BATCH)
    ids = np.concatenate(
        [whole, np.random.default_rng(1).permuted(whole.reshape(-1))[None, :BATCH]]
    )
    file, window = np.divmod(ids[-1], stream.windows_per_shard)
    expected = [
        np.fromfile(stream.files()[k], dtype="<u2", count=WINDOW, offset=int(w) * NBYTES)
        for k, w in zip(file, window, strict=True)
    ]
    for name, contestant in contestants.items():
        if not np.array_equal(contestant(ids)(), expected):
            raise RuntimeError(f"{name} returned other data")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--tokens", type=int, metavar="N", help="default: 512 Mi, 1 GiB")
    parser.add_argument("--batches", type=int, default=500, metavar="N", help="of a round")
    arguments = parser.parse_args()
    tokens = arguments.tokens or (64 << 20 if arguments.quick else 512 << 20)
    rounds = arguments.rounds or (5 if arguments.quick else 30)
    with work_folder(arguments) as work, ExitStack() as opened:
        stream = prepare_stream(work, tokens)
        contestants = {
            **c_contestants(stream, opened),
            **gather_contestants(stream, PosixPreadIO(), "pread", opened),
            **gather_contestants(stream, MmapIO(), "mmap", opened),
            **numpy_contestants(stream),
        }
        check(contestants, stream)
        rng = np.random.default_rng(2)
        shape = (arguments.batches, BATCH)

        def fresh_ids(contestant: Contestant) -> Prepare:
            return lambda _: contestant(rng.integers(0, stream.windows, shape))

        seconds = race({name: fresh_ids(runs) for name, runs in contestants.items()}, rounds)
        report = Report("gather", arguments, work)
        report.setting("tokens", f"{stream.tokens:,}")
        report.setting("rounds", f"{rounds} of {arguments.batches} batches")
        windows = arguments.batches * BATCH
        report.rates(seconds, windows, "windows/s")
        report.rates(seconds, windows * NBYTES, "GB/s", 1e9)
        for name, over, target in TARGETS:
            report.ratio(seconds, name, over, target)
        report.finish()


if __name__ == "__main__":
    main()

"""`FeistelShuffler.shuffle` over all indexes, in chunks, against the same network in a C loop.

Both go over the same 10**9 indexes, in turns of 16 chunks of 1 Mi. The C loop counts the indexes
itself and writes one chunk again and again; the shuffler is given an array of indexes, made within
the measured time, checks each, and returns a fresh array. A ratio of 0.7 means: 70 % of the
indexes per second.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from c_loops import CLoops
from guideloom.shuffle import FeistelShuffler
from side_by_side import Prepare, Report, argument_parser, race, work_folder

CHUNK = 1 << 20
CHUNKS_PER_ROUND = 16
SEED, EPOCH = 42, 1


class CNetwork:
    """feistel-1 for one seed and epoch, made from the format's description."""

    def __init__(self, length: int) -> None:
        self._loops = CLoops()
        sequence = np.random.SeedSequence(SEED, spawn_key=(EPOCH,))
        words = np.random.Philox(sequence).random_raw(20).astype(np.uint64)
        low = words & np.uint64(0xFFFFFFFF)
        self._keys = np.ascontiguousarray((low[0::2] << np.uint64(32)) | low[1::2])
        rows = max(16, math.isqrt(max(length, 1) - 1) + 1)
        self._sizes = (length, rows, max(16, -(-length // rows)))
        self.out = np.empty(CHUNK, dtype=np.int64)

    def prepare(self, begin: int, count: int) -> Callable[[], None]:
        """The call that permutes begin … begin + count - 1."""
        return self._loops.feistel(self._keys, self._sizes, begin, count, self.out)


def bulk(shuffler: FeistelShuffler, begin: int, count: int) -> Callable[[], NDArray[np.int64]]:
    """The same with the shuffler; returns the last chunk."""

    def run() -> NDArray[np.int64]:
        for first in range(begin, begin + count, CHUNK):
            values = shuffler.shuffle(np.arange(first, first + CHUNK))
        return values

    return run


def check(length: int, network: CNetwork, shuffler: FeistelShuffler) -> None:
    """Both give the same values: first, last, and some chunks between."""
    for begin in np.linspace(0, length - CHUNK, 5, dtype=np.int64).tolist():
        network.prepare(begin, CHUNK)()
        if not np.array_equal(network.out, bulk(shuffler, begin, CHUNK)()):
            raise RuntimeError(f"the C loop and the shuffler differ in the chunk at {begin}")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--length", type=int, metavar="N", help="default: 10**9")
    arguments = parser.parse_args()
    length = arguments.length or (2 * 10**7 if arguments.quick else 10**9)
    per_round = CHUNKS_PER_ROUND if length >= 10**9 else 2
    span = per_round * CHUNK
    if length < span:
        parser.error(f"--length must be at least {span}")
    rounds = arguments.rounds or length // span
    network, shuffler = CNetwork(length), FeistelShuffler.from_seed(length, SEED, epoch=EPOCH)
    check(length, network, shuffler)

    def turn(number: int) -> int:
        return (number - 1) % (length // span) * span if number else 0

    contestants: dict[str, Prepare] = {
        "C loop": lambda number: network.prepare(turn(number), span),
        "FeistelShuffler": lambda number: bulk(shuffler, turn(number), span),
    }
    seconds = race(contestants, rounds)
    with work_folder(arguments) as work:
        report = Report("shuffle", arguments, work)
    report.setting("length", f"{length:,}")
    report.setting("rounds", f"{rounds} of {per_round} chunks of {CHUNK:,}")
    report.rates(seconds, span, "million/s", 1e6)
    report.ratio(seconds, "FeistelShuffler", "C loop", 0.7)
    report.finish()


if __name__ == "__main__":
    main()

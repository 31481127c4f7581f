"""Write a dataset with N processes that know only their rank: for Slurm, MPI, or one by one.

LIST is a text file that names one input file per line; it stays as it is for the life of the job.
Line k of it is task k, and task k makes shard k: the lines of that input file become documents.
The process of rank r makes the shards r, r + N, r + 2 N …, unless they are finished.

Whatever ends the job, run the same command again, also with another N. SIGTERM ends it early and
loses nothing (exit code 75); SIGKILL loses what was not committed, and the next run makes it again.
"""

import argparse
import os
import signal
import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from types import FrameType

from guideloom import DocumentBytesFormat, DocumentStorage, GuideLoomError
from guideloom_write import DocumentWriter

# Those of MPI come first: started by mpirun in a batch job, a process also sees Slurm's, which are
# then the same ones for all.
PLACES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
STOPPED = 75  # EX_TEMPFAIL: run it again


def rank_and_world_size(environment: Mapping[str, str]) -> tuple[int, int]:
    """Which process this is, and of how many: (0, 1) where nobody says so.

    Each job of a Slurm job array has its ranks behind those of the jobs before it.
    """
    rank, world_size = 0, 1
    for rank_name, size_name in PLACES:
        if rank_name in environment and size_name in environment:
            rank, world_size = int(environment[rank_name]), int(environment[size_name])
            break
    if "SLURM_ARRAY_TASK_ID" in environment:
        number = int(environment["SLURM_ARRAY_TASK_ID"])
        jobs = int(environment["SLURM_ARRAY_TASK_COUNT"])
        first = int(environment["SLURM_ARRAY_TASK_MIN"])
        job, rest = divmod(number - first, int(environment.get("SLURM_ARRAY_TASK_STEP", "1")))
        if rest or job >= jobs:
            raise ValueError(
                f"job {number} is not one of {jobs} in a row from {first} on; give the job array "
                "a range without gaps, such as --array=0-63"
            )
        rank, world_size = job * world_size + rank, jobs * world_size
    if not 0 <= rank < world_size:
        raise ValueError(f"the rank is {rank} of {world_size}; expected 0 to {world_size - 1}")
    return rank, world_size


class Stop:
    """Whether SIGTERM has come, with which a scheduler announces the end."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.asked = True


def is_finished(writer: DocumentWriter, shard: int, task: Path) -> bool:
    """Whether nothing is left to do for a shard, which must have been made from the same file."""
    record = writer.last_record(shard)
    if record is None or not record.finished:
        return False
    if record.task != str(task):
        raise ValueError(
            f"shard {shard} was made from {record.task}, the list says {task}; a job's list never "
            "changes. Make another dataset for another list"
        )
    return True


def write(
    storage: DocumentStorage, tasks: list[Path], shards: range, take_over: bool, commit_bytes: int
) -> bool:
    """Make those of the shards that are not finished; False if SIGTERM came before the end."""
    stop = Stop()
    done = 0
    with storage.sync_writer(take_over=take_over) as writer:
        for shard in shards:
            if is_finished(writer, shard, tasks[shard]):
                continue
            with tasks[shard].open("rb") as lines:
                for line in islice(lines, writer.length(shard), None):  # behind what is committed
                    if stop.asked:
                        return False  # the end of the block commits
                    writer.append(shard, line.removesuffix(b"\n"))
                    if writer.pending_bytes(shard) >= commit_bytes:
                        writer.commit()
            writer.finish(shard, task=str(tasks[shard]))
            done += 1
    print(f"{done} shards written, {len(shards) - done} were finished before")
    return True


def consolidate(storage: DocumentStorage, tasks: list[Path]) -> None:
    """Write the manifest, if every shard is finished."""
    with storage.sync_writer() as writer:
        missing = [k for k, task in enumerate(tasks) if not is_finished(writer, k, task)]
    if missing:
        shown = ", ".join(map(str, missing[:10])) + (", …" if len(missing) > 10 else "")
        raise ValueError(
            f"{len(missing)} of {len(tasks)} shards are not finished ({shown}); run the job again"
        )
    done = storage.consolidate()
    print(f"manifest version {done.version}: {done.parts} parts, {done.length} documents")


def main() -> None:
    """Read the command line and the environment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="the dataset's folder; created if need be")
    parser.add_argument("list", type=Path, metavar="LIST", help="the input files, one per line")
    parser.add_argument(
        "--consolidate",
        action="store_true",
        help="only write the manifest, once all shards are finished",
    )
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="the processes of every earlier run are dead, also those on other machines",
    )
    parser.add_argument(
        "--commit-mib",
        type=float,
        default=256,
        metavar="N",
        help="commit after so much: what SIGKILL can cost (default: %(default)s)",
    )
    options = parser.parse_args()
    try:
        tasks = [Path(line) for line in options.list.read_text().splitlines()]
        storage = DocumentStorage(options.directory, DocumentBytesFormat())
        if options.consolidate:
            consolidate(storage, tasks)
            return
        rank, world_size = rank_and_world_size(os.environ)
        shards = range(rank, len(tasks), world_size)
        print(f"rank {rank} of {world_size}")
        complete = write(storage, tasks, shards, options.take_over, int(options.commit_mib * 2**20))
    except (GuideLoomError, OSError, ValueError) as error:
        sys.exit(f"write.py: {error}")
    if not complete:
        print("write.py: stopped by SIGTERM; the same command goes on", file=sys.stderr)
        sys.exit(STOPPED)


if __name__ == "__main__":
    main()

"""A stand-in for srun: as many processes as the batch job says, ended as a plan says.

The plan, JSON in the file that $PLAN names, has for each start of the job what its processes are
given besides, by rank; see the launcher.
"""

import json
import os
import sys
from pathlib import Path

from examples.slurm_jobs import Job, processes


def main() -> int:
    """The exit code of srun: the highest of its processes, 128 and the number of a signal."""
    expected = ["--kill-on-bad-exit=0", "--wait=0", "python", "write.py"]
    assert sys.argv[1:5] == expected, sys.argv
    arguments = sys.argv[5:]
    plan = Path(os.environ["PLAN"])
    start = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    ends = {int(rank): end for rank, end in json.loads(plan.read_text())[start].items()}
    size = int(os.environ["SLURM_NTASKS"])
    job = Job(processes("srun", size, arguments, ends), plan.parent / f"start-{start}")
    codes = job.codes()
    Job.end_launchers()
    for rank in range(size):
        sys.stderr.write(job.said(rank))
    return max(code if code >= 0 else 128 - code for code in codes)


if __name__ == "__main__":
    sys.exit(main())

#!/bin/bash
# Writes a dataset with 64 processes, on as many nodes as they take:
#
#     sbatch job.sh DATASET LIST
#
# Slurm starts it again if it was preempted or a node failed; the last lines do if it was out of
# time or a process was killed. After an error, mend it and submit the job again, with any --ntasks.

#SBATCH --job-name=write-dataset
#SBATCH --ntasks=64
#SBATCH --cpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
# Two minutes before the end, SIGTERM to all processes of srun:
#SBATCH --signal=TERM@120
# Not before every earlier job of this name and user has ended. So --take-over below is true:
#SBATCH --dependency=singleton

# A process that dies does not end the others; what it did not make is made by the next run.
srun --kill-on-bad-exit=0 --wait=0 python write.py --take-over "$@"
status=$?

if [ "$status" -eq 0 ]; then
    python write.py --consolidate "$@"
elif [ "$status" -ge 75 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 20 ]; then
    scontrol requeue "$SLURM_JOB_ID"  # 75: SIGTERM came, 128 and more: killed by a signal
else
    exit "$status"
fi

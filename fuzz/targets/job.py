"""The decision about a job, in `jobs/`: commit records within a sealed file."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from guideloom_format import CommitRecord, DamagedFileError, Header, UnsupportedFormatError
from guideloom_format._job import Job
from guideloom_format._parts import DATA_ROLES
from targets.base import Bytes2Bytes, Target, attempt
from targets.header import header_of
from targets.memory_io import OWNER
from targets.mutation import mutate_sealed
from targets.record import DATASET_ID, part_of

NAME = "a-job"
WHERE = "folder/jobs/a-job.json"
FORMATS = {kind: header_of(kind, "<u2", {"class": "x"}) for kind in DATA_ROLES}


def feed(data: bytes) -> None:
    job = attempt(
        lambda: Job.decode(data, dataset_id=DATASET_ID, name=NAME, where=WHERE),
        DamagedFileError,
        names=WHERE,
    )
    if job is None:
        return
    assert Job.decode(job.encode(), dataset_id=DATASET_ID, name=NAME, where=WHERE) == job
    for kind in DATA_ROLES:
        header = Header.decode(FORMATS[kind])
        parts = attempt(partial(job.parts, header), DamagedFileError, UnsupportedFormatError)
        for record, written in parts or ():
            assert record.dataset_id == DATASET_ID
            assert written in job.records


def mutate(data: bytes, rng: random.Random, raw: Bytes2Bytes) -> bytes:
    def mend(members: dict[str, Any]) -> None:
        records = members.get("records")
        if isinstance(records, list) and records and rng.random() < 0.7:
            k = rng.randrange(len(records))
            if isinstance(records[k], str):
                inner = records[k].encode("ascii", "replace")
                records[k] = mutate_sealed(inner, rng, raw).decode("ascii", "replace")

    return mutate_sealed(data, rng, raw, mend)


def seeds() -> list[bytes]:
    found = [Job(DATASET_ID, NAME, ()).encode()]
    for kind in DATA_ROLES:
        records = [
            CommitRecord(DATASET_ID, part_of(kind, shard=shard), OWNER, finished=True).encode()
            for shard in (0, 7)
        ]
        found.append(Job(DATASET_ID, NAME, tuple(records)).encode())
    return found


TARGET = Target("job", feed, mutate, seeds)

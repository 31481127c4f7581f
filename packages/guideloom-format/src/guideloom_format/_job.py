"""The decision about a job: the commit records of all its parts in one file, ``jobs/NAME.json``.

Whoever finds it publishes those of the records that are not there yet; who decides, and when, is
the writers' business.
"""

from __future__ import annotations

from dataclasses import dataclass

from guideloom_format import _names
from guideloom_format._header import Header
from guideloom_format._members import Members
from guideloom_format._record import CommitRecord
from guideloom_format._sealed import FORMAT, seal, unseal

MAX_JOB_BYTES = 1 << 30


@dataclass(frozen=True)
class Job:
    """A decided job.

    Attributes:
        dataset_id: of the dataset that it belongs to.
        name: of the job.
        records: the commit records of its parts, as they are published, in order of place.
    """

    dataset_id: str
    name: str
    records: tuple[bytes, ...]

    def encode(self) -> bytes:
        """The file."""
        members = {
            "format": FORMAT,
            "type": "job",
            "dataset_id": self.dataset_id,
            "job": self.name,
            "records": [record.decode("ascii") for record in self.records],
        }
        return seal(members, compact=True)

    @classmethod
    def decode(cls, data: bytes, *, dataset_id: str, name: str, where: str) -> Job:
        """The job in a file that is named after it.

        Raises:
            DamagedFileError: a damaged file, or one of something else.
        """
        members = Members(unseal(data, where), where)
        members.expect("format", FORMAT, "the file of a GuideLoom dataset")
        members.expect("type", "job", f"the file lies in {_names.JOBS}/")
        members.expect("dataset_id", dataset_id, "the dataset that the file lies in")
        members.expect("job", name, "from the file's name")
        return cls(
            dataset_id,
            name,
            tuple(text.encode("ascii", "replace") for text in members.strings("records")),
        )

    def parts(self, header: Header) -> list[tuple[CommitRecord, bytes]]:
        """The records, decoded, and as they are published.

        Raises:
            DamagedFileError: one of them is none.
        """
        return [(_decoded(record, header, self.name), record) for record in self.records]


def _decoded(record: bytes, header: Header, name: str) -> CommitRecord:
    where = f"a record of job {name!r}"
    members = Members(unseal(record, where), where)
    return CommitRecord.decode(
        record,
        dataset_id=header.dataset_id,
        kind=header.kind,
        shard=members.integer("shard", _names.MAX_SHARD),
        part=members.integer("part", _names.MAX_PART),
    )

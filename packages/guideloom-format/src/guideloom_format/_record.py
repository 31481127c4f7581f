"""`commits/SSSSSSS-PPPP.json`: the record that publishes one part. Its creation is the commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from guideloom_format import _names
from guideloom_format._members import Members
from guideloom_format._parts import MAX_FILE_BYTES, FileFacts, Part, roles_of_kind
from guideloom_format._sealed import FORMAT, seal, unseal

MAX_RECORD_BYTES = 1 << 16
MAX_CRC = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Owner:
    """Who wrote a part, for people to read: host name, process id, start of the session in UTC."""

    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        host, since = (
            text if text.isprintable() else repr(text) for text in (self.host, self.since)
        )
        return f"host {host}, pid {self.pid}, writing since {since}"


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """One part of one dataset, and who wrote it.

    Attributes:
        finished: whether the writer had nothing more for the shard.
        task: what the shard was made from, as the job called it. Information for a job that is
            run again; readers ignore both.
    """

    dataset_id: str
    part: Part
    owner: Owner
    finished: bool = False
    task: str | None = None

    def encode(self) -> bytes:
        """The file."""
        part, owner = self.part, self.owner
        members: dict[str, Any] = {
            "format": FORMAT,
            "type": "commit",
            "dataset_id": self.dataset_id,
            "shard": part.shard,
            "part": part.part,
            "token": part.token,
            "length": part.length,
            "stem": part.stem,
            "files": {
                role: {"bytes": facts.nbytes, "crc32c": facts.crc32c}
                for role, facts in part.files.items()
            },
            "owner": {"host": owner.host, "pid": owner.pid, "since": owner.since},
        }
        if self.finished:
            members["finished"] = True
        if self.task is not None:
            members["task"] = self.task
        return seal(members)

    @classmethod
    def decode(
        cls, data: bytes, *, dataset_id: str, kind: str, shard: int, part: int
    ) -> CommitRecord:
        """The record in a file that is named after this shard and part of this dataset.

        Raises:
            DamagedFileError: a damaged record, or one of something else.
        """
        where = f"{_names.COMMITS}/{_names.commit_name(shard, part)}"
        members = Members(unseal(data, where), where)
        members.expect("format", FORMAT, "the file of a GuideLoom dataset")
        members.expect("type", "commit", "the file lies in commits/")
        members.expect("dataset_id", dataset_id, "the dataset that the file lies in")
        members.expect("shard", shard, "from the file's name")
        members.expect("part", part, "from the file's name")
        token = members.text("token")
        if not _names.is_token(token):
            raise members.wrong("token", token, "16 lower-case hexadecimal digits")
        roles = roles_of_kind(kind, where)
        stem = _names.check_stem(members.text("stem"), roles, where)
        files = members.nested("files")
        facts = {role: _facts(files.nested(role)) for role in roles}
        owner = members.nested("owner")
        return cls(
            dataset_id=dataset_id,
            part=Part(
                shard=shard,
                part=part,
                token=token,
                length=members.integer("length", MAX_FILE_BYTES),
                stem=stem,
                files=facts,
            ),
            owner=Owner(owner.text("host"), owner.integer("pid"), owner.text("since")),
            finished=members.flag("finished"),
            task=members.text("task") if "task" in members.values else None,
        )


def _facts(members: Members) -> FileFacts:
    return FileFacts(members.integer("bytes", MAX_FILE_BYTES), members.integer("crc32c", MAX_CRC))

"""Hostile datasets as vectors: what is changed in a good dataset, and what is said of it then.

The files in `vectors/` hold one JSON object per line:

    name, why        of the vector
    bases            the good datasets that it is applied to; ["stream"] when left out
    manifest         whether the dataset has a manifest; it has where `file` is one
    file             which file is changed; in a manifest also the version that it is a copy of
    put              {member: value}, members within members parted by "/"; numbers are indices
    remove           [member]
    text             {member: text}, as it stands in the file; [[text, count], …] for much of it
    start            text in the place of the first "{"
    seal             the last bytes, with {crc}, {CRC} or {wrong} in them
    ends             [number], the whole content of a file of 64-bit integers
    content          text, the whole content of the file
    sealed           members that make the file: {"owner": {…}}, {"job": {…}} or {"running": {…}},
                     which is a good note, job or running job but for these members
    size             the file is cut, or extended by a hole, to so many bytes
    place, to        what stands in the place of the file or folder, and where a link leads
    unreadable       a name, in Latin-1, of a file of no bytes
    copy             another name that the changed file has as well
    part             {"length": …, "contents": {role: text, or list of numbers}}: part 1 of shard 0
                     written anew, with records and checksums that fit
    also             a list of further changes
    links            true if folders are links, behind which the page lets a reader look

and what must happen; where nothing is said, the data is read as it was written:

    refuses          a reader does not open it, and says this
    reading          a reader opens it and says this when it reads
    other            true: a reader shows something else than was written
    canary           true: also what stands in files outside, to which the system leads it
    verify           what `verify` says; that which a reader says when left out, "" if it is clean
    opens            what `guideloom.open` says
    writes           what a writer says
    pinned           what a reader of version 1 says
    consolidates     what `consolidate` says
    cleans           what `clean` says
    finishes         what a job named "run" says when it is published

`{outside}` in a text is a folder that is not the dataset's; `{"times": [text, count]}` is a long
text, `{"fields": [name, count, type]}` the description of many fields, and `{"record": {…}}` the
text of a good commit record but for these members. Changed members are sealed again, and a manifest
gets its fingerprint, so that it is the content that is refused.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from struct import pack
from typing import Any

from format.independent import read_header
from format.independent_json import crc32c, unsealed
from format.independent_writing import DATASET_ID, HandWriter, MadePart, seal
from hostile.good_datasets import Base

FOLDER = Path(__file__).parent / "vectors"
SEAL = ',\n"crc32c": "{crc}"\n}\n'
CHANGES = {
    *("file", "put", "remove", "text", "start", "seal", "ends", "content", "size", "place", "to"),
    *("copy", "part", "also", "sealed", "unreadable"),
}
EXPECTED = {
    *("refuses", "reading", "other", "canary", "verify", "opens", "writes", "pinned"),
    *("consolidates", "cleans", "finishes"),
}
KEYS = {"name", "why", "bases", "manifest", "links"} | CHANGES | EXPECTED
VERSION = "manifests/00000001.json"
PROCESS = {
    "host": "elsewhere",
    "pid": 1234,
    "machine": "another",
    "boot": "some",
    "pid_namespace": "pid:[1]",
    "started": "1",
}
GOOD: dict[str, dict[str, Any]] = {
    "owner": {"shard": 0, "token": "0123456789abcdef", "since": "2026-01-01T00:00:00+00:00"}
    | PROCESS,
    "job": {"job": "run", "records": []},
    "running": {"began": 0} | PROCESS,
}
"""What is in the notes of owners, in jobs and in notes of running jobs."""


@dataclass(frozen=True)
class Vector:
    """One hostile dataset."""

    base: str
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.facts['name']} [{self.base}]"

    @property
    def has_manifest(self) -> bool:
        files = [change.get("file", "") for change in self._changes()]
        named = any(file.startswith("manifest") for file in files)
        return bool(self.facts.get("manifest", named))

    def apply(self, dataset: Path, outside: Path, base: Base) -> None:
        """Change a good dataset."""
        for change in self._changes():
            _Change(dataset, outside, base, change).make()

    def _changes(self) -> list[dict[str, Any]]:
        return [self.facts, *self.facts.get("also", ())]


def sorts() -> list[str]:
    """The files of vectors."""
    return sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def read_lines(sort: str) -> list[dict[str, Any]]:
    lines = (FOLDER / f"{sort}.jsonl").read_text(encoding="ascii").splitlines()
    return [json.loads(line) for line in lines]


def read_vectors(sort: str) -> Iterator[Vector]:
    """The vectors in one file, for each of their bases."""
    for facts in read_lines(sort):
        for base in facts.get("bases", ["stream"]):
            yield Vector(base, facts)


class _Change:
    """One change to one file."""

    def __init__(self, dataset: Path, outside: Path, base: Base, facts: dict[str, Any]) -> None:
        self._dataset, self._outside, self._base = dataset, outside, base
        self._facts: dict[str, Any] = self._filled(facts)
        self._path = dataset / self._facts["file"] if "file" in facts else dataset

    def make(self) -> None:
        facts = self._facts
        if "sealed" in facts:
            self._path.parent.mkdir(exist_ok=True)
            self._path.write_bytes(seal(_made(facts["sealed"])))
        if {"put", "remove", "text", "start", "seal"} & set(facts):
            self._change_members()
        if "ends" in facts:
            self._path.write_bytes(pack(f"<{len(facts['ends'])}Q", *facts["ends"]))
        if "content" in facts:
            self._path.parent.mkdir(exist_ok=True)
            self._path.write_text(facts["content"], encoding="latin-1")
        if "size" in facts:
            with open(self._path, "ab") as file:
                file.truncate(facts["size"])
        if "part" in facts:
            self._write_part(facts["part"])
        if "unreadable" in facts:  # a name that is no UTF-8
            (self._dataset / os.fsdecode(facts["unreadable"].encode("latin-1"))).touch()
        if "place" in facts:
            self._place(facts["place"], facts.get("to", ""))
        if "copy" in facts:
            (self._dataset / facts["copy"]).parent.mkdir(exist_ok=True)
            shutil.copyfile(self._path, self._dataset / facts["copy"])
        if facts.get("file") == "manifest.json" and stat.S_ISREG(self._path.lstat().st_mode):
            shutil.copyfile(self._path, self._dataset / VERSION) if "size" not in facts else None

    def _filled(self, value: Any) -> Any:
        """The same with what stands for long texts and for the folder outside."""
        if isinstance(value, str):
            return value.replace("{outside}", str(self._outside))
        if isinstance(value, list):
            return [self._filled(item) for item in value]
        if isinstance(value, dict):
            if set(value) == {"times"}:
                return value["times"][0] * value["times"][1]
            if set(value) == {"record"}:
                record = self._dataset / "commits/0000000-0001.json"
                members = json.loads(unsealed(record.read_bytes()) + b"}")
                return seal(members | self._filled(value["record"])).decode("ascii")
            if set(value) == {"fields"}:
                prefix, count, kind = self._filled(value["fields"])
                return [[f"{prefix}{k}", kind] for k in range(count)]
            return {key: self._filled(item) for key, item in value.items()}
        return value

    def _change_members(self) -> None:
        facts = self._facts
        members = json.loads(unsealed(self._path.read_bytes()) + b"}")
        for path in facts.get("remove", ()):
            inner, last = _within(members, path)
            del inner[last]
        for path, value in facts.get("put", {}).items():
            inner, last = _within(members, path)
            inner[last] = value
        if "parts" in members and "fingerprint" not in {
            *facts.get("put", ()),
            *facts.get("remove", ()),
        }:
            members["fingerprint"] = _fingerprint(members)
        marks: dict[str, str] = {}
        for path, text in facts.get("text", {}).items():
            inner, last = _within(members, path)
            inner[last] = f"MARK {len(marks)} KRAM"
            marks[f'"{inner[last]}"'] = _much(text)
        body = json.dumps(members)[:-1]
        for mark, text in marks.items():
            body = body.replace(mark, text)
        if "start" in facts:
            body = _much(facts["start"]) + body[1:]
        encoded = body.encode("utf-8")
        digits = f"{crc32c(encoded):08x}"
        wrong = f"{crc32c(encoded) ^ 1:08x}"
        end = facts.get("seal", SEAL).replace("{crc}", digits).replace("{wrong}", wrong)
        self._path.write_bytes(encoded + end.replace("{CRC}", digits.upper()).encode("ascii"))

    def _write_part(self, changed: dict[str, Any]) -> None:
        part = self._base.parts[1]
        contents = dict(part.contents)
        for role, content in changed["contents"].items():
            contents[role] = (
                content.encode("latin-1")
                if isinstance(content, str)
                else pack(f"<{len(content)}Q", *content)
            )
        made = MadePart(part.shard, part.number, changed.get("length", part.length), contents)
        writer = HandWriter(self._dataset, read_header(self._dataset))
        writer.data(made)
        writer.record(made)

    def _place(self, thing: str, target: str) -> None:
        path = self._path
        path.parent.mkdir(exist_ok=True)
        if thing == "moved":  # what is here, to the folder outside, and a link to it
            moved = self._outside / "moved"
            shutil.move(path, moved)
            path.symlink_to(moved)
            return
        if thing == "hard link":
            path.unlink()
            os.link(self._dataset / target, path)
            return
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if thing == "folder":
            path.mkdir()
        elif thing == "many links":
            path.mkdir()
            for number in range(120):
                (path / f"link{number}").symlink_to(target)
        elif thing == "FIFO":
            os.mkfifo(path)
        elif thing == "link":
            path.symlink_to(target)
        elif thing == "socket":
            os.mknod(path, stat.S_IFSOCK | 0o644)
        elif thing == "device":  # a copy of /dev/zero
            os.mknod(path, stat.S_IFCHR | 0o644, os.makedev(1, 5))
        else:
            assert thing == "nothing", thing


def _made(facts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    ((sort, changed),) = facts.items()
    return {"format": "guideloom", "type": sort, "dataset_id": DATASET_ID} | GOOD[sort] | changed


def _within(members: Any, path: str) -> tuple[Any, Any]:
    *names, last = [int(name) if name.isdecimal() else name for name in path.split("/")]
    for name in names:
        members = members[name]
    return members, last


def _much(text: str | list[list[Any]]) -> str:
    if isinstance(text, str):
        return text
    return "".join(piece * count for piece, count in text)


def _fingerprint(members: dict[str, Any]) -> str:
    """The right fingerprint of a manifest; any text where its columns are no numbers."""
    columns = members["parts"]
    try:
        data = b"guideloom-fingerprint-1\n" + members["dataset_id"].encode("ascii")
        tokens = [int(token, 16) for token in columns["token"]]
        for column in (columns["shard"], columns["part"], tokens, columns["length"]):
            data += pack(f"<{len(column)}Q", *column)
        for role in sorted(columns["files"]):
            sizes, sums = columns["files"][role]["bytes"], columns["files"][role]["crc32c"]
            data += role.encode("ascii") + pack(f"<{len(sizes)}Q", *sizes)
            data += pack(f"<{len(sums)}I", *sums)
    except Exception:  # noqa: BLE001  # whatever a hostile value makes of it
        return "0" * 64
    return sha256(data).hexdigest()

"""Names of files inside a dataset directory: how they are made and which ones are accepted.

::

    guideloom.json                                     header
    commits/0000004-0001.json                          record that publishes part 1 of shard 4
    data/0000/0000004-0001-9f3c21ab5d0e7711.elements   its files: stem + "." + role
    manifests/00000003.json, manifest.json             consolidated tables of all parts
    owners/0000004.json                                who writes shard 4
    jobs/nightly.json                                  parts that a job publishes together
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from guideloom_format._errors import DamagedFileError

HEADER = "guideloom.json"
MANIFEST = "manifest.json"
COMMITS = "commits"
DATA = "data"
MANIFESTS = "manifests"
OWNERS = "owners"
JOBS = "jobs"
TEMPORARY = ".tmp"

MAX_SHARD = 10**9
MAX_PART = 10**6
SHARDS_PER_FOLDER = 1000
MAX_NAME = 255
MAX_COMPONENTS = 4

_COMPONENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII)
_COMMIT = re.compile(r"([0-9]{7,10})-([0-9]{4,7})\.json", re.ASCII)
_MANIFEST = re.compile(r"[0-9]{8}\.json", re.ASCII)
_OWNER = re.compile(r"[0-9]{7,10}\.json", re.ASCII)
_JOB = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", re.ASCII)
_TOKEN = re.compile(r"[0-9a-f]{16}", re.ASCII)


def commit_name(shard: int, part: int) -> str:
    """File name of a commit record, inside `commits/`."""
    return f"{shard:07d}-{part:04d}.json"


def parse_commit_name(name: str) -> tuple[int, int] | None:
    """(shard, part) of a commit record's name; None for any other file in the folder."""
    match = _COMMIT.fullmatch(name)
    if match is None:
        return None
    shard, part = int(match[1]), int(match[2])
    known = shard <= MAX_SHARD and part <= MAX_PART and commit_name(shard, part) == name
    return (shard, part) if known else None


def part_folder(shard: int) -> str:
    """The folder inside `data/` for a shard's files: a thousand shards share one."""
    return f"{shard // SHARDS_PER_FOLDER:04d}"


def part_stem(shard: int, part: int, token: str) -> str:
    """What the names of a part's files begin with, inside `data/`."""
    return f"{part_folder(shard)}/{shard:07d}-{part:04d}-{token}"


def data_name(stem: str, role: str) -> str:
    """A data file's name inside the dataset directory."""
    return f"{DATA}/{stem}.{role}"


def manifest_name(version: int) -> str:
    """A manifest version's name inside `manifests/`."""
    return f"{version:08d}.json"


def parse_manifest_name(name: str) -> int | None:
    """The version in the name of a file in `manifests/`; None for any other file there."""
    return int(name[:8]) if _MANIFEST.fullmatch(name) else None


def owner_name(shard: int) -> str:
    """File name of the note who writes a shard, inside `owners/`."""
    return f"{shard:07d}.json"


def parse_owner_name(name: str) -> int | None:
    """The shard in the name of a file in `owners/`; None for any other file there."""
    if not _OWNER.fullmatch(name):
        return None
    shard = int(name.removesuffix(".json"))
    return shard if shard <= MAX_SHARD and owner_name(shard) == name else None


def job_name(job: str) -> str:
    """File name of the decision about a job, inside `jobs/`."""
    return f"{job}.json"


def parse_job_name(name: str) -> str | None:
    """The job in the name of a file in `jobs/`; None for any other file there."""
    job = name.removesuffix(".json")
    return job if job != name and is_job_name(job) else None


def is_job_name(text: str) -> bool:
    """Whether `text` can name a job: 1 to 200 of ``[A-Za-z0-9._-]`` without a leading dot."""
    return _JOB.fullmatch(text) is not None


def temporary_name(name: str, token: str) -> str:
    """The name under which a file is written before it is published as `name`."""
    return f"{name}.{token}{TEMPORARY}"


def is_token(text: object) -> bool:
    """Whether `text` is a session token: 16 lower-case hexadecimal digits."""
    return isinstance(text, str) and _TOKEN.fullmatch(text) is not None


def check_relative(name: str, where: str) -> str:
    """`name` if it is safe to join to a dataset directory.

    Safe: one to four components of ``[A-Za-z0-9._-]`` without a leading dot, parted by single
    slashes. That leaves no absolute path, parent folder, scheme, drive, backslash or control
    character, whatever the platform.

    Raises:
        DamagedFileError: anything else.
    """
    parts = name.split("/")
    if (
        len(name) > MAX_NAME
        or len(parts) > MAX_COMPONENTS
        or not all(_COMPONENT.fullmatch(part) for part in parts)
    ):
        raise DamagedFileError(
            f"{where} names the file {name[:80]!r}; expected a relative name of components "
            "[A-Za-z0-9._-] without a leading dot, which cannot leave the dataset. The dataset is "
            "damaged or hostile: do not use it"
        )
    return name


def check_stem(stem: str, roles: Iterable[str], where: str) -> str:
    """`stem` if the names of all files that it stands for are safe, the longest one above all.

    Raises:
        DamagedFileError: one of them is not.
    """
    check_relative(data_name(stem, max(roles, key=len)), where)
    return stem


def in_full(directory: str) -> str:
    """A directory for a message: with the absolute path, if it is another one.

    A relative one is another folder once the working folder has changed, or in another process.
    """
    absolute = os.path.abspath(directory)
    return directory if absolute == directory else f"{directory} (here: {absolute})"

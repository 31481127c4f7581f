"""Names of files: which are commit records, and which may be joined to a dataset's folder."""

from __future__ import annotations

import random
from functools import partial

from guideloom_format import DamagedFileError, _lists, _names
from guideloom_format._parts import ROLES_OF_KIND
from targets.base import Bytes2Bytes, Target, attempt
from targets.record import check_inside
from targets.taking import mutate_plain

LETTERS = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
PIECES = [
    "0000004-0001.json",
    "1000000000-1000000.json",
    "1000000001-0000.json",
    "0000000-1000001.json",
    "00000003.json",
    "0000004.json",
    "0000-",
    "0000004-0001-9f3c21ab5d0e7711",
    "../",
    "/",
    "//",
    ".",
    "\0",
    "\n",
    "a" * 250,
    "٣",
    "\uff0e\uff0e/",
    "\ud800",
    "%2e%2e",
    "C:",
    "\\",
    "file://",
]


def feed(data: bytes) -> None:
    name = data.decode("utf-8", "surrogatepass") if _is_text(data) else data.decode("latin-1")
    check_commit_name(name)
    stems, bad = _lists.stems(["a/b", name], 200, 3)
    assert (bad == -1) == (is_relative(name) and len(name) <= 200 and name.count("/") < 3)
    assert bad in (-1, 1)
    assert bad == 1 or stems.tolist() == [b"a/b", name.encode("ascii")]
    relative = attempt(
        lambda: [_names.check_relative(name, "commits/x")], DamagedFileError, names="commits/x"
    )
    assert (relative is not None) == is_relative(name)
    for roles in ROLES_OF_KIND.values():
        stem = attempt(partial(checked_stem, name, roles), DamagedFileError, names="commits/x")
        assert (stem is not None) == all(is_relative(f"data/{name}.{role}") for role in roles)
        for role in roles if stem is not None else ():
            check_inside(_names.data_name(name, role))
    check_tokens(name)
    check_versions_and_owners(name)


def checked_stem(name: str, roles: tuple[str, ...]) -> list[str]:
    return [_names.check_stem(name, roles, "commits/x")]


def check_tokens(name: str) -> None:
    hexadecimal = len(name) == 16 and set(name) <= set("0123456789abcdef")
    assert _names.is_token(name) == hexadecimal
    found, bad = _lists.tokens(["0" * 16, name])
    assert bad == (-1 if hexadecimal else 1)
    assert not hexadecimal or found.tolist() == [0, int(name, 16)]


def check_versions_and_owners(name: str) -> None:
    number = name.removesuffix(".json")
    plain = name.endswith(".json") and bool(number) and set(number) <= set("0123456789")
    version = int(number) if plain and len(number) == 8 else None
    assert _names.parse_manifest_name(name) == version
    known = plain and (len(number) == 7 or (7 < len(number) <= 10 and number[0] != "0"))
    shard = int(number) if known and int(number) <= 10**9 else None
    assert _names.parse_owner_name(name) == shard


def check_commit_name(name: str) -> None:
    pair = _names.parse_commit_name(name)
    listed = _names.parse_commit_name(name.removesuffix("/"))
    places = [] if listed is None else [listed[0] * (10**6 + 1) + listed[1]]
    found = _lists.commit_places([name, "x", name], 10**9 + 1, 10**6 + 1)
    assert found.tolist() == places * 2, name
    shard, dash, rest = name.partition("-")
    part, digits = rest.removesuffix(".json"), set("0123456789")
    right = (
        dash == "-"
        and rest.endswith(".json")
        and set(shard) <= digits
        and set(part) <= digits
        and 7 <= len(shard) <= 10
        and 4 <= len(part) <= 7
        and (len(shard) == 7 or shard[0] != "0")
        and (len(part) == 4 or part[0] != "0")
        and int(shard) <= 10**9
        and int(part) <= 10**6
    )
    assert (pair is not None) == right, name
    assert pair is None or pair == (int(shard), int(part))


def is_relative(name: str) -> bool:
    """Whether the name is safe, in plain words of the format's page."""
    components = name.split("/")
    return (
        len(name) <= 255
        and len(components) <= 4
        and all(part and part[0] != "." and set(part) <= LETTERS for part in components)
    )


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def mutate(data: bytes, rng: random.Random, raw: Bytes2Bytes) -> bytes:
    if rng.random() < 0.5:
        return mutate_plain(data, rng, raw)
    piece = rng.choice(PIECES).encode("utf-8", "surrogatepass")
    at = rng.randrange(len(data) + 1)
    return data[:at] + piece + data[at + rng.choice((0, 1, len(piece))) :]


def seeds() -> list[bytes]:
    return [piece.encode("utf-8", "surrogatepass") for piece in PIECES]


TARGET = Target("names", feed, mutate, seeds)

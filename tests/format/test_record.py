"""Commit records: what was written is read, all else is a named error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format.sealed_cases import (
    HOSTILE_PATHS,
    assert_all_damage_is_found,
    members_of,
    raw_values,
    with_member,
    with_raw_value,
    without_member,
    wrong_values,
)
from guideloom_format import CommitRecord, DamagedFileError, FileFacts, FileIdentity, Owner, Part
from guideloom_format._names import part_stem

ID = "00112233445566778899aabbccddeeff"
TOKEN = "9f3c21ab5d0e7711"
RECORD = CommitRecord(
    ID,
    Part(
        shard=4,
        part=1,
        token=TOKEN,
        length=25_000,
        stem=part_stem(4, 1, TOKEN),
        files={
            "elements": FileFacts(100_000, 0x7247F66B),
            "elements.crc": FileFacts(8, 2**32 - 1),
        },
    ),
    Owner("a-host", 4242, "2026-01-01T00:00:00Z"),
)
DATA = RECORD.encode()
FILE_MEMBERS = [
    ("files", role, fact) for role in ("elements", "elements.crc") for fact in ("bytes", "crc32c")
]
TYPES: dict[tuple[str, ...], list[str]] = {
    ("format",): ["string"],
    ("type",): ["string"],
    ("dataset_id",): ["string"],
    ("shard",): ["integer"],
    ("part",): ["integer"],
    ("token",): ["string"],
    ("length",): ["integer"],
    ("stem",): ["string"],
    ("files",): ["object"],
    ("files", "elements"): ["object"],
    ("files", "elements.crc"): ["object"],
    **{path: ["integer"] for path in FILE_MEMBERS},
    ("owner",): ["object"],
    ("owner", "host"): ["string"],
    ("owner", "pid"): ["integer"],
    ("owner", "since"): ["string"],
}
INTEGERS = [path for path, types in TYPES.items() if types == ["integer"]]


def decode(data: bytes, **other: Any) -> CommitRecord:
    asked: dict[str, Any] = {"dataset_id": ID, "kind": "stream", "shard": 4, "part": 1}
    return CommitRecord.decode(data, **(asked | other))


def where(path: tuple[str, ...]) -> str:
    """How messages call the place of a member: the file, and the objects around it."""
    return ", ".join(["^commits/0000004-0001.json", *path[:-1]]).replace(".", r"\.") + ": "


def test_the_members_are_those_of_the_format() -> None:
    members = members_of(DATA)
    assert {(name,) for name in members} == {path for path in TYPES if len(path) == 1}
    assert set(members["owner"]) == {"host", "pid", "since"}
    assert decode(DATA) == RECORD


@settings(max_examples=300, deadline=None)
@given(
    dataset_id=st.integers(0, 2**128 - 1).map("{:032x}".format),
    shard=st.integers(0, 10**9),
    part=st.integers(0, 10**6),
    token=st.integers(0, 2**64 - 1).map("{:016x}".format),
    length=st.integers(0, 2**62),
    sizes=st.tuples(*[st.integers(0, 2**62)] * 2),
    crcs=st.tuples(*[st.integers(0, 2**32 - 1)] * 2),
    owner=st.builds(Owner, st.text(max_size=40), st.integers(0, 2**63 - 1), st.text(max_size=40)),
)
def test_records_come_back(
    dataset_id: str,
    shard: int,
    part: int,
    token: str,
    length: int,
    sizes: tuple[int, int],
    crcs: tuple[int, int],
    owner: Owner,
) -> None:
    facts = [FileFacts(size, crc) for size, crc in zip(sizes, crcs, strict=True)]
    files = dict(zip(("elements", "elements.crc"), facts, strict=True))
    described = Part(shard, part, token, length, part_stem(shard, part, token), files)
    record = CommitRecord(dataset_id, described, owner)
    data = record.encode()
    back = decode(data, dataset_id=dataset_id, shard=shard, part=part)
    assert back == record
    assert back.encode() == data


def test_all_damage_is_found() -> None:
    assert assert_all_damage_is_found(DATA, decode) > 10 * len(DATA)


@pytest.mark.parametrize("path", TYPES, ids="/".join)
def test_a_missing_member_is_named(path: tuple[str, ...]) -> None:
    with pytest.raises(
        DamagedFileError,
        match=rf"{where(path)}the member '{path[-1]}' is missing\. "
        r"The file is damaged or was not written by GuideLoom$",
    ):
        decode(without_member(DATA, path))


@pytest.mark.parametrize("path", TYPES, ids="/".join)
def test_a_member_of_another_type_is_named(path: tuple[str, ...]) -> None:
    for value in wrong_values(*TYPES[path]):
        with pytest.raises(DamagedFileError, match=rf"{where(path)}{path[-1]} is ") as caught:
            decode(with_member(DATA, path, value))
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("path", TYPES, ids="/".join)
@pytest.mark.parametrize("value", raw_values(), ids=lambda value: repr(value[:20]))
def test_hostile_text_in_a_member_is_refused(path: tuple[str, ...], value: bytes) -> None:
    with pytest.raises(DamagedFileError, match=r"^commits/0000004-0001\.json"):
        decode(with_raw_value(DATA, path, value))


@pytest.mark.parametrize("path", INTEGERS, ids="/".join)
def test_integers_outside_their_interval_are_refused(path: tuple[str, ...]) -> None:
    for value in (-1, -(2**63), 2**63, 2**64, 2**64 + 4, 10**4000):
        with pytest.raises(DamagedFileError, match=rf"{where(path)}{path[-1]} is "):
            decode(with_member(DATA, path, value))


@pytest.mark.parametrize("path", INTEGERS, ids="/".join)
@pytest.mark.parametrize("text", [b"4.0", b"1.0", b"1e0", b"4E0", b"true", b'"4"', b"1e300"])
def test_only_json_integers_are_integers(path: tuple[str, ...], text: bytes) -> None:
    with pytest.raises(DamagedFileError, match=rf"{where(path)}{path[-1]} is "):
        decode(with_raw_value(DATA, path, text))


@pytest.mark.parametrize(
    "path, largest",
    [
        (("length",), 2**62),
        (("files", "elements", "bytes"), 2**62),
        (("files", "elements", "crc32c"), 2**32 - 1),
        (("owner", "pid"), 2**63 - 1),
    ],
)
def test_the_largest_integer_is_accepted_and_the_next_is_not(
    path: tuple[str, ...], largest: int
) -> None:
    decode(with_member(DATA, path, largest))
    with pytest.raises(
        DamagedFileError,
        match=rf"{where(path)}{path[-1]} is {largest + 1}; expected an integer from 0 to {largest}",
    ):
        decode(with_member(DATA, path, largest + 1))


@pytest.mark.parametrize("path", HOSTILE_PATHS, ids=lambda path: ascii(path[:24]))
def test_a_stem_that_could_leave_the_dataset_is_refused(path: str) -> None:
    with pytest.raises(
        DamagedFileError, match=r"^commits/0000004-0001\.json(: stem is | names the file )"
    ) as caught:
        decode(with_member(DATA, ("stem",), path))
    assert len(str(caught.value)) < 800


@pytest.mark.parametrize("stem", ["a", "a/b", "a/b/c", "0/x.y", "-/_"])
def test_a_stem_of_up_to_three_components_is_accepted(stem: str) -> None:
    assert decode(with_member(DATA, ("stem",), stem)).part.stem == stem


def test_a_stem_of_four_components_is_refused() -> None:
    """The format: a stem has one to three components; a reader refuses any other."""
    with pytest.raises(DamagedFileError, match=r"names the file '(data/)?a/b/c/d"):
        decode(with_member(DATA, ("stem",), "a/b/c/d"))


def test_the_full_name_has_at_most_255_characters() -> None:
    """The format: of `data/` + stem + `.` + role, for the longest role."""
    longest = 255 - len("data/") - len(".elements.crc")
    assert decode(with_member(DATA, ("stem",), "x" * longest)).part.stem == "x" * longest
    with pytest.raises(DamagedFileError, match="names the file"):
        decode(with_member(DATA, ("stem",), "x" * (longest + 1)))


@pytest.mark.parametrize(
    "token", ["", TOKEN[1:], TOKEN + "0", TOKEN.upper(), TOKEN + "\n", "g" * 16, "\u0661" * 16]
)
def test_another_token_is_refused(token: str) -> None:
    with pytest.raises(
        DamagedFileError, match=r": token is '.*'; expected 16 lower-case hexadecimal digits\."
    ):
        decode(with_member(DATA, ("token",), token))


@pytest.mark.parametrize(
    "other, message",
    [
        ({"shard": 5}, r"^commits/0000005-0001\.json: shard is 4; expected 5 \(from the file's n"),
        ({"part": 0}, r"^commits/0000004-0000\.json: part is 1; expected 0 \(from the file's name"),
        (
            {"dataset_id": "0" * 32},
            rf": dataset_id is '{ID}'; expected '{'0' * 32}' \(the dataset that the file lies in\)",
        ),
    ],
)
def test_a_record_in_a_strange_place_is_refused(other: dict[str, Any], message: str) -> None:
    with pytest.raises(DamagedFileError, match=message):
        decode(DATA, **other)


@pytest.mark.parametrize("name, value", [("format", "other"), ("type", "header"), ("type", "")])
def test_another_kind_of_file_is_refused(name: str, value: str) -> None:
    with pytest.raises(
        DamagedFileError,
        match=rf"{where((name,))}{name} is '{value}'; expected '\w+' \(",
    ):
        decode(with_member(DATA, (name,), value))


def test_unknown_members_and_roles_are_ignored() -> None:
    data = with_member(DATA, ("new_member",), [1])
    data = with_member(data, ("files", "new-role"), {"bytes": "many"})
    data = with_member(data, ("files", "elements", "sha256"), "x")
    data = with_member(data, ("owner", "rank"), 1.5)
    assert decode(data) == RECORD


def test_owners_are_shown_to_people() -> None:
    assert str(RECORD.owner) == "host a-host, pid 4242, writing since 2026-01-01T00:00:00Z"


def test_identity_of_a_parts_file() -> None:
    assert RECORD.part.identity(ID, "elements") == FileIdentity(ID, 4, 1, TOKEN, "elements")

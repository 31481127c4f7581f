"""Manifests: the table of parts comes back, and every inconsistency of its columns is named."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format.part_cases import (
    ID,
    ITEMSIZE,
    ROLES,
    TABLE,
    assert_same_table,
    fingerprint_by_the_format,
    make_part,
    tables,
)
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
from guideloom_format import DamagedFileError, Manifest, PartTable

DATA = Manifest(ID, 3, TABLE).encode()
FINGERPRINT = members_of(DATA)["fingerprint"]
TYPES: dict[tuple[str, ...], list[str]] = {
    ("format",): ["string"],
    ("type",): ["string"],
    ("dataset_id",): ["string"],
    ("manifest_version",): ["integer"],
    ("fingerprint",): ["string"],
    ("parts",): ["object"],
    ("parts", "shard"): ["array"],
    ("parts", "part"): ["array"],
    ("parts", "token"): ["array"],
    ("parts", "length"): ["array"],
    ("parts", "stem"): ["array"],
    ("parts", "files"): ["object"],
    **{
        ("parts", "files", role, *rest): types
        for role in ROLES
        for rest, types in (((), ["object"]), (("bytes",), ["array"]), (("crc32c",), ["array"]))
    },
}
COLUMNS = [path for path, types in TYPES.items() if types == ["array"]]


def decode(data: bytes, **other: Any) -> Manifest:
    asked: dict[str, Any] = {"dataset_id": ID, "kind": "stream", "itemsize": ITEMSIZE}
    return Manifest.decode(data, **(asked | other))


def column_of(path: tuple[str, ...]) -> list[Any]:
    inner = members_of(DATA)
    for name in path[:-1]:
        inner = inner[name]
    column: list[Any] = inner[path[-1]]
    return column


@settings(max_examples=300, deadline=None)
@given(case=tables(), version=st.integers(0, 10**8 - 1))
def test_manifests_come_back(case: tuple[PartTable, int], version: int) -> None:
    table, itemsize = case
    data = Manifest(ID, version, table).encode()
    back = decode(data, itemsize=itemsize)
    assert (back.dataset_id, back.manifest_version) == (ID, version)
    assert_same_table(back.table, table)
    assert back.encode() == data
    members = members_of(data)
    assert members["fingerprint"] == fingerprint_by_the_format(members)
    assert [back.table.row(k) for k in range(len(table))] == [
        table.row(k) for k in range(len(table))
    ]


def test_the_members_are_those_of_the_format() -> None:
    members = members_of(DATA)
    assert {(name,) for name in members} == {path for path in TYPES if len(path) == 1}
    assert {("parts", name) for name in members["parts"]} == {
        path for path in TYPES if len(path) == 2
    }


def test_an_empty_manifest_comes_back() -> None:
    table = PartTable.from_parts([], ROLES)
    assert len(decode(Manifest(ID, 0, table).encode()).table) == 0


def test_all_damage_is_found() -> None:
    parts = [make_part(3, k, 100) for k in range(2)]
    data = Manifest(ID, 3, PartTable.from_parts(parts, ROLES)).encode()
    assert assert_all_damage_is_found(data, decode) > 10 * len(data)


@pytest.mark.parametrize("path", TYPES, ids="/".join)
def test_a_missing_member_is_named(path: tuple[str, ...]) -> None:
    where = ", ".join(("manifest.json", *path[:-1]))
    with pytest.raises(
        DamagedFileError, match=rf"^{where.replace('.', '.')}: the member '{path[-1]}' is missing\."
    ):
        decode(without_member(DATA, path))


@pytest.mark.parametrize("path", TYPES, ids="/".join)
def test_a_member_of_another_type_is_named(path: tuple[str, ...]) -> None:
    where = ", ".join(("manifest.json", *path[:-1]))
    for value in wrong_values(*TYPES[path]):
        with pytest.raises(DamagedFileError, match=rf"^{where}: {path[-1]} is ") as caught:
            decode(with_member(DATA, path, value))
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("path", COLUMNS, ids="/".join)
@pytest.mark.parametrize("k", range(6))
def test_an_entry_of_another_type_is_named(path: tuple[str, ...], k: int) -> None:
    right = "string" if path[-1] in ("token", "stem") else "integer"
    where = ", ".join(("manifest.json", *path[:-1]))
    column = column_of(path)
    wrong = wrong_values(right)
    if right == "integer":
        wrong += [-1, 2**63, 2**64, 2**64 + 5, 10**4000, 1.0]
    for value in wrong:
        changed = [*column[:k], value, *column[k + 1 :]]
        with pytest.raises(DamagedFileError, match=rf"^{where}: {path[-1]} is ") as caught:
            decode(with_member(DATA, path, changed))
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("path", COLUMNS, ids="/".join)
@pytest.mark.parametrize("change", [-6, -1, 1])
def test_columns_of_unequal_length_are_refused(path: tuple[str, ...], change: int) -> None:
    values = column_of(path)
    values = values[:change] if change < 0 else values + values[:change]
    with pytest.raises(
        DamagedFileError,
        match=r"(files, elements(\.crc)?|parts): \w+ is \d; expected \d entries, one per part\.",
    ):
        decode(with_member(DATA, path, values))


@pytest.mark.parametrize("path", TYPES, ids="/".join)
@pytest.mark.parametrize("value", raw_values(), ids=lambda value: repr(value[:20]))
def test_hostile_text_in_a_member_is_refused(path: tuple[str, ...], value: bytes) -> None:
    with pytest.raises(DamagedFileError, match=r"^manifest\.json"):
        decode(with_raw_value(DATA, path, value))


@pytest.mark.parametrize("path", HOSTILE_PATHS, ids=lambda path: ascii(path[:24]))
@pytest.mark.parametrize("k", [0, 5])
def test_a_stem_that_could_leave_the_dataset_is_refused(path: str, k: int) -> None:
    stems = members_of(DATA)["parts"]["stem"]
    stems[k] = path
    with pytest.raises(DamagedFileError, match=r"^manifest\.json, parts(: stem is | names the )"):
        decode(with_member(DATA, ("parts", "stem"), stems))


@pytest.mark.parametrize("stem", ["a/b/c/d", "x" * 238], ids=["four components", "256 characters"])
def test_a_stem_beyond_the_format_is_refused(stem: str) -> None:
    stems = members_of(DATA)["parts"]["stem"]
    stems[2] = stem
    with pytest.raises(DamagedFileError, match="names the file"):
        decode(with_member(DATA, ("parts", "stem"), stems))


@pytest.mark.parametrize("column", ["token", "crc32c"])
@pytest.mark.parametrize("k", range(6))
def test_a_column_that_only_the_fingerprint_guards(column: str, k: int) -> None:
    """Sizes and order still agree; the fingerprint does not."""
    members = members_of(DATA)["parts"]
    path: tuple[str, ...]
    if column == "token":
        path, values = ("parts", "token"), members["token"]
        values[k] = "f" * 16
    else:
        path = ("parts", "files", "elements", "crc32c")
        values = members["files"]["elements"]["crc32c"]
        values[k] ^= 1
    with pytest.raises(
        DamagedFileError,
        match=r"^manifest\.json: fingerprint is '[0-9a-f]{64}'; expected '[0-9a-f]{64}' "
        r"\(computed from the parts\)",
    ):
        decode(with_member(DATA, path, values))


@pytest.mark.parametrize(
    "fingerprint", ["", "0" * 64, "x", members_of(DATA)["fingerprint"].upper()]
)
def test_another_fingerprint_is_refused(fingerprint: str) -> None:
    with pytest.raises(DamagedFileError, match=r"^manifest\.json: fingerprint is "):
        decode(with_member(DATA, ("fingerprint",), fingerprint))


@pytest.mark.parametrize(
    "data, other, message",
    [
        (DATA, {"dataset_id": "0" * 32}, r"dataset_id is '0011.*' \(the dataset that the file lie"),
        (DATA, {"itemsize": 2}, r"shard 0, part 0: the size of the elements is not"),
        (with_member(DATA, ("type",), "commit"), {}, r"type is 'commit'; expected 'manifest' "),
        (with_member(DATA, ("format",), "x"), {}, r"format is 'x'; expected 'guideloom' "),
        (with_member(DATA, ("manifest_version",), 10**8), {}, "manifest_version is 100000000; "),
        (with_member(DATA, ("manifest_version",), -1), {}, "manifest_version is -1; expected an"),
    ],
)
def test_a_manifest_of_something_else_is_refused(
    data: bytes, other: dict[str, Any], message: str
) -> None:
    with pytest.raises(DamagedFileError, match=rf"^manifest\.json: {message}"):
        decode(data, **other)


def test_messages_name_the_file_that_was_read() -> None:
    with pytest.raises(DamagedFileError, match=r"^manifests/00000003\.json: type is 'x'"):
        decode(with_member(DATA, ("type",), "x"), where="manifests/00000003.json")


def test_unknown_members_and_roles_are_ignored() -> None:
    data = with_member(DATA, ("new_member",), 1)
    data = with_member(data, ("parts", "new_column"), ["x"])
    data = with_member(data, ("parts", "files", "new-role"), {"bytes": "many"})
    assert_same_table(decode(data).table, TABLE)


def test_a_manifest_of_100_000_parts_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    parts = [make_part(k // 3, k % 3, k % 1000) for k in range(100_000)]
    table = PartTable.from_parts(parts, ROLES)
    times = [time.perf_counter()]
    data = Manifest(ID, 1, table).encode()
    times.append(time.perf_counter())
    back = decode(data)
    times.append(time.perf_counter())
    assert_same_table(back.table, table)
    assert [back.table.row(k) for k in range(100_000)] == parts
    assert back.table.fingerprint(ID) == fingerprint_by_the_format(members_of(data))
    with capsys.disabled():
        print(
            f"\n100,000 parts, {len(data) / 1e6:.1f} MB: encoded in {times[1] - times[0]:.2f} s, "
            f"decoded in {times[2] - times[1]:.2f} s"
        )

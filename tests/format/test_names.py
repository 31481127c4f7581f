"""Names of files: one name per part, and none that leaves the dataset."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format.sealed_cases import HOSTILE_PATHS
from guideloom_format import DamagedFileError, _names


def check(stem: str, where: str = "x") -> str:
    return _names.check_stem(stem, ("elements", "elements.crc"), where)


SHARDS = st.integers(0, _names.MAX_SHARD) | st.sampled_from([0, 9_999_999, 10**7, 10**9])
PARTS = st.integers(0, _names.MAX_PART) | st.sampled_from([0, 9999, 10_000, 10**6])


@settings(max_examples=300, deadline=None)
@given(shard=SHARDS, part=PARTS)
def test_commit_names_come_back(shard: int, part: int) -> None:
    name = _names.commit_name(shard, part)
    assert name == f"{str(shard).zfill(7)}-{str(part).zfill(4)}.json"
    assert _names.parse_commit_name(name) == (shard, part)


@settings(max_examples=300, deadline=None)
@given(
    name=st.text(max_size=30)
    | st.from_regex(r"[0-9]{5,12}-[0-9]{2,9}\.json")
    | st.from_regex(r"\A[0-9]{7,8}-[0-9]{4,5}\.json\Z")
)
def test_no_two_names_mean_the_same_part(name: str) -> None:
    parsed = _names.parse_commit_name(name)
    if parsed is not None:
        assert _names.commit_name(*parsed) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0000004-0001",
        "0000004-0001.json.tmp",
        ".0000004-0001.json",
        "0000004-0001.json\n",
        "0000004-0001.JSON",
        "0000004-0001json",
        "000004-0001.json",
        "00000004-0001.json",
        "0000004-001.json",
        "0000004-00001.json",
        "-000004-0001.json",
        "0000004--001.json",
        "+000004-0001.json",
        "0000004_0001.json",
        " 000004-0001.json",
        "000_004-0001.json",
        "000000a-0001.json",
        "\u0660\u0660\u0660\u0660\u0660\u0660\u0664-0001.json",
        "\uff10\uff10\uff10\uff10\uff10\uff10\uff14-0001.json",
        "9" * 5000 + "-0001.json",
        "../0000004-0001.json",
        "a/0000004-0001.json",
    ],
)
def test_other_names_are_not_commit_records(name: str) -> None:
    assert _names.parse_commit_name(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "1000000001-0000.json",
        "9999999999-0000.json",
        "0000000-1000001.json",
        "0000000-9999999.json",
    ],
)
def test_numbers_beyond_the_limits_are_not_commit_records(name: str) -> None:
    """The format: shards go up to 10^9, parts up to 10^6."""
    assert _names.parse_commit_name(name) is None


@settings(max_examples=200, deadline=None)
@given(shard=SHARDS, part=PARTS, token=st.integers(0, 2**64 - 1).map("{:016x}".format))
def test_writers_stems_are_what_the_format_says_and_are_accepted(
    shard: int, part: int, token: str
) -> None:
    stem = _names.part_stem(shard, part, token)
    assert stem == f"{shard // 1000:04d}/{shard:07d}-{part:04d}-{token}"
    assert check(stem) == stem
    assert _names.data_name(stem, "elements.crc") == f"data/{stem}.elements.crc"


@pytest.mark.parametrize("version, name", [(0, "00000000"), (3, "00000003"), (10**8 - 1, "9" * 8)])
def test_manifest_names(version: int, name: str) -> None:
    assert _names.manifest_name(version) == f"{name}.json"


@pytest.mark.parametrize("name", HOSTILE_PATHS, ids=lambda name: ascii(name[:24]))
def test_hostile_paths_are_refused(name: str) -> None:
    with pytest.raises(
        DamagedFileError,
        match=r"^commits/y names the file .*; expected a relative name of .*components "
        r"\[A-Za-z0-9\._-\] without a leading dot, which cannot leave the dataset\. The dataset is "
        r"damaged or hostile: do not use it$",
    ):
        check(name, "commits/y")


@settings(max_examples=300, deadline=None)
@given(
    name=st.text(alphabet="ab0./\\:-_~% \x00\n\u2215\uff0e", max_size=12)
    | st.text(max_size=12)
    | st.from_regex(r"\A[A-Za-z0-9_-][A-Za-z0-9._-]{0,3}(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,3}){0,2}\Z")
)
def test_only_plain_components_are_accepted(name: str) -> None:
    """Against a reference that walks over the characters."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
    plain = all(
        part != "" and part[0] in letters and all(char in letters + "." for char in part)
        for part in name.split("/")
    )
    if plain and name.count("/") <= 2:
        assert check(name) == name
    else:
        with pytest.raises(DamagedFileError, match="names the file"):
            check(name)


@pytest.mark.parametrize("name", ["a", "-", "_", "a.b", "a..b", "a...", "0/0", "a/b/c", "x" * 200])
def test_plain_names_are_accepted(name: str) -> None:
    assert check(name) == name


@settings(max_examples=200, deadline=None)
@given(number=st.integers(0, 2**64 - 1))
def test_tokens(number: int) -> None:
    token = f"{number:016x}"
    assert _names.is_token(token)
    assert not _names.is_token(token[:-1])
    assert not _names.is_token(token + "0")
    assert not _names.is_token(token + "\n")
    assert _names.is_token(token.upper()) == token.isdigit()
    for other in (number, token.encode(), None, [token]):
        assert not _names.is_token(other)

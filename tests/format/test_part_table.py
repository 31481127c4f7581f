"""The table of parts: its order, its fingerprint, and what its columns must say together."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format.part_cases import (
    ID,
    ITEMSIZE,
    ROLES,
    TABLE,
    assert_same_table,
    make_part,
    make_table,
    tables,
)
from guideloom_format import DamagedFileError, Manifest, PartTable, UnsupportedFormatError


def decode(data: bytes) -> Manifest:
    return Manifest.decode(data, dataset_id=ID, kind="stream", itemsize=ITEMSIZE)


def set_cell(column: str, k: int, value: int, role: str = "") -> Callable[[PartTable], None]:
    def change(table: PartTable) -> None:
        target = getattr(table, column)
        (target[role] if role else target)[k] = value

    return change


def swap_rows(one: int, other: int) -> Callable[[PartTable], None]:
    def change(table: PartTable) -> None:
        columns = [table.shard, table.part, table.token, table.length, table.stem]
        for column in [*columns, *table.nbytes.values(), *table.crc32c.values()]:
            column[[one, other]] = column[[other, one]]

    return change


@pytest.mark.parametrize(
    "change, message",
    [
        (set_cell("part", 0, 1), "shard 0 has part 1 where part 0 is expected"),
        (set_cell("part", 1, 2), "shard 0 has part 2 where part 1 is expected"),
        (set_cell("part", 1, 0), "shard 0 has part 0 where part 1 is expected"),
        (set_cell("part", 4, 1), "shard 3 has part 1 where part 2 is expected"),
        (set_cell("part", 5, 3), "shard 1000000000 has part 3 where part 0 is expected"),
        (set_cell("shard", 1, 1), "shard 1 has part 1 where part 0 is expected"),
        (set_cell("shard", 5, 3), "shard 3 has part 0 where part 3 is expected"),
        (set_cell("shard", 5, 2), "shard 2 follows shard 3; expected the shards in order"),
        (set_cell("shard", 5, 0), "shard 0 follows shard 3; expected the shards in order"),
        (swap_rows(0, 1), "shard 0 has part 1 where part 0 is expected"),
        (swap_rows(3, 4), "shard 3 has part 2 where part 1 is expected"),
        (swap_rows(0, 5), "shard 0 has part 1 where part 0 is expected"),
        (
            set_cell("length", 0, 4),
            "shard 0, part 0: the size of the elements is not .*; expected 4 elements of 4 bytes",
        ),
        (
            set_cell("nbytes", 2, 400_004, "elements"),
            "shard 3, part 0: the size of the elements is not .*; expected 100000 elements of 4 b",
        ),
        (set_cell("nbytes", 1, 1, "elements"), "shard 0, part 1: the size of the elements is not"),
        (set_cell("length", 1, 2**62), r"part 1: the length is not .* at most 2\*\*62 // 4"),
        (set_cell("length", 5, 2**60), r"part 0: the size of the elements is not"),
        (
            set_cell("nbytes", 2, 24, "elements.crc"),
            "shard 3, part 0: the size of elements.crc is not .*; expected 4 bytes for each of 7 b",
        ),
        (set_cell("nbytes", 1, 4, "elements.crc"), "part 1: the size of elements.crc is not"),
        (set_cell("nbytes", 4, 8, "elements.crc"), "expected 4 bytes for each of 1 blocks"),
        (set_cell("nbytes", 5, 2**62, "elements.crc"), "the parts state [0-9]+ bytes together"),
        (set_cell("nbytes", 5, 2**62, "elements"), "the parts state [0-9]+ bytes together"),
    ],
)
def test_parts_that_cannot_be_are_named(change: Callable[[PartTable], None], message: str) -> None:
    """Each under a correct fingerprint and a correct seal."""
    table = make_table()
    change(table)
    check = ("stream", ITEMSIZE, "manifest.json")
    with pytest.raises(DamagedFileError, match=rf"^manifest\.json: .*{message}"):
        table.check(*check)
    with pytest.raises(DamagedFileError, match=rf"^manifest\.json: .*{message}"):
        decode(Manifest(ID, 3, table).encode())


def test_many_large_parts_do_not_wrap_around() -> None:
    """Eight parts of 2**61 bytes each sum to 2**64, which is 0 in 64 bits."""
    table = PartTable.from_parts([make_part(0, k, 2**59) for k in range(8)], ROLES)
    with pytest.raises(DamagedFileError, match=r"the parts state 184[0-9]+ bytes together"):
        decode(Manifest(ID, 3, table).encode())


def test_the_fingerprint_binds_every_cell_but_the_stems() -> None:
    """Each cell of each column changed alone gives another fingerprint, and no two the same."""
    prints = {TABLE.fingerprint(ID), TABLE.fingerprint("0" * 32)}
    cells = [(column, "") for column in ("shard", "part", "token", "length")]
    cells += [(column, role) for column in ("nbytes", "crc32c") for role in ROLES]
    for column, role in cells:
        for k in range(len(TABLE)):
            table = make_table()
            target = getattr(table, column)[role] if role else getattr(table, column)
            target[k] += 1
            prints.add(table.fingerprint(ID))
    assert len(prints) == 2 + len(cells) * len(TABLE)
    table = make_table()
    table.stem[0] = b"elsewhere"
    assert table.fingerprint(ID) == TABLE.fingerprint(ID)


def test_the_fingerprint_binds_the_order() -> None:
    table = make_table()
    swap_rows(0, 5)(table)
    assert table.fingerprint(ID) != TABLE.fingerprint(ID)


@settings(max_examples=200, deadline=None)
@given(case=tables(), data=st.data())
def test_parts_in_any_order_make_one_table(
    case: tuple[PartTable, int], data: st.DataObject
) -> None:
    table, _ = case
    rows = [table.row(k) for k in range(len(table))]
    assert [(row.shard, row.part) for row in rows] == sorted((row.shard, row.part) for row in rows)
    shuffled = data.draw(st.permutations(rows))
    assert_same_table(PartTable.from_parts(shuffled, ROLES), table)
    for k, row in enumerate(rows):
        assert table.file_name(k, "elements.crc") == f"data/{row.stem}.elements.crc"


def test_a_missing_record_is_named() -> None:
    """A table from listed records: a gap in the parts of a shard is refused with the way out."""
    parts = [make_part(3, k, 10) for k in (0, 2)]
    with pytest.raises(
        DamagedFileError,
        match=r"^commits: shard 3 has part 2 where part 1 is expected; a commit record is missing "
        r"or there twice\. Restore it from a copy$",
    ):
        PartTable.from_parts(parts, ROLES).check("stream", ITEMSIZE, "commits")


@pytest.mark.parametrize("kind", ["table", "documents", ""])
def test_kinds_of_later_versions_are_named(kind: str) -> None:
    with pytest.raises(
        UnsupportedFormatError,
        match=rf"^commits: the dataset is of kind '{kind}'; this release of guideloom-format read",
    ):
        TABLE.check(kind, ITEMSIZE, "commits")
